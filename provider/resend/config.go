package resend

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/seed-8098fbb7/dispatch/provider/exchange"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

// Config is one team at Resend. APIKey is required. Fields that are zero mean
// what stands with them.
type Config struct {
	// Name is the provider's stable name, as routes use it; empty means
	// "resend".
	Name string
	// Account identifies the team; empty means Name. Change it with the team,
	// not with the key: Resend doesn't say whether its memory of idempotency
	// keys belongs to the team or to the API key, so let no key be replaced
	// while messages are unknown, or change Account with it.
	Account string
	// APIKey is "re_...".
	APIKey string `json:"-"`
	// From is the sender of mails whose route names none, of a domain that is
	// verified: "Shop <no-reply@shop.example>".
	From string
	// WebhookSecret is the webhook's signing secret, "whsec_...". Without it
	// Webhook refuses every call.
	WebhookSecret string `json:"-"`
	// Metadata are the names of an intent's metadata that go out as tags;
	// names and values then have letters, digits, _ and - only. Our key goes
	// out as the tag dispatch_key in any case.
	Metadata []string
	// Grace is how long an unknown message waits for its first event: 1 h.
	// Resend doesn't document it; its own repeats of a failed call take 27 h.
	Grace time.Duration
	// BaseURL is "https://api.resend.com".
	BaseURL string
	// Exchange bounds the HTTP exchange; Write is 30 s, MaxBody 256 KiB.
	Exchange exchange.Config `json:"-"`
}

// String shows name and account.
func (c Config) String() string { return "resend " + c.Name + "/" + c.Account }

// Format prints what String does, with every verb: no secret slips into a log.
func (c Config) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// LogValue shows what String does, in fields.
func (c Config) LogValue() slog.Value {
	return slog.GroupValue(slog.String("name", c.Name), slog.String("account", c.Account))
}

// checked is the configuration with its defaults, and the webhook's secret.
func (c Config) checked() (Config, []byte, error) {
	secrets := map[string]*string{"APIKey": &c.APIKey}
	if c.WebhookSecret != "" {
		secrets["WebhookSecret"] = &c.WebhookSecret
	}
	if err := (mailapi.Basics{
		Vendor: "resend", Name: &c.Name, Account: &c.Account, BaseURL: &c.BaseURL, From: c.From, Labels: c.Metadata, Secrets: secrets,
	}).Check("https://api.resend.com"); err != nil {
		return c, nil, err
	}
	if c.Grace == 0 {
		c.Grace = time.Hour
	}
	if c.Grace < 0 {
		return c, nil, errors.New("resend: Grace is negative")
	}
	if c.WebhookSecret == "" {
		return c, nil, nil
	}
	secret, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(c.WebhookSecret, "whsec_"))
	if err != nil || len(secret) == 0 {
		return c, nil, errors.New("resend: WebhookSecret is not whsec_ and base64")
	}
	return c, secret, nil
}
