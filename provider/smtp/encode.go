package smtp

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

// Check says what keeps a mail from going over SMTP, before it is enqueued: a
// *dispatch.FieldError, or nil. Send refuses the same mails without calling
// the server. What a server offers is known at the send only: its limit of
// size, and whether it takes addresses whose local part isn't ASCII.
func Check(m dispatch.Email) error {
	if m.Template.ID != "" {
		return mailapi.Field("Content.Template", "can't be rendered: a mail server has no templates")
	}
	for n, a := range m.Attachments {
		if !printable(a.ContentID) {
			return mailapi.Field("Content.Attachments["+strconv.Itoa(n)+"]", "content id has a character that is not ASCII")
		}
	}
	for _, l := range lists(m) {
		for n, a := range l.list {
			if _, err := parseMailbox(a.Email); err != nil {
				return mailapi.Field("Content."+l.name+"["+strconv.Itoa(n)+"]", err.Error())
			}
		}
	}
	return nil
}

type list struct {
	name, header string
	list         []dispatch.Address
}

// lists are the mail's addresses. BCC has no header.
func lists(m dispatch.Email) []list {
	return []list{{"To", "To", m.To}, {"CC", "Cc", m.CC}, {"BCC", "", m.BCC}, {"ReplyTo", "Reply-To", m.ReplyTo}}
}

// mail is a message as it is sent. It is a value; nothing in it is changed.
type mail struct {
	id     string // Message-ID without brackets
	from   mailbox
	to     []mailbox // each once
	utf8   bool      // an address in it, or in its header, needs SMTPUTF8
	data   []byte    // lines end in CRLF, the last one too; dots are not stuffed
	digest []byte
}

// encode builds the mail. Its error is a fault. The same envelope gives the
// same bytes: ids and boundaries come from the key, the date from the stored
// intent, and nothing from a clock or the attempt.
func (p *Provider) encode(e dispatch.Envelope) (mail, error) {
	c, err := mailapi.Mail(e)
	if err != nil {
		return mail{}, err
	}
	// What an enqueue refuses is refused here too, line breaks in a header or
	// an address above all: an envelope needn't come from an outbox.
	if _, err := (dispatch.Intent{Key: e.Key, Content: c}).Normalize(); err != nil {
		return mail{}, mailapi.Unfit(err)
	}
	if err := Check(c); err != nil {
		return mail{}, mailapi.Unfit(err)
	}
	sender, from, err := p.sender(e.From)
	if err != nil {
		return mail{}, err
	}
	m := mail{id: e.Key.String() + "@" + from.domain(), from: from, utf8: from.utf8()}
	if p.cfg.ReturnPath != "" {
		m.from, _ = parseMailbox(p.cfg.ReturnPath) // New has read it
		m.utf8 = m.utf8 || m.from.utf8()
	}
	var b bytes.Buffer
	put := func(name, value string) { b.WriteString(name + ": " + fold(name, value) + "\r\n") }
	if date := created(e); !date.IsZero() {
		put("Date", date.UTC().Format("Mon, 02 Jan 2006 15:04:05 -0700"))
	}
	put("From", mailapi.Standard(dispatch.Address{Name: sender.Name, Email: string(from)}))
	for _, l := range lists(c) {
		value := m.address(l)
		if l.header != "" && value != "" {
			put(l.header, value)
		}
	}
	put("Subject", text(c.Subject))
	put("Message-ID", "<"+m.id+">")
	for _, h := range c.Headers {
		put(h.Name, raw(h.Value))
	}
	put("MIME-Version", "1.0")
	body := (&writer{key: e.Key}).content(c)
	for _, name := range slices.Sorted(maps.Keys(body.header)) {
		b.WriteString(name + ": " + body.header.Get(name) + "\r\n") // folded already
	}
	b.WriteString("\r\n")
	if err := body.write(&b); err != nil {
		return mail{}, mailapi.Refuse(mailapi.Message("mail can't be encoded"), err)
	}
	if !bytes.HasSuffix(b.Bytes(), []byte("\r\n")) {
		b.WriteString("\r\n")
	}
	m.data = b.Bytes()
	m.digest = m.sum()
	return m, nil
}

// sender is the mail's sender, and as it is sent.
func (p *Provider) sender(registered string) (dispatch.Address, mailbox, error) {
	a, err := mailapi.From(registered, p.cfg.From)
	if err != nil {
		return a, "", err
	}
	box, err := parseMailbox(a.Email)
	if err != nil {
		return a, "", mailapi.Refuse(mailapi.Sender("sender is no mail address"), err)
	}
	return a, box, nil
}

// address adds a list to the envelope and returns it as a header has it. Check
// has read its addresses.
func (m *mail) address(l list) string {
	var out []string
	for _, a := range l.list {
		box, _ := parseMailbox(a.Email)
		m.utf8 = m.utf8 || box.utf8()
		if l.name != "ReplyTo" && !slices.Contains(m.to, box) {
			m.to = append(m.to, box)
		}
		out = append(out, mailapi.Standard(dispatch.Address{Name: a.Name, Email: string(box)}))
	}
	return strings.Join(out, ", ")
}

// created is the mail's date: when its intent was stored, or the time in a key
// that has one. Without either it is the server's to add (RFC 6409 section
// 8.1), since a clock would give other bytes each time.
func created(e dispatch.Envelope) time.Time {
	if e.Created.IsZero() && uuid.UUID(e.Key).Version() == 7 {
		return time.UnixMilli(int64(binary.BigEndian.Uint64(e.Key[:8]) >> 16))
	}
	return e.Created
}

// sum is the digest of what the server gets: envelope and mail.
func (m mail) sum() []byte {
	h := sha256.New()
	for _, s := range append([]string{"dispatch-smtp-1", string(m.from)}, boxes(m.to)...) {
		_, _ = h.Write(append([]byte(s), 0)) // a hash never fails; no address has a NUL
	}
	_, _ = h.Write(m.data) // see above
	return h.Sum(nil)
}

func boxes(list []mailbox) (out []string) {
	for _, m := range list {
		out = append(out, string(m))
	}
	return out
}

// unsent is the fault of a mail whose final dot did not leave.
func (m mail) unsent(cause dispatch.Cause, err error) error {
	e := dispatch.Evidence{Stage: dispatch.NotSent, Cause: cause, Request: m.digest}
	return &dispatch.Fault{Evidence: e, Verdict: dispatch.Classify(e), Err: err}
}
