package postmark

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

// Config is one server at Postmark. ServerToken is required. Fields that are
// zero mean what stands with them.
type Config struct {
	// Name is the provider's stable name, as routes use it; empty means
	// "postmark".
	Name string
	// Account identifies the server; empty means Name. Change it with the
	// server, not with its token: another server knows nothing of these mails.
	Account string
	// ServerToken is the server's API token.
	ServerToken string `json:"-"`
	// MessageStream is the stream that mails go out on: "outbound".
	MessageStream string
	// From is the sender of mails whose route names none, a confirmed sender
	// signature or domain: "Shop <no-reply@shop.example>".
	From string
	// Metadata are the names of an intent's metadata that go out as Postmark's
	// metadata, at most 9, names of up to 20 and values of up to 80
	// characters. Our key goes out as dispatch_key in any case.
	Metadata []string
	// HookUser and HookPassword are the Basic credentials that the webhook is
	// configured with at Postmark; HookHeader and HookSecret are a custom
	// header of it and its value. One of the two is needed, and both are
	// checked where both are set: Postmark signs nothing. Without any, Webhook
	// refuses every call.
	HookUser, HookHeader     string
	HookPassword, HookSecret string `json:"-"`
	// Lag is how long a mail may be missing in the message search: 1 h.
	// Postmark doesn't document it. A mail that is absent after it is sent
	// again, so take too much rather than too little.
	Lag time.Duration
	// Retention is how long the server keeps mails in its search: 7 days,
	// which is the least that Postmark lets one choose, 45 days being its own
	// default. A mail that is older is never said to be absent.
	Retention time.Duration
	// Grace is how long an unknown mail waits for its first event: 1 h.
	// Postmark has none for acceptance; the first is delivery or bounce.
	Grace time.Duration
	// Suppressed, where set, is told of the recipients that Postmark will not
	// deliver to when it takes a mail for the others. Its answer to the send
	// is the only place that says so. An error of it is counted in Unread and
	// changes nothing: the mail was accepted.
	Suppressed dispatch.ReceiptSink `json:"-"`
	// BaseURL is "https://api.postmarkapp.com".
	BaseURL string
	// Exchange bounds the HTTP exchange; Write is 30 s, MaxBody 256 KiB.
	Exchange exchange.Config `json:"-"`
}

// String shows name and account.
func (c Config) String() string { return "postmark " + c.Name + "/" + c.Account }

// Format prints what String does, with every verb: no secret slips into a log.
func (c Config) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// LogValue shows what String does, in fields.
func (c Config) LogValue() slog.Value {
	return slog.GroupValue(slog.String("name", c.Name), slog.String("account", c.Account))
}

func (c Config) checked() (Config, error) {
	if err := (mailapi.Basics{
		Vendor: "postmark", Name: &c.Name, Account: &c.Account, BaseURL: &c.BaseURL, From: c.From, Labels: c.Metadata,
		Secrets: map[string]*string{"ServerToken": &c.ServerToken},
	}).Check("https://api.postmarkapp.com"); err != nil {
		return c, err
	}
	if c.MessageStream == "" {
		c.MessageStream = "outbound"
	}
	for field, def := range map[*time.Duration]time.Duration{&c.Lag: time.Hour, &c.Retention: 7 * 24 * time.Hour, &c.Grace: time.Hour} {
		if *field == 0 {
			*field = def
		}
	}
	switch {
	case !mailapi.Plain(c.MessageStream, "_-"):
		return c, errors.New("postmark: MessageStream has a character other than letters, digits, _ and -")
	case len(c.Metadata) >= maxMetadata:
		return c, fmt.Errorf("postmark: Metadata has %d names, at most %d fit", len(c.Metadata), maxMetadata-1)
	case c.Lag < 0 || c.Grace < 0:
		return c, errors.New("postmark: Lag or Grace is negative")
	case c.Retention <= c.Lag:
		return c, errors.New("postmark: Retention is not above Lag")
	case (c.HookUser == "") != (c.HookPassword == ""):
		return c, errors.New("postmark: HookUser and HookPassword go together")
	case (c.HookHeader == "") != (c.HookSecret == ""):
		return c, errors.New("postmark: HookHeader and HookSecret go together")
	case http.CanonicalHeaderKey(c.HookHeader) == "Authorization" || strings.ContainsAny(c.HookHeader, " :\r\n"):
		return c, errors.New("postmark: HookHeader is no custom header")
	}
	return c, nil
}

// guarded reports whether the webhook can tell Postmark from others.
func (c *Config) guarded() bool { return c.HookUser != "" || c.HookHeader != "" }
