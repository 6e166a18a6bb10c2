package resend

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

// Limits that Resend documents.
const (
	maxTo    = 50       // to of resend-openapi; cc and bcc are not limited there
	maxFiles = 40 << 20 // "40MB per email, after Base64 encoding of the attachments"
	maxTag   = 256      // name and value of a tag
	maxVars  = 50       // variables of a template
)

// Check says what keeps a mail from going over Resend, before it is enqueued:
// a *dispatch.FieldError, or nil. Sizes count as they are sent, attachments in
// base64. Send refuses the same mails without calling Resend. Put
// it into a route's Checks.
func Check(c dispatch.Content) error {
	m, err := mailapi.Email(c)
	if err != nil {
		return err
	}
	if len(m.To) > maxTo {
		return mailapi.Field("Content.To", fmt.Sprintf("has %d addresses, at most %d are taken", len(m.To), maxTo))
	}
	if err := mailapi.Fits(m, 0, 0, maxFiles); err != nil {
		return err
	}
	if err := mailapi.Unpinned(m); err != nil {
		return err
	}
	if _, err := mailapi.Headers(m); err != nil {
		return err
	}
	for n, t := range m.Tags {
		if len(t) > maxTag || !mailapi.Plain(t, "_-") {
			return mailapi.Field(fmt.Sprintf("Content.Tags[%d]", n), "has a character other than letters, digits, _ and -")
		}
	}
	if m.Template.ID != "" {
		if vars, err := variables(m.Template); err != nil {
			return err
		} else if len(vars) > maxVars {
			return mailapi.Field("Content.Template.Data", fmt.Sprintf("has %d values, at most %d are taken", len(vars), maxVars))
		}
	}
	return nil
}

type tag struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type file struct {
	Name string `json:"filename"`
	Type string `json:"content_type"`
	ID   string `json:"content_id,omitempty"`
	Data string `json:"content"`
}

type template struct {
	ID        string                     `json:"id"`
	Variables map[string]json.RawMessage `json:"variables,omitempty"`
}

type request struct {
	From     string            `json:"from"`
	To       []string          `json:"to"`
	CC       []string          `json:"cc,omitempty"`
	BCC      []string          `json:"bcc,omitempty"`
	ReplyTo  []string          `json:"reply_to,omitempty"`
	Subject  string            `json:"subject,omitempty"`
	Text     string            `json:"text,omitempty"`
	HTML     string            `json:"html,omitempty"`
	Headers  map[string]string `json:"headers,omitempty"`
	Files    []file            `json:"attachments,omitempty"`
	Tags     []tag             `json:"tags"`
	Template *template         `json:"template,omitempty"`
}

// encode builds the body of POST /emails. Its fields stand in a fixed order
// and maps in the order of their names: the same mail gives the same bytes.
func (p *Provider) encode(e dispatch.Envelope) ([]byte, error) {
	m, err := mailapi.Mail(e)
	if err != nil {
		return nil, err
	}
	if err := Check(m); err != nil {
		return nil, mailapi.Unfit(err)
	}
	from, err := p.from(e.From)
	if err != nil {
		return nil, err
	}
	r := request{
		From: from, To: mailapi.Map(m.To, mailapi.Words), CC: mailapi.Map(m.CC, mailapi.Words), BCC: mailapi.Map(m.BCC, mailapi.Words),
		ReplyTo: mailapi.Map(m.ReplyTo, mailapi.Words), Subject: m.Subject, Text: m.Text, HTML: m.HTML,
	}
	if r.Headers, err = mailapi.Headers(m); err != nil {
		return nil, mailapi.Unfit(err)
	}
	for _, a := range m.Attachments {
		r.Files = append(r.Files, file{a.Name, a.Type, a.ContentID, mailapi.Base64(a.Data)})
	}
	if r.Tags, err = tags(e, m, p.cfg.Metadata); err != nil {
		return nil, mailapi.Unfit(err)
	}
	if m.Template.ID != "" {
		vars, err := variables(m.Template)
		if err != nil {
			return nil, mailapi.Unfit(err)
		}
		r.Template = &template{m.Template.ID, vars}
	}
	body, err := mailapi.JSON(r)
	if err != nil {
		return nil, mailapi.Refuse(mailapi.Message("mail can't be encoded"), err)
	}
	return body, nil
}

// from writes the sender as Resend reads it, which isn't as RFC 5322 has it: a
// name in quotes or encoded words is refused, so letters stand as they are and
// a name with special characters can't be sent.
func (p *Provider) from(registered string) (string, error) {
	a, err := mailapi.From(registered, p.cfg.From)
	switch {
	case err != nil:
		return "", err
	case mailapi.Special(a.Name):
		return "", mailapi.Refuse(mailapi.Sender("sender's name has a special character"), errors.New("name needs quotes"))
	case a.Name == "":
		return a.Email, nil
	}
	return a.Name + " <" + a.Email + ">", nil
}

// tags are the mail's labels as tag_1, tag_2 and so on, the metadata, and our
// key, which events bring back.
func tags(e dispatch.Envelope, m dispatch.Email, names []string) ([]tag, error) {
	var out []tag
	for n, t := range m.Tags {
		out = append(out, tag{fmt.Sprintf("tag_%d", n+1), t})
	}
	labels := mailapi.Labels(e, names)
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		value := labels[name]
		if len(name) > maxTag || len(value) > maxTag || !mailapi.Plain(value, "_-") {
			return nil, mailapi.Field("Metadata", "has a value that can't be a tag: letters, digits, _ and - only, at most 256")
		}
		if value != "" {
			out = append(out, tag{name, value})
		}
	}
	return out, nil
}

// variables are the values of a template: strings and numbers.
func variables(t dispatch.ProviderTemplate) (map[string]json.RawMessage, error) {
	if len(t.Data) == 0 {
		return nil, nil
	}
	var vars map[string]json.RawMessage
	if json.Unmarshal(t.Data, &vars) != nil {
		return nil, mailapi.Field("Content.Template.Data", "is not a JSON object")
	}
	for _, v := range vars {
		if c := v[0]; c != '"' && c != '-' && (c < '0' || c > '9') {
			return nil, mailapi.Field("Content.Template.Data", "has a value that is neither a string nor a number")
		}
	}
	return vars, nil
}
