package smtp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

// Config is one account at one server. Addr is required. Fields that are zero
// mean what stands with them.
type Config struct {
	// Name is the provider's stable name, as routes use it; empty means
	// "smtp".
	Name string
	// Account identifies the account at the server; empty means Name.
	Account string
	// Addr is the server, "mail.example:587". Without a port it is 587, or 465
	// with ImplicitTLS. The server's certificate must name the host.
	Addr string
	// ImplicitTLS speaks TLS from the first byte (RFC 8314, port 465).
	ImplicitTLS bool
	// Plaintext does without TLS. By default STARTTLS (RFC 3207) is required,
	// and a server that doesn't offer it is an account's fault: whoever sits on
	// the line could have taken it out of the offer. With a Username it works
	// for the loopback only.
	Plaintext bool
	// Username and Password are used with AUTH PLAIN, or LOGIN where the server
	// offers no PLAIN. Both empty, no AUTH is made.
	Username string
	Password string `json:"-"`
	// From is the sender of mails whose route names none: "Shop
	// <no-reply@shop.example>".
	From string
	// ReturnPath is where bounces go, the envelope's sender; empty means to the
	// mail's sender.
	ReturnPath string
	// Hello is how this client names itself, a domain of its own; empty means
	// the literal of the address that it connects from, "[192.0.2.1]".
	Hello string
	// Connect bounds DNS, dial and TLS handshake together: 10 s.
	Connect time.Duration
	// Step bounds each answer before the final dot, and each 16 KiB of the
	// mail on their way into the socket: 1 min. RFC 5321 section 4.5.3.2 waits
	// up to 5 min; too short a time costs a repeat here, never a second mail.
	Step time.Duration
	// Transfer bounds everything before the final dot together, the wait for a
	// free connection included: 5 min.
	Transfer time.Duration
	// Accept bounds the answer to the final dot: 10 min, as RFC 5321 section
	// 4.5.3.2.6 has it. Each mail that a server takes later than this is an
	// unknown. The attempt's context may end the wait earlier.
	Accept time.Duration
	// Idle is how long an unused connection is kept: 30 s.
	Idle time.Duration
	// MaxConns bounds the connections at a time, idle ones included: 10.
	MaxConns int
	// TLS is cloned; nil means the system's roots and TLS 1.2 or later.
	TLS *tls.Config `json:"-"`
	// Dial opens a connection; nil means a net.Dialer. It must return when its
	// context ends, and what it returns must count written bytes truly: they
	// are the proof that nothing was sent.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error) `json:"-"`
}

// String shows name and account.
func (c Config) String() string { return "smtp " + c.Name + "/" + c.Account }

// Format prints what String does, with every verb: no secret slips into a log.
func (c Config) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// LogValue shows what String does, in fields.
func (c Config) LogValue() slog.Value {
	return slog.GroupValue(slog.String("name", c.Name), slog.String("account", c.Account))
}

func (c Config) checked() (Config, error) {
	if c.Name == "" {
		c.Name = "smtp"
	}
	if c.Account == "" {
		c.Account = c.Name
	}
	if err := dispatch.ValidName(c.Name); err != nil {
		return c, fmt.Errorf("smtp: Name %w", err)
	}
	if err := (dispatch.Contract{Name: c.Name, Account: c.Account}).Validate(); err != nil {
		return c, errors.New("smtp: Account is too long or no single line")
	}
	if err := c.checkServer(); err != nil {
		return c, err
	}
	if c.From != "" {
		if _, err := parseSender(c.From); err != nil {
			return c, fmt.Errorf("smtp: From %w", err)
		}
	}
	if c.ReturnPath != "" {
		if _, err := parseMailbox(c.ReturnPath); err != nil {
			return c, fmt.Errorf("smtp: ReturnPath %w", err)
		}
	}
	return c, c.checkBounds()
}

func (c *Config) checkServer() error {
	port := "587"
	if c.ImplicitTLS {
		port = "465"
	}
	host, given, err := net.SplitHostPort(c.Addr)
	if err != nil { // without a port
		host, given = strings.Trim(c.Addr, "[]"), port
	}
	if host == "" || given == "" || strings.ContainsFunc(host+given, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("/@[]", r) }) {
		return errors.New("smtp: Addr is no host and port")
	}
	c.Addr = net.JoinHostPort(host, given)
	switch {
	case c.ImplicitTLS && c.Plaintext:
		return errors.New("smtp: ImplicitTLS and Plaintext exclude each other")
	case (c.Username == "") != (c.Password == ""):
		return errors.New("smtp: Username and Password go together")
	case strings.ContainsRune(c.Username+c.Password, 0):
		return errors.New("smtp: Username or Password has a NUL")
	case c.Plaintext && c.Username != "" && !loopback(host):
		return errors.New("smtp: Plaintext would show the password to everyone on the line")
	case c.Hello != "" && (len(c.Hello) > 255 || strings.ContainsFunc(c.Hello, func(r rune) bool { return r <= ' ' || r > '~' })):
		return errors.New("smtp: Hello is no domain in ASCII")
	}
	if c.TLS == nil {
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	} else {
		c.TLS = c.TLS.Clone()
	}
	if c.TLS.ServerName == "" {
		c.TLS.ServerName = host
	}
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
	return nil
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

func (c *Config) checkBounds() error {
	for _, f := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"Connect", &c.Connect, 10 * time.Second},
		{"Step", &c.Step, time.Minute},
		{"Transfer", &c.Transfer, 5 * time.Minute},
		{"Accept", &c.Accept, 10 * time.Minute},
		{"Idle", &c.Idle, 30 * time.Second},
	} {
		if *f.value < 0 || *f.value > 30*time.Minute {
			return fmt.Errorf("smtp: %s is %v, want 0 to 30m", f.name, *f.value)
		}
		if *f.value == 0 {
			*f.value = f.def
		}
	}
	if c.MaxConns < 0 || c.MaxConns > 1000 {
		return fmt.Errorf("smtp: MaxConns is %d, want 0 to 1000", c.MaxConns)
	}
	if c.MaxConns == 0 {
		c.MaxConns = 10
	}
	return nil
}

// parseSender reads a sender as it is registered.
func parseSender(s string) (dispatch.Address, error) {
	a, err := mailapi.ParseSender(s)
	if err != nil {
		return a, err
	}
	_, err = parseMailbox(a.Email)
	return a, err
}
