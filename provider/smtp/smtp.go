// Package smtp is a provider for mail over a server that speaks SMTP: a
// submission service, a relay, or one's own.
//
//	p, err := smtp.New(smtp.Config{Addr: "mail.example:587", Username: "shop", Password: secret})
//
// # What can be known after a lost answer
//
// A server takes a mail with its answer to the line with a single dot that
// ends it. What fails before the dot could leave was not accepted, and may go
// again. What fails between the dot and its answer may have been accepted, and
// stays unknown: SMTP has no key by which a server would know a mail again, no
// look-up, and no event for acceptance. So it is held, unless the policy says
// otherwise (dispatch.OnUnknown). What fails after the answer changes nothing.
// RFC 5321 has clients send again in that case (sections 3.8 and 4.5.3.2.6,
// which admits the copies); this package doesn't.
//
// A mail is one message for all its recipients: when the server refuses one of
// them, nothing is sent.
//
// # Policies
//
// A server that greylists, or that is full, says so with a 4yz answer and
// names no time. It wants minutes (RFC 5321 section 4.5.4.1), so let the
// route's policy wait longer than the default does: a Backoff with Base 1 min
// and Cap 30 min, say. An attempt may take long, by default 5 minutes up to
// the dot and 10 behind it, and a worker's lease is twice that.
//
// # What a mail carries
//
// Its Message-ID is our key at the sender's domain, the same in each attempt.
// BCC recipients stand in the envelope alone. An intent's tags and metadata,
// which are for a vendor and not for a reader, stay behind. Mail is not
// signed (DKIM): that is the server's to do.
//
// # Sources
//
// RFC 5321 (SMTP), 1870 (SIZE), 3207 (STARTTLS), 4954 (AUTH), 6409
// (submission), 6531 (SMTPUTF8), 8314 (implicit TLS); 3463, 5248, 7372 and
// 7505 (enhanced status codes); 5322, 2045 to 2047, 2231, 2387 and 6532 (the
// mail itself).
package smtp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/seed-8098fbb7/dispatch"
)

// encoding is the version of encode.
const encoding = 1

// Provider sends through one account at one server. It is safe for concurrent
// use; a goroutine of its own has only a goodbye to a server, which ends within
// a second. Its zero value can't be used: make it with New.
type Provider struct {
	dispatch.NoLookup

	cfg   Config
	slots chan struct{}
	pool  pool
}

// New checks the configuration. It doesn't connect. Its error names the field
// and quotes no value.
func New(cfg Config) (*Provider, error) {
	cfg, err := cfg.checked()
	if err != nil {
		return nil, err
	}
	return &Provider{cfg: cfg, slots: make(chan struct{}, cfg.MaxConns), pool: pool{limit: cfg.MaxConns, stay: cfg.Idle}}, nil
}

// Close says goodbye on the idle connections. Sends under way are not
// disturbed, and later ones still work.
func (p *Provider) Close() { p.pool.close() }

// String shows name and account.
func (p *Provider) String() string { return p.cfg.String() }

// Format prints what String does, with every verb.
func (p *Provider) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, p.String()) }

// LogValue shows what String does.
func (p *Provider) LogValue() slog.Value { return p.cfg.LogValue() }

// Contract is what SMTP promises, which is nothing about a mail whose answer
// was lost.
func (p *Provider) Contract() dispatch.Contract {
	return dispatch.Contract{
		Name: p.cfg.Name, Account: p.cfg.Account, Encoding: encoding, Timeout: p.cfg.Transfer + p.cfg.Accept,
		Dedupe: dispatch.Dedupe{Source: "none: a Message-ID names a mail (RFC 5322 section 3.6.4), no server has to look at it"},
		Search: dispatch.Search{Source: "none: SMTP has no command for it"},
		Echo:   dispatch.Echo{Source: "none: a bounce (RFC 3464) is mail to the envelope's sender, and nothing reports acceptance"},
	}
}

// Send makes one mail transaction. A nil error is the server's 2yz answer to
// the final dot, which takes the responsibility for the mail (RFC 5321 section
// 4.2.5); its ID is the mail's Message-ID without brackets. It returns when ctx
// ends, and closes the connection hard then.
//
// A kept connection that turns out dead, or closed by its server, before the
// server has taken the first command on it is replaced by a fresh one at once;
// nothing else is ever tried twice.
func (p *Provider) Send(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
	m, err := p.encode(e)
	if err != nil {
		return dispatch.Accepted{}, err
	}
	if len(e.Replay) > 0 && !bytes.Equal(e.Replay, m.digest) {
		return dispatch.Accepted{}, m.unsent(dispatch.CauseChanged, errors.New("mail differs from the one before"))
	}
	limit := time.Now().Add(p.cfg.Transfer)
	if cause, err := p.acquire(ctx, limit); err != nil {
		return dispatch.Accepted{}, m.unsent(cause, err)
	}
	defer func() { <-p.slots }()

	if c := p.pool.take(); c != nil {
		a, err := p.deliver(ctx, c, m, limit)
		if !errors.Is(err, errStale) || ctx.Err() != nil {
			return a, err
		}
	}
	c, t := p.dial(ctx, limit)
	if t != nil {
		return dispatch.Accepted{}, m.fault(ctx, t)
	}
	return p.deliver(ctx, c, m, limit)
}

// acquire waits for one of the connections that may be open at a time.
func (p *Provider) acquire(ctx context.Context, limit time.Time) (dispatch.Cause, error) {
	if err := ctx.Err(); err != nil {
		return dispatch.CauseDeadline, err
	}
	t := time.NewTimer(time.Until(limit))
	defer t.Stop()
	select {
	case p.slots <- struct{}{}:
		return dispatch.CauseNone, nil
	case <-t.C:
		return dispatch.CausePool, errors.New("no connection came free")
	case <-ctx.Done():
		return dispatch.CauseDeadline, ctx.Err()
	}
}

// deliver makes the transaction on c, and keeps c for the next one where
// nothing speaks against it.
func (p *Provider) deliver(ctx context.Context, c *conn, m mail, limit time.Time) (dispatch.Accepted, error) {
	stop := context.AfterFunc(ctx, c.abort)
	r, t := c.transact(m, limit, p.cfg.Accept)
	if stop() && c.clean {
		p.pool.put(c)
	} else {
		c.abort()
	}
	if t != nil {
		return dispatch.Accepted{}, m.fault(ctx, t)
	}
	return dispatch.Accepted{ID: m.id, Status: r.status(), Evidence: m.answered(r)}, nil
}
