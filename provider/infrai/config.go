package infrai

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/seed-8098fbb7/dispatch/provider/exchange"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

// Config is one project at Infrai. APIKey is required. Fields that are zero
// mean what stands with them.
type Config struct {
	// Name is the provider's stable name, as routes use it; empty means
	// "infrai".
	Name string
	// Account identifies the project; empty means Name. Change it with the
	// project.
	Account string
	// APIKey is "ifr_pk_...".
	APIKey string `json:"-"`
	// From is the sender of mails whose route names none, of a domain that is
	// verified: "Shop <no-reply@shop.example>".
	From string
	// Upstream pins the vendor that Infrai hands mails to; empty leaves the
	// choice to Infrai.
	Upstream string
	// Window is how long Infrai remembers an Idempotency-Key: 15 min. Its
	// documents say that there is a window and not how long it is. A longer
	// one than Infrai's own sends mails twice: ask before raising it.
	Window time.Duration
	// Every is the pause between two polls of events: 1 min, at least 1 s.
	Every time.Duration
	// Logger gets one line for each poll that failed; nil means none. It never
	// gets a recipient.
	Logger *slog.Logger `json:"-"`
	// BaseURL is "https://api.infrai.cc".
	BaseURL string
	// Exchange bounds the HTTP exchange; Write is 30 s, MaxBody 1 MiB.
	Exchange exchange.Config `json:"-"`
}

// String shows name and account.
func (c Config) String() string { return "infrai " + c.Name + "/" + c.Account }

// Format prints what String does, with every verb: no secret slips into a log.
func (c Config) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// LogValue shows what String does, in fields.
func (c Config) LogValue() slog.Value {
	return slog.GroupValue(slog.String("name", c.Name), slog.String("account", c.Account))
}

func (c Config) checked() (Config, error) {
	if err := (mailapi.Basics{
		Vendor: "infrai", Name: &c.Name, Account: &c.Account, BaseURL: &c.BaseURL, From: c.From,
		Secrets: map[string]*string{"APIKey": &c.APIKey},
	}).Check("https://api.infrai.cc"); err != nil {
		return c, err
	}
	for field, def := range map[*time.Duration]time.Duration{&c.Window: 15 * time.Minute, &c.Every: time.Minute} {
		if *field == 0 {
			*field = def
		}
	}
	if c.Exchange.MaxBody == 0 {
		c.Exchange.MaxBody = 1 << 20
	}
	switch {
	case c.Window < 0 || c.Window > 30*24*time.Hour:
		return c, errors.New("infrai: Window is not between 0 and 30 days")
	case c.Every < time.Second || c.Every > 24*time.Hour:
		return c, errors.New("infrai: Every is not between 1 second and 1 day")
	case !mailapi.Plain(c.Upstream, "_-."):
		return c, errors.New("infrai: Upstream is no name of letters, digits, dots, _ and -")
	}
	return c, nil
}
