package twilio

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
)

// Config names the account and how it is used. Only AccountSID and one pair of
// credentials are required. It is never changed, and it prints without its
// secrets.
type Config struct {
	// Name is the provider's stable name, as routes use it; empty means
	// "twilio".
	Name string
	// AccountSID is the account, "AC" and 32 hex digits.
	AccountSID string
	// AuthToken is the account's token. It signs the status callbacks, also
	// where requests use an API key: with a StatusCallback it is required.
	AuthToken string `json:"-"`
	// APIKey and APISecret, where set, authenticate requests instead. A key
	// belongs to one region.
	APIKey    string
	APISecret string `json:"-"`

	// From is the sender where the route names none: a number in E.164 form, a
	// short code, an alphanumeric name, or a messaging service ("MG...").
	From string
	// StatusCallback is the public URL of Webhook, exactly as Twilio must call
	// it; https, at most 3,900 bytes. The message's key is added to its query.
	// Empty means that no receipts come, and that what became of a lost answer
	// can only be looked up.
	//
	// A fragment overrides how Twilio connects. Where there is none,
	// "#rc=5&rp=all" is added: without it Twilio repeats only calls that could
	// not connect, once, and a receipt that met a 503 is lost. (Twilio's docs
	// describe connection overrides for webhook URLs in general; that they hold
	// for a message's own StatusCallback is not confirmed.)
	StatusCallback string

	// Region and Edge choose the host: "ie1" and "dublin" mean
	// api.dublin.ie1.twilio.com. An edge without a region is in us1. A region's
	// messages can't be looked up in another: it is part of the contract's
	// Account.
	Region, Edge string
	// BaseURL replaces the host, "https://api.twilio.com"; with Region or Edge
	// it is an error.
	BaseURL string

	// DistinctTexts says that this account never sends one text to one number
	// twice within ten minutes, under whatever keys and by whatever application.
	// Then a look-up may take the only message that fits for ours. Without it a
	// look-up can prove that a message is absent, never that it is present:
	// Twilio keeps no reference of ours, and the message that fits may be that
	// of another key. One-time codes are distinct unless the same code can be
	// asked for again; reminders are not.
	DistinctTexts bool
	// Lag is how long an accepted message may be missing from the list of
	// messages; zero means 2 min. Twilio states none, so this is a guess on the
	// safe side: a shorter one makes double sends possible.
	Lag time.Duration
	// Grace is how long the first receipt may take; zero means 15 min.
	Grace time.Duration

	// Exchange bounds the HTTP exchange; zero means its defaults, and 1 MiB for
	// MaxBody, as lists of messages are long.
	Exchange exchange.Config `json:"-"`
}

const (
	defaultLag   = 2 * time.Minute
	defaultGrace = 15 * time.Minute
	maxTime      = 240 * time.Hour

	// keyParam is the query parameter of a status callback that has our key.
	keyParam = "dispatch_key"
	// retries is the connection override of Config.StatusCallback.
	retries = "rc=5&rp=all"
)

var (
	accountSID = regexp.MustCompile(`^AC[0-9a-fA-F]{32}$`)
	apiKeySID  = regexp.MustCompile(`^SK[0-9a-fA-F]{32}$`)
	serviceSID = regexp.MustCompile(`^MG[0-9a-fA-F]{32}$`)
	location   = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,30}$`)
)

// Format prints what LogValue shows, with every verb.
func (c Config) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.LogValue().String()) }

// LogValue shows name and account.
func (c Config) LogValue() slog.Value {
	return slog.GroupValue(slog.String("name", c.Name), slog.String("account", c.account()))
}

// account is the identity of what keys, look-ups and receipts speak of.
func (c Config) account() string {
	if c.Region != "" && c.Region != "us1" {
		return c.AccountSID + "@" + c.Region
	}
	return c.AccountSID
}

func (c Config) withDefaults() (Config, error) {
	if c.Name == "" {
		c.Name = "twilio"
	}
	for _, s := range []*string{&c.AuthToken, &c.APISecret} {
		*s = strings.TrimSpace(*s)
	}
	if c.Lag == 0 {
		c.Lag = defaultLag
	}
	if c.Grace == 0 {
		c.Grace = defaultGrace
	}
	if c.Exchange.MaxBody == 0 {
		c.Exchange.MaxBody = 1 << 20
	}
	if err := c.validate(); err != nil {
		return c, err
	}
	if c.BaseURL == "" {
		if c.Edge != "" && c.Region == "" {
			c.Region = "us1"
		}
		host := "api"
		for _, part := range []string{c.Edge, c.Region} {
			if part != "" {
				host += "." + part
			}
		}
		c.BaseURL = "https://" + host + ".twilio.com"
	}
	c.BaseURL = strings.TrimSuffix(c.BaseURL, "/")
	return c, nil
}

// validate says what is wrong. It quotes nothing.
func (c Config) validate() error {
	if err := dispatch.ValidName(c.Name); err != nil {
		return fmt.Errorf("twilio: Name %w", err)
	}
	switch {
	case !accountSID.MatchString(c.AccountSID):
		return errors.New("twilio: AccountSID is not AC and 32 hex digits")
	case (c.APIKey == "") != (c.APISecret == ""):
		return errors.New("twilio: APIKey and APISecret go together")
	case c.APIKey != "" && !apiKeySID.MatchString(c.APIKey):
		return errors.New("twilio: APIKey is not SK and 32 hex digits")
	case c.AuthToken == "" && c.APIKey == "":
		return errors.New("twilio: AuthToken is empty, and there is no APIKey")
	case !printable(c.AuthToken):
		return errors.New("twilio: AuthToken has a blank or a control character in it")
	case !printable(c.APISecret):
		return errors.New("twilio: APISecret has a blank or a control character in it")
	case c.Region != "" && !location.MatchString(c.Region):
		return errors.New("twilio: Region is no name like ie1")
	case c.Edge != "" && !location.MatchString(c.Edge):
		return errors.New("twilio: Edge is no name like dublin")
	case c.BaseURL != "" && c.Region+c.Edge != "":
		return errors.New("twilio: BaseURL and Region or Edge are both set")
	case c.Lag < 0 || c.Lag > maxTime:
		return fmt.Errorf("twilio: Lag is %v, want 0 to %v", c.Lag, maxTime)
	case c.Grace < 0 || c.Grace > maxTime:
		return fmt.Errorf("twilio: Grace is %v, want 0 to %v", c.Grace, maxTime)
	}
	if c.BaseURL != "" {
		u, err := exchange.ParseURL(c.BaseURL)
		if err != nil {
			return fmt.Errorf("twilio: BaseURL: %w", err)
		}
		if u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
			return errors.New("twilio: BaseURL has more than scheme and host")
		}
	}
	if c.From != "" {
		if err := validFrom(c.From); err != nil {
			return fmt.Errorf("twilio: From %w", err)
		}
	}
	return c.validateCallback()
}

func (c Config) validateCallback() error {
	if c.StatusCallback == "" {
		return nil
	}
	u, err := exchange.ParseURL(c.StatusCallback)
	if err != nil {
		return fmt.Errorf("twilio: StatusCallback: %w", err)
	}
	query, err := url.ParseQuery(u.RawQuery)
	switch {
	case err != nil:
		return errors.New("twilio: StatusCallback's query can't be read")
	case query.Has(keyParam):
		return errors.New("twilio: StatusCallback's query has " + keyParam + " in it, which is ours to add")
	case query.Has(bodyHash):
		return errors.New("twilio: StatusCallback's query has " + bodyHash + " in it, which is Twilio's to add")
	case strings.Contains(u.Host, "_"):
		return errors.New("twilio: StatusCallback's host has an underscore, which Twilio refuses")
	case len(c.StatusCallback) > 3900:
		return errors.New("twilio: StatusCallback is longer than 3,900 bytes")
	case c.AuthToken == "":
		return errors.New("twilio: StatusCallback needs the AuthToken: it signs the callbacks")
	}
	return nil
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c > '~' })
}

// validFrom reports why s is neither a sender nor a messaging service.
func validFrom(s string) error {
	if serviceSID.MatchString(s) {
		return nil
	}
	return dispatch.ValidSender(s)
}
