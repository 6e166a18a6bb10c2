package sinch

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
)

// Config is one service plan at Sinch. ServicePlanID and APIToken are
// required. Fields that are zero mean what stands with them.
type Config struct {
	// Name is the provider's stable name, as routes use it; empty means
	// "sinch".
	Name string
	// ServicePlanID is the plan, and the contract's account.
	ServicePlanID string
	// APIToken is sent as a bearer token.
	APIToken string `json:"-"`
	// Region is where the plan lives: "us", "eu", "br", "ca" or "au"; empty
	// means "us".
	Region string
	// BaseURL replaces the region's host, "https://us.sms.api.sinch.com".
	BaseURL string
	// From is the sender of messages whose route names none; empty means the
	// plan's default originator.
	From string
	// CallbackURL is where receipts of these messages go; empty means where
	// the plan says.
	CallbackURL string
	// WebhookSecret checks receipts, by HMAC. Sinch sets it on request.
	// Without it Webhook refuses every call.
	WebhookSecret string `json:"-"`
	// Replay is how old a signed call may be: 48 h, since Sinch repeats calls
	// for almost that long and doesn't say whether under a new time. A repeat
	// of a receipt changes nothing; older ones are refused, and so is a time
	// more than five minutes ahead.
	Replay time.Duration
	// Grace is how long an unknown message waits for its first receipt where
	// the look-up fails: 1 h.
	Grace time.Duration
	// Lag is how long a message may be missing in the list of batches: 15 min.
	// Sinch doesn't document it. A message that is absent after it is sent
	// again: take too much rather than too little.
	Lag time.Duration
	// Exchange bounds the HTTP exchange.
	Exchange exchange.Config `json:"-"`
}

// String shows name and plan.
func (c Config) String() string { return "sinch " + c.Name + "/" + c.ServicePlanID }

// Format prints what String does, with every verb: no secret slips into a log.
func (c Config) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// LogValue shows what String does, in fields.
func (c Config) LogValue() slog.Value {
	return slog.GroupValue(slog.String("name", c.Name), slog.String("account", c.ServicePlanID))
}

func (c Config) withDefaults() Config {
	for _, field := range []*string{&c.ServicePlanID, &c.APIToken, &c.WebhookSecret, &c.From} {
		*field = strings.TrimSpace(*field)
	}
	if c.Name == "" {
		c.Name = "sinch"
	}
	if c.Region == "" {
		c.Region = "us"
	}
	if c.BaseURL == "" {
		c.BaseURL = "https://" + c.Region + ".sms.api.sinch.com"
	}
	c.BaseURL = strings.TrimSuffix(c.BaseURL, "/")
	for field, def := range map[*time.Duration]time.Duration{&c.Replay: 48 * time.Hour, &c.Grace: time.Hour, &c.Lag: 15 * time.Minute} {
		if *field == 0 {
			*field = def
		}
	}
	return c
}

var (
	plan   = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	region = regexp.MustCompile(`^[a-z]{2}$`)
)

func (c *Config) validate() error {
	if err := dispatch.ValidName(c.Name); err != nil {
		return fmt.Errorf("sinch: Name %w", err)
	}
	switch {
	case !plan.MatchString(c.ServicePlanID):
		return errors.New("sinch: ServicePlanID is missing or no plan's")
	case c.APIToken == "":
		return errors.New("sinch: APIToken is missing")
	case !region.MatchString(c.Region):
		return errors.New("sinch: Region is not two letters")
	case c.Replay < time.Minute || c.Replay > 30*24*time.Hour:
		return errors.New("sinch: Replay is not between 1 minute and 30 days")
	case c.Grace < 0 || c.Lag < 0:
		return errors.New("sinch: Grace or Lag is negative")
	}
	for _, f := range []struct {
		name string
		r    exchange.Request
	}{
		{"BaseURL", exchange.Request{URL: c.BaseURL}},
		{"APIToken", exchange.Request{URL: c.BaseURL, Auth: http.Header{"Authorization": {"Bearer " + c.APIToken}}}},
	} {
		if _, err := f.r.Digest(); err != nil {
			return fmt.Errorf("sinch: %s: %w", f.name, err)
		}
	}
	if c.CallbackURL != "" {
		if _, err := exchange.ParseURL(c.CallbackURL); err != nil {
			return fmt.Errorf("sinch: CallbackURL: %w", err)
		}
	}
	return nil
}
