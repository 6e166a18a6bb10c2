package mailgun

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/seed-8098fbb7/dispatch/provider/exchange"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

// Config is one sending domain at Mailgun. APIKey and Domain are required.
// Fields that are zero mean what stands with them.
type Config struct {
	// Name is the provider's stable name, as routes use it; empty means
	// "mailgun".
	Name string
	// Account identifies the account; empty means Domain, which is what mails
	// and events belong to.
	Account string
	// APIKey is the account's key, or one of the domain's sending keys.
	APIKey string `json:"-"`
	// SendingKey tells that APIKey is a domain's sending key, which may send
	// and see no events: there is no look-up then.
	SendingKey bool
	// Domain is the sending domain, "mg.shop.example". It stands in the
	// Message-ID that mails are looked up by.
	Domain string
	// From is the sender of mails whose route names none:
	// "Shop <no-reply@mg.shop.example>".
	From string
	// WebhookKey is the account's webhook signing key, which isn't the API
	// key. Without it Webhook refuses every call.
	WebhookKey string `json:"-"`
	// Replay is how old a signed call may be: 9 h, since Mailgun repeats for
	// 8 h and doesn't say whether under a new time. Its own sample has 15 s,
	// which would refuse repeats then.
	Replay time.Duration
	// Metadata are the names of an intent's metadata that go out as
	// variables. Mailgun writes them into the mail's header, where recipients
	// can read them. Our key goes out as dispatch_key in any case.
	Metadata []string
	// Lag is how long a mail may be missing in the events: 45 min. Mailgun
	// says that a page of events can be trusted once it is about 30 minutes
	// old. A mail that is absent after it is sent again.
	Lag time.Duration
	// Retention is how long the plan keeps events: 24 h, which is the least.
	// A mail that is older is never said to be absent.
	Retention time.Duration
	// Grace is how long an unknown mail waits for its first event: 1 h.
	// Mailgun doesn't document it.
	Grace time.Duration
	// BaseURL is "https://api.mailgun.net"; for domains in the EU
	// "https://api.eu.mailgun.net".
	BaseURL string
	// Exchange bounds the HTTP exchange; Write is 30 s, MaxBody 256 KiB.
	Exchange exchange.Config `json:"-"`
}

// String shows name and account.
func (c Config) String() string { return "mailgun " + c.Name + "/" + c.Account }

// Format prints what String does, with every verb: no secret slips into a log.
func (c Config) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// LogValue shows what String does, in fields.
func (c Config) LogValue() slog.Value {
	return slog.GroupValue(slog.String("name", c.Name), slog.String("account", c.Account))
}

func (c Config) checked() (Config, error) {
	c.Domain = strings.ToLower(strings.TrimSpace(c.Domain))
	if c.Account == "" {
		c.Account = c.Domain
	}
	secrets := map[string]*string{"APIKey": &c.APIKey}
	if c.WebhookKey != "" {
		secrets["WebhookKey"] = &c.WebhookKey
	}
	if !strings.Contains(c.Domain, ".") || !mailapi.Plain(c.Domain, ".-") || len(c.Domain) > 200 {
		return c, errors.New("mailgun: Domain is no domain name in ASCII")
	}
	if err := (mailapi.Basics{
		Vendor: "mailgun", Name: &c.Name, Account: &c.Account, BaseURL: &c.BaseURL, From: c.From, Labels: c.Metadata, Secrets: secrets,
	}).Check("https://api.mailgun.net"); err != nil {
		return c, err
	}
	for field, def := range map[*time.Duration]time.Duration{
		&c.Lag: 45 * time.Minute, &c.Retention: 24 * time.Hour, &c.Grace: time.Hour, &c.Replay: 9 * time.Hour,
	} {
		if *field == 0 {
			*field = def
		}
	}
	switch {
	case c.Lag < 0 || c.Grace < 0:
		return c, errors.New("mailgun: Lag or Grace is negative")
	case c.Retention <= c.Lag:
		return c, errors.New("mailgun: Retention is not above Lag")
	case c.Replay < 15*time.Second || c.Replay > 30*24*time.Hour:
		return c, errors.New("mailgun: Replay is not between 15 seconds and 30 days")
	}
	return c, nil
}
