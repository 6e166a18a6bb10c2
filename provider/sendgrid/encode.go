package sendgrid

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

// Limits that SendGrid documents.
const (
	maxMail = 30_000_000 // "total size of your email ... must be less than 30MB", attachments in base64
	maxArgs = 10_000     // bytes of custom_args
)

// Check says what keeps a mail from going over SendGrid, before it is
// enqueued: a *dispatch.FieldError, or nil. Sizes count as they are sent,
// attachments in base64. Send refuses the same mails without calling SendGrid. Put
// it into a route's Checks.
func Check(c dispatch.Content) error {
	m, err := mailapi.Email(c)
	if err != nil {
		return err
	}
	if err := mailapi.Fits(m, maxMail, 0, 0); err != nil {
		return err
	}
	if err := mailapi.Unpinned(m); err != nil {
		return err
	}
	if m.Template.ID != "" && m.Subject != "" {
		return mailapi.Field("Content.Subject", "is the template's at this provider: it must be empty")
	}
	headers, err := mailapi.Headers(m)
	if err != nil {
		return err
	}
	for name := range headers {
		if strings.HasPrefix(strings.ToLower(name), "x-sg-") {
			return mailapi.Field("Content.Headers", "has a name that this provider owns")
		}
	}
	seen := map[string]bool{}
	for _, list := range [][]dispatch.Address{m.To, m.CC, m.BCC} {
		for _, a := range list {
			email := strings.ToLower(a.Email)
			if seen[email] {
				return mailapi.Field("Content.To", "and the copies name an address twice, which this provider refuses")
			}
			seen[email] = true
		}
	}
	tags := map[string]bool{}
	for n, t := range m.Tags {
		if tags[t] {
			return mailapi.Field(fmt.Sprintf("Content.Tags[%d]", n), "stands twice, which this provider refuses")
		}
		tags[t] = true
	}
	return nil
}

type address struct {
	Email string `json:"email"`
	Name  string `json:"name,omitempty"`
}

type personalization struct {
	To   []address       `json:"to"`
	CC   []address       `json:"cc,omitempty"`
	BCC  []address       `json:"bcc,omitempty"`
	Data json.RawMessage `json:"dynamic_template_data,omitempty"`
}

type content struct {
	Type  string `json:"type"`
	Value string `json:"value"`
}

type file struct {
	Data        string `json:"content"`
	Type        string `json:"type"`
	Name        string `json:"filename"`
	Disposition string `json:"disposition"`
	ID          string `json:"content_id,omitempty"`
}

type request struct {
	Personalizations []personalization `json:"personalizations"`
	From             address           `json:"from"`
	ReplyTo          []address         `json:"reply_to_list,omitempty"`
	Subject          string            `json:"subject,omitempty"`
	Content          []content         `json:"content,omitempty"`
	Attachments      []file            `json:"attachments,omitempty"`
	Template         string            `json:"template_id,omitempty"`
	Headers          map[string]string `json:"headers,omitempty"`
	Categories       []string          `json:"categories,omitempty"`
	Args             map[string]string `json:"custom_args"`
}

// encode builds the body of POST /v3/mail/send, with one personalization: all
// recipients make one mail. Its fields stand in a fixed order and maps in the
// order of their names: the same mail gives the same bytes.
func (p *Provider) encode(e dispatch.Envelope) ([]byte, error) {
	m, err := mailapi.Mail(e)
	if err != nil {
		return nil, err
	}
	if err := Check(m); err != nil {
		return nil, mailapi.Unfit(err)
	}
	from, err := mailapi.From(e.From, p.cfg.From)
	if err != nil {
		return nil, err
	}
	r := request{
		Personalizations: []personalization{{To: quoted(m.To), CC: quoted(m.CC), BCC: quoted(m.BCC)}},
		From:             plain(from), Subject: m.Subject, Template: m.Template.ID, Categories: m.Tags, Args: mailapi.Labels(e, p.cfg.Metadata),
	}
	for _, a := range m.ReplyTo {
		r.ReplyTo = append(r.ReplyTo, plain(a))
	}
	for _, c := range []content{{"text/plain", m.Text}, {"text/html", m.HTML}} { // in this order, says mail/send
		if c.Value != "" {
			r.Content = append(r.Content, c)
		}
	}
	for _, a := range m.Attachments {
		f := file{mailapi.Base64(a.Data), a.Type, a.Name, "attachment", a.ContentID}
		if a.ContentID != "" {
			f.Disposition = "inline"
		}
		r.Attachments = append(r.Attachments, f)
	}
	if m.Template.ID != "" {
		r.Personalizations[0].Data = m.Template.Data
	}
	if r.Headers, err = mailapi.Headers(m); err != nil {
		return nil, mailapi.Unfit(err)
	}
	size := 0
	for name, value := range r.Args {
		size += len(name) + len(value) + 6 // quotes, colon, comma
	}
	if size > maxArgs {
		return nil, mailapi.Unfit(mailapi.Field("Metadata", fmt.Sprintf("is above the %d bytes of custom arguments", maxArgs)))
	}
	body, err := mailapi.JSON(r)
	if err != nil {
		return nil, mailapi.Refuse(mailapi.Message("mail can't be encoded"), err)
	}
	return body, nil
}

func plain(a dispatch.Address) address { return address{a.Email, a.Name} }

// quoted puts names with a comma or a semicolon in quotes: SendGrid doesn't do
// so itself in personalizations, and takes such a name for two addresses
// (found by django-anymail).
func quoted(list []dispatch.Address) (out []address) {
	for _, a := range list {
		if strings.ContainsAny(a.Name, ",;") {
			a.Name = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(a.Name) + `"`
		}
		out = append(out, plain(a))
	}
	return out
}
