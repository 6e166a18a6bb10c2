package sendgrid

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/seed-8098fbb7/dispatch/provider/exchange"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

// Config is one account or subuser at SendGrid. APIKey is required. Fields
// that are zero mean what stands with them.
type Config struct {
	// Name is the provider's stable name, as routes use it; empty means
	// "sendgrid".
	Name string
	// Account identifies the account; empty means Subuser, or Name.
	Account string
	// APIKey is "SG....", with the right to send mail.
	APIKey string `json:"-"`
	// Subuser is the subuser to send for, On-Behalf-Of; empty means the
	// account that the key belongs to.
	Subuser string
	// From is the sender of mails whose route names none, a verified identity:
	// "Shop <no-reply@shop.example>".
	From string
	// WebhookKey is the event webhook's public key, base64 as SendGrid shows
	// it. Without it Webhook refuses every call, and nothing settles an
	// unknown mail.
	WebhookKey string
	// Replay is how old a signed call may be: 25 h, since SendGrid repeats for
	// 24 h and doesn't say whether under a new time. A repeat of an event
	// changes nothing.
	Replay time.Duration
	// Metadata are the names of an intent's metadata that go out as custom
	// arguments. SendGrid says that it doesn't treat them as personal data and
	// may keep them for long: let none hold any. Our key goes out as
	// dispatch_key in any case.
	Metadata []string
	// Grace is how long an unknown mail waits for its first event: 1 h.
	// SendGrid doesn't document it; "processed" comes within minutes.
	Grace time.Duration
	// ActivityLag switches the look-up on, which asks the Email Activity API:
	// it needs the paid history of 30 days and a key with the right to it, and
	// holds nothing of regional subusers in the EU. It is how long a mail may
	// be missing there. SendGrid doesn't document it: take too much rather
	// than too little, since a mail that is absent after it is sent again.
	// Zero means no look-up.
	ActivityLag time.Duration
	// BaseURL is "https://api.sendgrid.com"; for EU regional subusers
	// "https://api.eu.sendgrid.com".
	BaseURL string
	// Exchange bounds the HTTP exchange; Write is 30 s, MaxBody 256 KiB.
	Exchange exchange.Config `json:"-"`
}

// String shows name and account.
func (c Config) String() string { return "sendgrid " + c.Name + "/" + c.Account }

// Format prints what String does, with every verb: no secret slips into a log.
func (c Config) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// LogValue shows what String does, in fields.
func (c Config) LogValue() slog.Value {
	return slog.GroupValue(slog.String("name", c.Name), slog.String("account", c.Account))
}

// checked is the configuration with its defaults, and the webhook's key.
func (c Config) checked() (Config, *ecdsa.PublicKey, error) {
	if c.Account == "" {
		c.Account = c.Subuser
	}
	secrets := map[string]*string{"APIKey": &c.APIKey}
	if c.Subuser != "" {
		secrets["Subuser"] = &c.Subuser
	}
	if err := (mailapi.Basics{
		Vendor: "sendgrid", Name: &c.Name, Account: &c.Account, BaseURL: &c.BaseURL, From: c.From, Labels: c.Metadata, Secrets: secrets,
	}).Check("https://api.sendgrid.com"); err != nil {
		return c, nil, err
	}
	for field, def := range map[*time.Duration]time.Duration{&c.Grace: time.Hour, &c.Replay: 25 * time.Hour} {
		if *field == 0 {
			*field = def
		}
	}
	switch {
	case c.Grace < 0 || c.ActivityLag < 0:
		return c, nil, errors.New("sendgrid: Grace or ActivityLag is negative")
	case c.Replay < time.Minute || c.Replay > 30*24*time.Hour:
		return c, nil, errors.New("sendgrid: Replay is not between 1 minute and 30 days")
	case c.ActivityLag > 0 && strings.Contains(c.BaseURL, "api.eu."):
		return c, nil, errors.New("sendgrid: ActivityLag: the Email Activity API has no data of regional subusers in the EU")
	case slices.ContainsFunc(c.Metadata, func(name string) bool { return slices.Contains(taken, name) }):
		return c, nil, errors.New("sendgrid: Metadata has a name that events use for a field of their own")
	}
	if c.WebhookKey == "" {
		return c, nil, nil
	}
	key, err := publicKey(c.WebhookKey)
	if err != nil {
		return c, nil, fmt.Errorf("sendgrid: WebhookKey: %w", err)
	}
	return c, key, nil
}

// taken are the fields of an event: custom arguments stand beside them.
var taken = []string{
	"email", "timestamp", "event", "sg_event_id", "sg_message_id", "smtp-id", "category", "reason", "response", "status", "type", "attempt",
	"url", "useragent", "ip", "tls", "cert_err", "asm_group_id",
}

// publicKey reads a SubjectPublicKeyInfo in base64.
func publicKey(s string) (*ecdsa.PublicKey, error) {
	der, err := base64.StdEncoding.DecodeString(strings.TrimSpace(s))
	if err != nil {
		return nil, errors.New("is not base64")
	}
	any, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil, errors.New("is no public key")
	}
	key, ok := any.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("is no key of P-256")
	}
	return key, nil
}
