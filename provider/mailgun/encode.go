package mailgun

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"mime/multipart"
	"net/textproto"
	"slices"
	"strings"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

// Limits that Mailgun documents.
const (
	maxMail    = 25 << 20 // "message size of up to 25 MB", attachments in base64
	maxTags    = 3        // o:tag
	maxOptions = 16_000   // "o:, h:, v: ... 16 kB in total"
)

// Check says what keeps a mail from going over Mailgun, before it is enqueued:
// a *dispatch.FieldError, or nil. Sizes count as they are sent, attachments in
// base64. Send refuses the same mails without calling Mailgun. Put
// it into a route's Checks.
//
// A template's Revision is the tag of one of its versions (t:version): a new
// text needs a version of its own, since Mailgun lets one be edited too.
func Check(c dispatch.Content) error {
	m, err := mailapi.Email(c)
	if err != nil {
		return err
	}
	if err := mailapi.Fits(m, maxMail, 0, 0); err != nil {
		return err
	}
	if err := mailapi.NoBody(m); err != nil {
		return err
	}
	if _, err := mailapi.Headers(m); err != nil {
		return err
	}
	if len(m.Tags) > maxTags {
		return mailapi.Field("Content.Tags", fmt.Sprintf("has %d tags, at most %d are taken", len(m.Tags), maxTags))
	}
	return nil
}

// form is a multipart form under construction.
type form struct {
	w       *multipart.Writer
	options int // bytes of o:, h: and v: fields
	err     error
}

func (f *form) add(name, value string) {
	if f.err == nil && value != "" {
		f.err = f.w.WriteField(name, value)
	}
	if len(name) > 2 && name[1] == ':' {
		f.options += len(name) + len(value)
	}
}

func (f *form) list(name string, addresses []dispatch.Address) {
	for _, a := range addresses {
		f.add(name, mailapi.Standard(a))
	}
}

// file adds a file. Its name is in UTF-8 as it is, with quotes escaped: a name
// as RFC 2231 has it is not read. An inline file's name is its content id.
func (f *form) file(a dispatch.Attachment) {
	if f.err != nil {
		return
	}
	field, name := "attachment", a.Name
	if a.ContentID != "" {
		field, name = "inline", a.ContentID
	}
	w, err := f.w.CreatePart(textproto.MIMEHeader{
		"Content-Disposition": {`form-data; name="` + field + `"; filename="` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name) + `"`},
		"Content-Type":        {a.Type},
	})
	if err == nil {
		_, err = w.Write(a.Data)
	}
	f.err = err
}

// encode builds the body of POST /v3/{domain}/messages and its type. The parts
// stand in a fixed order, and the boundary comes from the key: the same mail
// gives the same bytes.
func (p *Provider) encode(e dispatch.Envelope) (kind string, body []byte, err error) {
	m, err := mailapi.Mail(e)
	if err != nil {
		return "", nil, err
	}
	if err := Check(m); err != nil {
		return "", nil, mailapi.Unfit(err)
	}
	from, err := mailapi.From(e.From, p.cfg.From)
	if err != nil {
		return "", nil, err
	}
	var b bytes.Buffer
	f := &form{w: multipart.NewWriter(&b)}
	sum := sha256.Sum256([]byte("boundary of " + e.Key.String()))
	f.err = f.w.SetBoundary("dispatch" + hex.EncodeToString(sum[:20]))
	f.add("from", mailapi.Standard(from))
	f.list("to", m.To)
	f.list("cc", m.CC)
	f.list("bcc", m.BCC)
	f.add("subject", m.Subject)
	f.add("text", m.Text)
	f.add("html", m.HTML)
	if m.Template.ID != "" {
		f.template(m.Template)
	}
	f.add("h:Message-Id", "<"+p.messageID(e.Key)+">")
	f.add("h:Reply-To", strings.Join(mailapi.Map(m.ReplyTo, mailapi.Standard), ", "))
	for _, h := range m.Headers {
		f.add("h:"+h.Name, h.Value)
	}
	for _, t := range m.Tags {
		f.add("o:tag", t)
	}
	labels := mailapi.Labels(e, p.cfg.Metadata)
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		f.add("v:"+name, labels[name])
	}
	for _, a := range m.Attachments {
		f.file(a)
	}
	if f.options > maxOptions {
		return "", nil, mailapi.Unfit(mailapi.Field("Content.Headers", fmt.Sprintf("tags and metadata have %d bytes together, at most %d are taken", f.options, maxOptions)))
	}
	if f.err == nil {
		f.err = f.w.Close()
	}
	if f.err != nil {
		return "", nil, mailapi.Refuse(mailapi.Message("mail can't be encoded"), f.err)
	}
	return f.w.FormDataContentType(), b.Bytes(), nil
}

// template names template and version. Its values go out compact, so that the
// same ones give the same bytes.
func (f *form) template(t dispatch.ProviderTemplate) {
	f.add("template", t.ID)
	f.add("t:version", t.Revision)
	var data bytes.Buffer
	if len(t.Data) > 0 && f.err == nil {
		f.err = json.Compact(&data, t.Data)
	}
	f.add("t:variables", data.String())
}
