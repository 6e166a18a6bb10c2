package infobip

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
)

// Config is one account at Infobip. APIKey is required. Fields that are zero
// mean what stands with them.
type Config struct {
	// Name is the provider's stable name, as routes use it; empty means
	// "infobip".
	Name string
	// Account identifies the account; empty means BaseURL's host, which each
	// account has its own of. Change it with the account: look-ups of one
	// prove nothing about another.
	Account string
	// BaseURL is the account's own, "https://xxxxx.api.infobip.com"; empty
	// means "https://api.infobip.com".
	BaseURL string
	// APIKey is sent as "Authorization: App".
	APIKey string `json:"-"`
	// From is the sender of messages whose route names none.
	From string
	// Idempotency is the grace period in which Infobip rejects a repeated
	// message id. Infobip switches it on by request, for each channel, and
	// agrees on the period; zero means that it is off. Within it an unknown
	// message is sent again under its id, behind it and without it looked up.
	Idempotency time.Duration
	// CallbackURL is where receipts of these messages go; empty means where
	// the account's subscription says. The secret is added to it, as the
	// parameter "token".
	CallbackURL string
	// WebhookSecret checks receipts, which have no documented signature: it
	// must come as the URL's parameter "token", or as the password of a
	// subscription with Basic authentication. At least 16 characters. Without
	// it Webhook refuses every call. With CallbackURL set, an unknown message
	// that was sent under another secret is held, not repeated: its request
	// would differ.
	WebhookSecret string `json:"-"`
	// Grace is how long an unknown message waits for its first receipt where
	// the look-up fails: 1 h.
	Grace time.Duration
	// Lag is how long a message may be missing in the logs: 15 min. Infobip
	// doesn't document it. A message that is absent after it is sent again:
	// take too much rather than too little.
	Lag time.Duration
	// ValidFor is how long Infobip tries to deliver, in whole minutes up to
	// 48 h; zero means its default. It is the same for each message, since a
	// repeat must have the same bytes.
	ValidFor time.Duration
	// Exchange bounds the HTTP exchange.
	Exchange exchange.Config `json:"-"`
}

// String shows name and account.
func (c Config) String() string { return "infobip " + c.Name + "/" + c.Account }

// Format prints what String does, with every verb: no secret slips into a log.
func (c Config) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// LogValue shows what String does, in fields.
func (c Config) LogValue() slog.Value {
	return slog.GroupValue(slog.String("name", c.Name), slog.String("account", c.Account))
}

func (c Config) withDefaults() Config {
	for _, field := range []*string{&c.APIKey, &c.WebhookSecret, &c.From} {
		*field = strings.TrimSpace(*field)
	}
	if c.Name == "" {
		c.Name = "infobip"
	}
	if c.BaseURL == "" {
		c.BaseURL = "https://api.infobip.com"
	}
	c.BaseURL = strings.TrimSuffix(c.BaseURL, "/")
	if u, err := url.Parse(c.BaseURL); err == nil && c.Account == "" {
		c.Account = u.Host
	}
	for field, def := range map[*time.Duration]time.Duration{&c.Grace: time.Hour, &c.Lag: 15 * time.Minute} {
		if *field == 0 {
			*field = def
		}
	}
	return c
}

func (c *Config) validate() error {
	if err := dispatch.ValidName(c.Name); err != nil {
		return fmt.Errorf("infobip: Name %w", err)
	}
	switch {
	case c.APIKey == "":
		return errors.New("infobip: APIKey is missing")
	case c.Account == "" || len(c.Account) > 200:
		return errors.New("infobip: Account is missing or longer than 200 bytes")
	case c.WebhookSecret != "" && len(c.WebhookSecret) < 16:
		return errors.New("infobip: WebhookSecret has less than 16 characters")
	case c.Idempotency < 0 || c.Idempotency > 30*24*time.Hour:
		return errors.New("infobip: Idempotency is not between 0 and 30 days")
	case c.Grace < 0 || c.Lag < 0:
		return errors.New("infobip: Grace or Lag is negative")
	case c.ValidFor < 0 || c.ValidFor > 48*time.Hour || c.ValidFor%time.Minute != 0:
		return errors.New("infobip: ValidFor is not whole minutes up to 48 h")
	}
	for _, f := range []struct {
		name string
		r    exchange.Request
	}{
		{"BaseURL", exchange.Request{URL: c.BaseURL}},
		{"APIKey", exchange.Request{URL: c.BaseURL, Auth: http.Header{"Authorization": {"App " + c.APIKey}}}},
	} {
		if _, err := f.r.Digest(); err != nil {
			return fmt.Errorf("infobip: %s: %w", f.name, err)
		}
	}
	if c.CallbackURL != "" {
		if _, err := exchange.ParseURL(c.CallbackURL); err != nil {
			return fmt.Errorf("infobip: CallbackURL: %w", err)
		}
	}
	return nil
}

// callback is CallbackURL with the secret.
func (c *Config) callback() string {
	u, err := url.Parse(c.CallbackURL)
	if err != nil || c.CallbackURL == "" || c.WebhookSecret == "" {
		return c.CallbackURL
	}
	q := u.Query()
	q.Set(tokenParam, c.WebhookSecret)
	u.RawQuery = q.Encode()
	return u.String()
}

const tokenParam = "token"
