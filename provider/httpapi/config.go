package httpapi

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
)

// Config says where an API is and what it promises. Only Name and BaseURL are
// required; what the vendor doesn't document stays zero, which is always safe.
type Config struct {
	// Name is the provider's stable name, as routes use it.
	Name string
	// Account identifies the account at the vendor; empty means Name. Change
	// it with the account: keys and look-ups of one prove nothing about
	// another.
	Account string
	// BaseURL is scheme, host and any prefix: "https://api.acme.example".
	BaseURL string
	// Path is where messages are posted; empty means "/v1/messages".
	Path string
	// Token is sent as "Authorization: Bearer"; empty sends none. Blanks and
	// line ends around it are removed.
	Token string `json:"-"`
	// Header has further constant fields. They belong to the message: an
	// uncertain one is not repeated under other values.
	Header http.Header `json:"-"`

	// Body builds the JSON body. It must be pure: the same envelope must give
	// the same bytes. Nil means {"to", "body"} and "from" where it is set; for
	// mail {"to", "subject", "text", "html"} and so on, without attachments,
	// headers and templates.
	Body func(dispatch.Envelope) (any, error) `json:"-"`
	// Encoding is the version of Body, to be raised when it changes; zero
	// means 1.
	Encoding int16

	// Window is how long the vendor remembers a key from its first use. Zero
	// means that it doesn't dedupe, and no key is sent.
	Window time.Duration
	// SendKey sends the key although Window is zero.
	SendKey bool
	// KeyHeader is the key's field; empty means "Idempotency-Key".
	KeyHeader string
	// QuoteKey sends the key as a quoted string, as the IETF's draft has it.
	QuoteKey bool
	// BindsBody tells that the same key with another body is refused.
	BindsBody bool
	// RefusalProves tells that the vendor looks for the key before it
	// validates; see dispatch.Contract. It needs a Window.
	RefusalProves bool
	// InFlight are the error codes for "the first request with this key is
	// not done"; nil means concurrent_idempotent_requests,
	// idempotency_key_in_use and request_in_progress.
	InFlight []string
	// Reused are the error codes for "this key came with another body"; nil
	// means idempotency_key_reused, invalid_idempotent_request,
	// idempotency_mismatch and idempotency_error.
	Reused []string

	// Success are the statuses that mean "accepted"; nil means every 2xx.
	Success []int
	// BodyDecides tells that a success status alone doesn't mean "accepted":
	// without a readable id the outcome is unknown.
	BodyDecides bool
	// IDPath is where the id lies in the answer: names and list indices with
	// dots between, "messages.0.id"; empty means "id".
	IDPath string
	// StatusPath is where the vendor's word lies; empty means "status".
	StatusPath string
	// CodePaths are where an error code may lie, the first hit counts; nil
	// means "code", "error.code", "name".
	CodePaths []string
	// Codes are verdicts on the vendor's codes, also for a success status;
	// what isn't listed goes by dispatch.Classify.
	Codes dispatch.Codes

	// LookupPath is where a message is asked for, with "{key}" in it:
	// "/v1/messages/{key}". The answer is read like that of a send: an id
	// means that the message is there, a 404 with an error code that it isn't,
	// anything else nothing. Empty means that there is none.
	LookupPath string
	// Lag is how long an accepted message may be missing there.
	Lag time.Duration

	// Exchange bounds the HTTP exchange; zero means its defaults.
	Exchange exchange.Config `json:"-"`
}

// String shows name and account.
func (c Config) String() string { return "httpapi " + c.Name + "/" + c.Account }

// GoString is String: the token stays out of %#v too.
func (c Config) GoString() string { return c.String() }

// LogValue shows what String does, in fields.
func (c Config) LogValue() slog.Value {
	return slog.GroupValue(slog.String("name", c.Name), slog.String("account", c.Account))
}

func (c *Config) sendsKey() bool { return c.Window > 0 || c.SendKey }

func (c Config) withDefaults() (Config, error) {
	if err := dispatch.ValidName(c.Name); err != nil {
		return c, fmt.Errorf("httpapi: Name %w", err)
	}
	c.Token = strings.TrimSpace(c.Token)
	c.BaseURL = strings.TrimSuffix(c.BaseURL, "/")
	for field, def := range map[*string]string{
		&c.Account: c.Name, &c.Path: "/v1/messages", &c.KeyHeader: "Idempotency-Key", &c.IDPath: "id", &c.StatusPath: "status",
	} {
		if *field == "" {
			*field = def
		}
	}
	if c.Encoding == 0 {
		c.Encoding = 1
	}
	if c.Body == nil {
		c.Body = defaultBody
	}
	if c.InFlight == nil {
		c.InFlight = []string{"concurrent_idempotent_requests", "idempotency_key_in_use", "request_in_progress"}
	}
	if c.Reused == nil {
		c.Reused = []string{"idempotency_key_reused", "invalid_idempotent_request", "idempotency_mismatch", "idempotency_error"}
	}
	if c.CodePaths == nil {
		c.CodePaths = []string{"code", "error.code", "name"}
	}
	header := http.Header{"Accept": {"application/json"}}
	for name, values := range c.Header {
		header[http.CanonicalHeaderKey(name)] = values
	}
	c.Header = header
	return c, c.validate()
}

func (c *Config) validate() error {
	switch {
	case !strings.HasPrefix(c.Path, "/"):
		return errors.New("httpapi: Path doesn't begin with /")
	case c.Encoding < 0:
		return errors.New("httpapi: Encoding is negative")
	case c.Window < 0:
		return errors.New("httpapi: Window is negative")
	case c.Lag < 0:
		return errors.New("httpapi: Lag is negative")
	case c.RefusalProves && c.Window == 0:
		return errors.New("httpapi: RefusalProves needs a Window")
	case c.BindsBody && c.Window == 0:
		return errors.New("httpapi: BindsBody needs a Window")
	case c.LookupPath == "" && c.Lag != 0:
		return errors.New("httpapi: Lag needs a LookupPath")
	case c.LookupPath != "" && (!strings.HasPrefix(c.LookupPath, "/") || strings.Count(c.LookupPath, "{key}") != 1):
		return errors.New("httpapi: LookupPath needs / in front and {key} once")
	}
	for _, s := range c.Success {
		if s < 200 || s > 299 {
			return fmt.Errorf("httpapi: Success has %d, want 200 to 299", s)
		}
	}
	if _, err := exchange.ParseURL(c.BaseURL); err != nil {
		return fmt.Errorf("httpapi: BaseURL: %w", err)
	}
	return c.validateFields()
}

// validateFields makes the requests that Send and Lookup will, as far as they
// are the same for each message: what fails at every send fails here.
func (c *Config) validateFields() error {
	key := "00000000-0000-4000-8000-000000000000"
	for _, f := range []struct {
		name string
		r    exchange.Request
	}{
		{"Token", exchange.Request{URL: c.BaseURL, Auth: http.Header{"Authorization": {"Bearer " + c.Token}}}},
		{"Header", exchange.Request{URL: c.BaseURL, Header: c.Header}},
		{"KeyHeader", exchange.Request{URL: c.BaseURL, KeyHeader: c.KeyHeader, Key: key}},
		{"Path", exchange.Request{URL: c.BaseURL + c.Path}},
		{"LookupPath", exchange.Request{URL: c.BaseURL + strings.ReplaceAll(c.LookupPath, "{key}", key)}},
	} {
		if _, err := f.r.Digest(); err != nil {
			return fmt.Errorf("httpapi: %s: %w", f.name, err)
		}
	}
	return nil
}
