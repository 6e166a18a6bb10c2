package postmark

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

// Limits that Postmark documents, but for those of metadata, which are known
// from its support pages only.
const (
	maxMail     = 10 << 20 // "10 MB including attachments", in base64
	maxBody     = 5 << 20  // TextBody and HtmlBody each
	maxTag      = 1000     // characters
	maxMetadata = 10       // fields
	maxName     = 20       // characters of a field's name
	maxValue    = 80       // and of its value
)

// Check says what keeps a mail from going over Postmark, before it is
// enqueued: a *dispatch.FieldError, or nil. Sizes count as they are sent,
// attachments in base64. Send refuses the same mails without calling Postmark. Put
// it into a route's Checks.
func Check(c dispatch.Content) error {
	m, err := mailapi.Email(c)
	if err != nil {
		return err
	}
	if err := mailapi.Fits(m, maxMail, maxBody, 0); err != nil {
		return err
	}
	if err := mailapi.Unpinned(m); err != nil {
		return err
	}
	switch {
	case m.Template.ID != "" && m.Subject != "":
		return mailapi.Field("Content.Subject", "is the template's at this provider: it must be empty")
	case len(m.Tags) > 1:
		return mailapi.Field("Content.Tags", "has more than one tag, which this provider can't carry")
	case len(m.Tags) == 1 && len(m.Tags[0]) > maxTag:
		return mailapi.Field("Content.Tags[0]", fmt.Sprintf("has more than %d characters", maxTag))
	}
	return nil
}

type header struct {
	Name  string `json:"Name"`
	Value string `json:"Value"`
}

type file struct {
	Name string `json:"Name"`
	Data string `json:"Content"`
	Type string `json:"ContentType"`
	ID   string `json:"ContentID,omitempty"`
}

type request struct {
	From          string            `json:"From"`
	To            string            `json:"To"`
	CC            string            `json:"Cc,omitempty"`
	BCC           string            `json:"Bcc,omitempty"`
	ReplyTo       string            `json:"ReplyTo,omitempty"`
	Subject       string            `json:"Subject,omitempty"`
	Text          string            `json:"TextBody,omitempty"`
	HTML          string            `json:"HtmlBody,omitempty"`
	Tag           string            `json:"Tag,omitempty"`
	Headers       []header          `json:"Headers,omitempty"`
	Attachments   []file            `json:"Attachments,omitempty"`
	Metadata      map[string]string `json:"Metadata"`
	Stream        string            `json:"MessageStream"`
	TemplateID    int64             `json:"TemplateId,omitempty"`
	TemplateAlias string            `json:"TemplateAlias,omitempty"`
	TemplateModel json.RawMessage   `json:"TemplateModel,omitempty"`
}

// encode builds the request's path and body. Its fields stand in a fixed order
// and maps in the order of their names: the same mail gives the same bytes.
func (p *Provider) encode(e dispatch.Envelope) (path string, body []byte, err error) {
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
	r := request{
		From: mailapi.Standard(from), To: list(m.To), CC: list(m.CC), BCC: list(m.BCC), ReplyTo: list(m.ReplyTo),
		Subject: m.Subject, Text: m.Text, HTML: m.HTML, Stream: p.cfg.MessageStream, Metadata: mailapi.Labels(e, p.cfg.Metadata),
	}
	for name, value := range r.Metadata {
		if len(name) > maxName || len([]rune(value)) > maxValue {
			return "", nil, mailapi.Unfit(mailapi.Field("Metadata", fmt.Sprintf("has a name above %d or a value above %d characters", maxName, maxValue)))
		}
	}
	if len(m.Tags) == 1 {
		r.Tag = m.Tags[0]
	}
	for _, h := range m.Headers {
		r.Headers = append(r.Headers, header(h))
	}
	for _, a := range m.Attachments {
		f := file{Name: a.Name, Data: mailapi.Base64(a.Data), Type: a.Type}
		if a.ContentID != "" {
			f.ID = "cid:" + a.ContentID
		}
		r.Attachments = append(r.Attachments, f)
	}
	path = "/email"
	if t := m.Template; t.ID != "" {
		path = "/email/withTemplate"
		r.template(t)
	}
	if body, err = mailapi.JSON(r); err != nil {
		return "", nil, mailapi.Refuse(mailapi.Message("mail can't be encoded"), err)
	}
	return path, body, nil
}

// template names the template: a number is its id, anything else its alias.
func (r *request) template(t dispatch.ProviderTemplate) {
	if n, err := strconv.ParseInt(t.ID, 10, 64); err == nil && n > 0 {
		r.TemplateID = n
	} else {
		r.TemplateAlias = t.ID
	}
	if r.TemplateModel = t.Data; len(t.Data) == 0 {
		r.TemplateModel = []byte("{}")
	}
}

func list(addresses []dispatch.Address) string {
	return strings.Join(mailapi.Map(addresses, mailapi.Standard), ", ")
}
