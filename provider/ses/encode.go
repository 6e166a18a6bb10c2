package ses

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"
	"github.com/aws/aws-sdk-go-v2/service/sesv2/types"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

// Limits that SES documents. Those of size (40 MB after base64) and number of
// recipients (50) are those of an Email, or above.
const (
	maxTag         = 256 // name and value of a tag
	maxHeaderName  = 126
	maxHeaderValue = 995
	maxHeader      = 996 // both together
)

// Check says what keeps a mail from going over SES, before it is enqueued: a
// *dispatch.FieldError, or nil. Send refuses the same mails without calling
// SES. Put it into a route's Checks.
//
// A template's name stands for whatever it is at the time (UpdateEmailTemplate),
// so that a Revision can't be pinned.
func Check(c dispatch.Content) error {
	m, err := mailapi.Email(c)
	if err != nil {
		return err
	}
	if err := mailapi.Unpinned(m); err != nil {
		return err
	}
	if m.Template.ID != "" && m.Subject != "" {
		return mailapi.Field("Content.Subject", "is the template's at this provider: it must be empty")
	}
	if m.Template.ID != "" && len(m.Template.Data) > 0 {
		var vars map[string]json.RawMessage
		if json.Unmarshal(m.Template.Data, &vars) != nil {
			return mailapi.Field("Content.Template.Data", "is not a JSON object")
		}
	}
	for _, a := range slices.Concat(m.To, m.CC, m.BCC, m.ReplyTo) {
		if strings.ContainsFunc(a.Email, func(c rune) bool { return c >= utf8.RuneSelf }) {
			return mailapi.Field("Content", "has an address with letters outside ASCII, which this provider can't carry")
		}
	}
	if _, err := mailapi.Headers(m); err != nil {
		return err
	}
	for n, h := range m.Headers {
		field := fmt.Sprintf("Content.Headers[%d]", n)
		switch {
		case len(h.Name) > maxHeaderName || len(h.Value) > maxHeaderValue || len(h.Name)+len(h.Value) > maxHeader:
			return mailapi.Field(field, "is longer than this provider takes")
		case strings.ContainsFunc(h.Value, func(c rune) bool { return c < ' ' || c > '~' }):
			return mailapi.Field(field, "has a character outside ASCII, which this provider can't carry")
		}
	}
	for n, t := range m.Tags {
		if t == "" || len(t) > maxTag || !mailapi.Plain(t, "_-") {
			return mailapi.Field(fmt.Sprintf("Content.Tags[%d]", n), "can't be a tag: letters, digits, _ and - only, at most 256")
		}
	}
	return nil
}

// encode builds the request. Its lists stand in a fixed order and the SDK
// writes members in the order of its model: the same mail gives the same bytes.
func (p *Provider) encode(e dispatch.Envelope) (*sesv2.SendEmailInput, error) {
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
	in := &sesv2.SendEmailInput{
		FromEmailAddress: aws.String(mailapi.Standard(from)),
		Destination: &types.Destination{
			ToAddresses: mailapi.Map(m.To, mailapi.Standard), CcAddresses: mailapi.Map(m.CC, mailapi.Standard), BccAddresses: mailapi.Map(m.BCC, mailapi.Standard),
		},
		ReplyToAddresses: mailapi.Map(m.ReplyTo, mailapi.Standard),
		Content:          content(m),
	}
	if p.cfg.ConfigurationSet != "" {
		in.ConfigurationSetName = aws.String(p.cfg.ConfigurationSet)
	}
	if in.EmailTags, err = tags(e, m, p.cfg.Metadata); err != nil {
		return nil, mailapi.Unfit(err)
	}
	return in, nil
}

func content(m dispatch.Email) *types.EmailContent {
	var headers []types.MessageHeader
	for _, h := range m.Headers {
		headers = append(headers, types.MessageHeader{Name: aws.String(h.Name), Value: aws.String(h.Value)})
	}
	var files []types.Attachment
	for _, a := range m.Attachments {
		f := types.Attachment{
			FileName: aws.String(a.Name), ContentType: aws.String(a.Type), RawContent: a.Data,
			ContentDisposition:      types.AttachmentContentDispositionAttachment,
			ContentTransferEncoding: types.AttachmentContentTransferEncodingBase64,
		}
		if a.ContentID != "" {
			f.ContentDisposition, f.ContentId = types.AttachmentContentDispositionInline, aws.String(a.ContentID)
		}
		files = append(files, f)
	}
	if t := m.Template; t.ID != "" {
		data := "{}"
		if len(t.Data) > 0 {
			data = string(t.Data)
		}
		return &types.EmailContent{Template: &types.Template{
			TemplateName: aws.String(t.ID), TemplateData: aws.String(data), Headers: headers, Attachments: files,
		}}
	}
	body := &types.Body{}
	if m.Text != "" {
		body.Text = text(m.Text)
	}
	if m.HTML != "" {
		body.Html = text(m.HTML)
	}
	return &types.EmailContent{Simple: &types.Message{Subject: text(m.Subject), Body: body, Headers: headers, Attachments: files}}
}

func text(s string) *types.Content {
	return &types.Content{Data: aws.String(s), Charset: aws.String("UTF-8")}
}

// tags are the mail's labels as tag_1, tag_2 and so on, the metadata, and our
// key, which events bring back.
func tags(e dispatch.Envelope, m dispatch.Email, names []string) ([]types.MessageTag, error) {
	var out []types.MessageTag
	add := func(name, value string) {
		out = append(out, types.MessageTag{Name: aws.String(name), Value: aws.String(value)})
	}
	for n, t := range m.Tags {
		add(fmt.Sprintf("tag_%d", n+1), t)
	}
	labels := mailapi.Labels(e, names)
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		value := labels[name]
		if len(name) > maxTag || len(value) > maxTag || !mailapi.Plain(value, "_-") {
			return nil, mailapi.Field("Metadata", "has a value that can't be a tag: letters, digits, _ and - only, at most 256")
		}
		if value != "" {
			add(name, value)
		}
	}
	return out, nil
}
