package smtp

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

// errStale says that a kept connection was dead before its server had taken a
// command of the transaction.
var errStale = errors.New("kept connection is dead")

// trouble is why a dialogue ended without acceptance. Unless left is set, the
// final dot has provably not left, and nothing was accepted (RFC 5321 section
// 4.1.1.4: only the dot ends the mail).
type trouble struct {
	at      step
	reply   reply            // code 0: there was none
	cause   dispatch.Cause   // where there is no reply
	verdict dispatch.Verdict // of what was refused here; zero: by the others
	left    bool
	stale   bool
	err     error
}

func (t *trouble) Error() string { return "mail was not taken" }
func (t *trouble) Unwrap() error { return t.err }

func (t *trouble) Is(target error) bool { return target == errStale && t.stale }

func refusal(at step, r reply) *trouble {
	if c := r.class(); c != 4 && c != 5 { // an answer that can't answer this
		return &trouble{at: at, cause: dispatch.CauseBody, err: errProtocol}
	}
	return &trouble{at: at, reply: r}
}

// refuse is the trouble of what this side refuses.
func refuse(v dispatch.Verdict) *trouble { return &trouble{cause: dispatch.CauseLocal, verdict: v} }

// block is how much of a mail is written under one deadline.
const block = 16 << 10

// transact sends one mail and returns the answer to its final dot. All before
// it happens before limit.
func (c *conn) transact(m mail, limit time.Time, accept time.Duration) (reply, *trouble) {
	c.clean = true
	if err := c.fits(m); err != nil {
		return reply{}, err
	}
	c.clean = false
	kept := c.mails > 0
	c.mails++
	if err := c.open(m, limit); err != nil {
		err.stale = kept && (err.reply.code == 0 || err.reply.code == 421)
		c.refused(err)
		return reply{}, err
	}
	if err := c.envelope(m, limit); err != nil {
		c.refused(err)
		return reply{}, err
	}
	if err := c.body(m.data, limit); err != nil {
		return reply{}, err
	}
	r, err := c.end(accept)
	if err != nil {
		c.refused(err)
		return reply{}, err
	}
	c.clean, c.dirty = true, false
	return r, nil
}

// fits refuses a mail that the server says it can't take.
func (c *conn) fits(m mail) *trouble {
	if _, ok := c.offers["SMTPUTF8"]; m.utf8 && !ok {
		return refuse(mailapi.Sender("an address is not ASCII, and the server takes no such (SMTPUTF8)"))
	}
	// 0 is no fixed limit (RFC 1870 section 4), and so is what can't be read.
	if most, err := strconv.ParseInt(c.offers["SIZE"], 10, 64); err == nil && most > 0 && int64(len(m.data)) > most {
		return refuse(mailapi.Sender("mail has " + strconv.Itoa(len(m.data)) + " bytes, the server takes " + strconv.FormatInt(most, 10)))
	}
	return nil
}

// refused keeps a connection whose server has answered and goes on, and
// remembers that it may be in the middle of a transaction.
func (c *conn) refused(t *trouble) {
	c.clean, c.dirty = t.reply.code != 0 && t.reply.code != 421, true
}

// open begins the transaction.
func (c *conn) open(m mail, limit time.Time) *trouble {
	if c.dirty {
		r, err := c.command(atReset, limit, "RSET")
		if err != nil {
			return err
		}
		if r.class() != 2 {
			return &trouble{at: atReset, cause: dispatch.CauseConn, err: errProtocol}
		}
		c.dirty = false
	}
	from := "MAIL FROM:<" + string(m.from) + ">"
	if _, ok := c.offers["SIZE"]; ok {
		from += " SIZE=" + strconv.Itoa(len(m.data))
	}
	if m.utf8 {
		if _, ok := c.offers["8BITMIME"]; ok {
			from += " BODY=8BITMIME"
		}
		from += " SMTPUTF8"
	}
	return c.ask(atMail, 2, limit, from)
}

// envelope names the recipients and asks for the mail. One that is refused
// ends it: the mail goes to all or to none (B079).
func (c *conn) envelope(m mail, limit time.Time) *trouble {
	for _, to := range m.to {
		if err := c.ask(atRcpt, 2, limit, "RCPT TO:<"+string(to)+">"); err != nil {
			return err
		}
	}
	return c.ask(atData, 3, limit, "DATA")
}

// body writes the mail without its final dot.
func (c *conn) body(data []byte, limit time.Time) *trouble {
	data = bytes.ReplaceAll(data, []byte("\r\n."), []byte("\r\n..")) // RFC 5321 section 4.5.2
	if bytes.HasPrefix(data, []byte(".")) {
		data = append([]byte("."), data...)
	}
	for len(data) > 0 {
		n := min(block, len(data))
		if err := c.write(limit, string(data[:n])); err != nil {
			return c.lastWords(err)
		}
		data = data[n:]
	}
	// An answer before the end of the mail is not one to it: no dot follows.
	if !c.quiet() {
		return c.lastWords(errProtocol)
	}
	if !time.Now().Before(limit) {
		return &trouble{at: atBody, cause: dispatch.CauseDeadline, err: context.DeadlineExceeded}
	}
	return nil
}

// lastWords is the trouble of a mail that broke off before its end, with what
// the server may have said before it hung up.
func (c *conn) lastWords(err error) *trouble {
	if causeOf(err) == dispatch.CauseDeadline { // it neither reads nor talks
		return c.broken(atBody, err)
	}
	if t := c.read(atBody, 0, time.Now().Add(100*time.Millisecond)); t.reply.code != 0 {
		return t
	}
	return c.broken(atBody, err)
}

// end writes the final dot and waits for its answer. From its first byte on,
// only an answer tells what became of the mail.
func (c *conn) end(accept time.Duration) (reply, *trouble) {
	before := c.raw.out.Load()
	if err := c.write(time.Now().Add(accept), ".\r\n"); err != nil {
		t := c.broken(atDot, err)
		t.left = c.raw.out.Load() != before
		return reply{}, t
	}
	if err := c.stream.SetReadDeadline(time.Now().Add(accept)); err != nil {
		return reply{}, &trouble{at: atDot, cause: dispatch.CauseConn, left: true, err: err}
	}
	r, err := readReply(c.br)
	if err != nil {
		return reply{}, &trouble{at: atDot, cause: causeOf(err), left: true, err: err}
	}
	if r.class() == 2 {
		return r, nil
	}
	t := refusal(atDot, r)
	t.left = t.reply.code == 0
	return reply{}, t
}

// fault is the fault of what went wrong with the mail.
func (m mail) fault(ctx context.Context, t *trouble) error {
	if t.reply.code != 0 {
		return &dispatch.Fault{Evidence: m.answered(t.reply), Verdict: judge(t.at, t.reply), Err: t}
	}
	e := dispatch.Evidence{Stage: dispatch.NotSent, Cause: t.cause, Request: m.digest}
	if t.left {
		e.Stage = dispatch.MaybeSent
	}
	if ctx.Err() != nil && t.verdict.Reason == "" {
		e.Cause = dispatch.CauseDeadline
	}
	v := t.verdict
	if v.Reason == "" {
		v = dispatch.Classify(e)
	}
	return &dispatch.Fault{Evidence: e, Verdict: v, Err: t}
}

// answered is the evidence of an answer.
func (m mail) answered(r reply) dispatch.Evidence {
	return dispatch.Evidence{
		Stage: dispatch.Answered, Status: r.code, Code: r.enhanced, Reason: r.words(), OwnBody: true, Request: m.digest,
	}
}
