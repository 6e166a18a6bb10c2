package infrai

import (
	"encoding/json"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

// Check says what keeps a mail from going over Infrai, before it is enqueued:
// a *dispatch.FieldError, or nil. Infrai documents no field for answers'
// address, headers, tags and inline images, and no limits of its own. Send
// refuses the same mails without calling Infrai. Put
// it into a route's Checks.
func Check(c dispatch.Content) error {
	m, err := mailapi.Email(c)
	if err != nil {
		return err
	}
	switch {
	case len(m.ReplyTo) > 0:
		return mailapi.Field("Content.ReplyTo", "can't be carried by this provider")
	case len(m.Headers) > 0:
		return mailapi.Field("Content.Headers", "can't be carried by this provider")
	case len(m.Tags) > 0:
		return mailapi.Field("Content.Tags", "can't be carried by this provider")
	case m.Subject == "":
		return mailapi.Field("Content.Subject", "is empty, which this provider refuses")
	}
	for _, a := range m.Attachments {
		if a.ContentID != "" {
			return mailapi.Field("Content.Attachments", "has an inline part, which this provider can't carry")
		}
	}
	return mailapi.Unpinned(m)
}

// encode builds the body of POST /v1/email/send as Infrai asks for it: names
// in order, no blanks, a line end behind it. The same mail gives the same
// bytes.
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
	r := map[string]any{"from": mailapi.Standard(from), "to": mailapi.Map(m.To, mailapi.Standard), "subject": m.Subject}
	for name, value := range map[string]string{"text": m.Text, "html": m.HTML, "template_id": m.Template.ID, "vendor": p.cfg.Upstream} {
		if value != "" {
			r[name] = value
		}
	}
	for name, list := range map[string][]dispatch.Address{"cc": m.CC, "bcc": m.BCC} {
		if len(list) > 0 {
			r[name] = mailapi.Map(list, mailapi.Standard)
		}
	}
	var files []any
	for _, a := range m.Attachments {
		files = append(files, map[string]string{"filename": a.Name, "content": mailapi.Base64(a.Data), "mime": a.Type})
	}
	if files != nil {
		r["attachments"] = files
	}
	if len(m.Template.Data) > 0 {
		var vars map[string]json.RawMessage // their order too
		if json.Unmarshal(m.Template.Data, &vars) != nil {
			return nil, mailapi.Unfit(mailapi.Field("Content.Template.Data", "is not a JSON object"))
		}
		r["template_vars"] = vars
	}
	body, err := mailapi.JSON(r)
	if err != nil {
		return nil, mailapi.Refuse(mailapi.Message("mail can't be encoded"), err)
	}
	return append(body, '\n'), nil
}
