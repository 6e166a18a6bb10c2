package vonage

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
)

// API is which of Vonage's two APIs is used.
type API int8

// The APIs. The zero value is Messages.
const (
	Messages API = 0 // Messages API v1, POST /v1/messages
	SMS      API = 1 // the older SMS API, POST /sms/json
)

// Signature is how the account signs receipts of the SMS API, as it is set in
// Vonage's dashboard. The Messages API always signs by HMAC-SHA256.
type Signature int8

// The ways to sign. The zero value is HMACSHA256.
const (
	HMACSHA256 Signature = iota
	HMACSHA512
	HMACSHA1
	HMACMD5
	MD5Hash // the secret behind the text, hashed by MD5
)

// Config is one account at Vonage. APIKey is required, and either APISecret
// or ApplicationID with PrivateKey. Fields that are zero mean what stands
// with them.
type Config struct {
	// Name is the provider's stable name, as routes use it; empty means
	// "vonage".
	Name string
	// API is which API is used: Messages.
	API API
	// APIKey names the account, eight characters from the dashboard. It is
	// the contract's account, and receipts of another are refused.
	APIKey string
	// APISecret is the key's secret, for Basic authentication.
	APISecret string `json:"-"`
	// ApplicationID and PrivateKey authenticate by JWT (RS256), which only the
	// Messages API takes; receipts then go to the application's webhook. The
	// key is the PEM block that Vonage made, PKCS#8 or PKCS#1, of at least
	// 2048 bits.
	ApplicationID string
	PrivateKey    []byte `json:"-"`
	// SignatureSecret checks receipts. Without it Webhook refuses every call,
	// and an unknown message waits for none.
	SignatureSecret string `json:"-"`
	// Signature is how receipts of the SMS API are signed. Vonage's support
	// switches it on.
	Signature Signature
	// Replay is how old a signed call may be: 25 h, since Vonage repeats calls
	// for 24 h and doesn't say whether under a new time. A repeat of a receipt
	// changes nothing; older ones are refused, and so is a time more than five
	// minutes ahead.
	Replay time.Duration
	// Grace is how long an unknown message waits for its first receipt: 1 h.
	// Vonage says that most final states come within minutes.
	Grace time.Duration
	// From is the sender of messages whose route names none: digits, or up to
	// 11 letters and digits. Both APIs need one.
	From string
	// CallbackURL is where receipts of these messages go; empty means where
	// the account or application says. https, at most 100 characters in the
	// SMS API.
	CallbackURL string
	// TTL is how long Vonage tries to deliver: 72 h. From 20 s to 168 h. It is
	// the same for each message, since a repeat must have the same bytes.
	TTL time.Duration
	// EntityID and ContentID are what some countries' regulations want.
	EntityID, ContentID string
	// ReportLag switches the look-up on, which asks the Reports API: a paid
	// product, with Basic authentication. It is how long a message may be
	// missing there. Vonage doesn't document it: find it out for the account,
	// and take too much rather than too little, since a message that is absent
	// after it is sent again. Zero means no look-up.
	ReportLag time.Duration
	// BaseURL is "https://api.nexmo.com" for Messages; regional hosts begin
	// with api-eu, api-us and api-ap. "https://rest.nexmo.com" for SMS.
	BaseURL string
	// ReportsURL is where reports are: "https://api.nexmo.com".
	ReportsURL string
	// Exchange bounds the HTTP exchange.
	Exchange exchange.Config `json:"-"`
}

// String shows name and account.
func (c Config) String() string { return "vonage " + c.Name + "/" + c.APIKey }

// Format prints what String does, with every verb: no secret slips into a log.
func (c Config) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// LogValue shows what String does, in fields.
func (c Config) LogValue() slog.Value {
	return slog.GroupValue(slog.String("name", c.Name), slog.String("account", c.APIKey))
}

func (c Config) withDefaults() Config {
	for field, def := range map[*string]string{
		&c.Name: "vonage", &c.ReportsURL: "https://api.nexmo.com",
		&c.BaseURL: map[API]string{Messages: "https://api.nexmo.com", SMS: "https://rest.nexmo.com"}[c.API],
	} {
		if *field == "" {
			*field = def
		}
	}
	for _, field := range []*string{&c.APIKey, &c.APISecret, &c.ApplicationID, &c.SignatureSecret, &c.From} {
		*field = strings.TrimSpace(*field)
	}
	c.BaseURL, c.ReportsURL = strings.TrimSuffix(c.BaseURL, "/"), strings.TrimSuffix(c.ReportsURL, "/")
	if c.Replay == 0 {
		c.Replay = 25 * time.Hour
	}
	if c.Grace == 0 {
		c.Grace = time.Hour
	}
	return c
}

// Limits that Vonage documents.
const (
	minTTL      = 20 * time.Second // SMS API 1.5.1, ttl
	maxTTL      = 168 * time.Hour  // the same
	maxCallback = 100              // SMS API 1.5.1, callback
	maxText     = 1000             // Messages API 1.20.0, text
)

func (c *Config) validate() error {
	if err := dispatch.ValidName(c.Name); err != nil {
		return fmt.Errorf("vonage: Name %w", err)
	}
	switch {
	case c.API != Messages && c.API != SMS:
		return errors.New("vonage: API is unknown")
	case c.Signature < 0 || c.Signature > MD5Hash:
		return errors.New("vonage: Signature is unknown")
	case c.APIKey == "" || len(c.APIKey) > 40 || strings.ContainsFunc(c.APIKey, func(r rune) bool { return r <= ' ' || r > '~' || r == ':' }):
		return errors.New("vonage: APIKey is missing or no key")
	case (c.ApplicationID == "") != (len(c.PrivateKey) == 0):
		return errors.New("vonage: ApplicationID and PrivateKey go together")
	case c.API == SMS && c.APISecret == "":
		return errors.New("vonage: APISecret is missing, the SMS API has no other authentication")
	case c.APISecret == "" && c.ApplicationID == "":
		return errors.New("vonage: APISecret or ApplicationID and PrivateKey are missing")
	case c.ReportLag != 0 && c.APISecret == "":
		return errors.New("vonage: ReportLag needs APISecret, the Reports API has no other authentication")
	case c.Replay < time.Minute || c.Replay > 30*24*time.Hour:
		return errors.New("vonage: Replay is not between 1 minute and 30 days")
	case c.Grace < 0 || c.ReportLag < 0:
		return errors.New("vonage: Grace or ReportLag is negative")
	case c.TTL != 0 && (c.TTL < minTTL || c.TTL > maxTTL):
		return fmt.Errorf("vonage: TTL is not between %v and %v", minTTL, maxTTL)
	}
	if _, err := number(c.From); c.From != "" && err != nil {
		return fmt.Errorf("vonage: From %w", err)
	}
	return c.validateURLs()
}

// validateURLs makes the requests that Send and Lookup will, as far as they
// are the same for each message: what fails at every send fails here.
func (c *Config) validateURLs() error {
	for _, f := range []struct {
		name string
		r    exchange.Request
	}{
		{"BaseURL", exchange.Request{URL: c.BaseURL}},
		{"ReportsURL", exchange.Request{URL: c.ReportsURL}},
		{"APISecret", exchange.Request{URL: c.BaseURL, Auth: http.Header{"X": {c.APISecret}}}},
		{"ApplicationID", exchange.Request{URL: c.BaseURL, Auth: http.Header{"X": {c.ApplicationID}}}},
	} {
		if _, err := f.r.Digest(); err != nil {
			return fmt.Errorf("vonage: %s: %w", f.name, err)
		}
	}
	if c.CallbackURL == "" {
		return nil
	}
	if _, err := exchange.ParseURL(c.CallbackURL); err != nil {
		return fmt.Errorf("vonage: CallbackURL: %w", err)
	}
	if c.API == SMS && len(c.CallbackURL) > maxCallback {
		return fmt.Errorf("vonage: CallbackURL has %d characters, at most %d fit", len(c.CallbackURL), maxCallback)
	}
	return nil
}

// privateKey reads the application's key. Its errors don't quote it.
func privateKey(b []byte) (*rsa.PrivateKey, error) {
	block, _ := pem.Decode(b)
	if block == nil {
		return nil, errors.New("vonage: PrivateKey is not PEM")
	}
	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		other, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			return nil, errors.New("vonage: PrivateKey is neither PKCS#8 nor PKCS#1")
		}
		is := false
		if key, is = other.(*rsa.PrivateKey); !is {
			return nil, errors.New("vonage: PrivateKey is not an RSA key")
		}
	}
	if key.N.BitLen() < 2048 {
		return nil, errors.New("vonage: PrivateKey has less than 2048 bits")
	}
	return key, nil
}
