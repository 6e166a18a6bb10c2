package mailapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
)

// Same compares two secrets in a time that tells neither contents nor length.
func Same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// Fresh reports whether seconds since the epoch lie at most past before now
// and at most ahead behind it. What is missing or no whole number does not.
func Fresh(seconds string, now time.Time, past, ahead time.Duration) bool {
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil || n <= 0 || n > 1<<40 {
		return false
	}
	age := now.Unix() - n
	return age <= int64(past.Seconds()) && age >= -int64(ahead.Seconds())
}

// Basics are the fields that every adapter's configuration has.
type Basics struct {
	Vendor string
	Name   *string
	// Account is the contract's account; empty means the provider's name.
	Account *string
	BaseURL *string
	From    string
	// Labels are the names of metadata that go out.
	Labels []string
	// Secrets are header values, by the field that they come from.
	Secrets map[string]*string
}

// Check fills what is empty, removes blanks around secrets, and says what is
// wrong. It makes the requests that Send will, as far as they are the same for
// each message: what fails at every send fails here. Errors quote no value.
func (b Basics) Check(baseURL string) error {
	if *b.Name == "" {
		*b.Name = b.Vendor
	}
	if err := dispatch.ValidName(*b.Name); err != nil {
		return fmt.Errorf("%s: Name %w", b.Vendor, err)
	}
	if *b.Account == "" {
		*b.Account = *b.Name
	}
	if err := (dispatch.Contract{Name: *b.Name, Account: *b.Account}).Validate(); err != nil {
		return fmt.Errorf("%s: Account is too long or no single line", b.Vendor)
	}
	if *b.BaseURL == "" {
		*b.BaseURL = baseURL
	}
	*b.BaseURL = strings.TrimSuffix(*b.BaseURL, "/")
	if _, err := exchange.ParseURL(*b.BaseURL); err != nil {
		return fmt.Errorf("%s: BaseURL: %w", b.Vendor, err)
	}
	if b.From != "" {
		if _, err := ParseSender(b.From); err != nil {
			return fmt.Errorf("%s: From %w", b.Vendor, err)
		}
	}
	if err := CheckLabels(b.Labels); err != nil {
		return fmt.Errorf("%s: Metadata %w", b.Vendor, err)
	}
	for field, secret := range b.Secrets {
		*secret = strings.TrimSpace(*secret)
		if *secret == "" {
			return fmt.Errorf("%s: %s is missing", b.Vendor, field)
		}
		r := exchange.Request{URL: *b.BaseURL, Auth: http.Header{"X": {*secret}}}
		if _, err := r.Digest(); err != nil {
			return fmt.Errorf("%s: %s: %w", b.Vendor, field, errors.New("has a control character"))
		}
	}
	return nil
}
