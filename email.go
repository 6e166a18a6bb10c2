package dispatch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/mail"
	"strings"
	"unicode/utf8"
)

func (e Email) check() error {
	if err := e.checkRecipients(); err != nil {
		return err
	}
	if reason := lineFault(e.Sender, 100); reason != "" {
		return &FieldError{Field: "Content.Sender", Reason: reason}
	}
	if reason := headerFault(e.Subject, 900); reason != "" {
		return &FieldError{Field: "Content.Subject", Reason: reason}
	}
	if reason := textFault(e.Text); reason != "" {
		return &FieldError{Field: "Content.Text", Reason: reason}
	}
	if reason := textFault(e.HTML); reason != "" {
		return &FieldError{Field: "Content.HTML", Reason: reason}
	}
	if e.Template.ID == "" && blank(e.Text) && blank(e.HTML) {
		return &FieldError{Field: "Content.Text", Reason: "and HTML are both empty"}
	}
	if err := e.Template.check(); err != nil {
		return err
	}
	if err := e.checkHeaders(); err != nil {
		return err
	}
	if err := e.checkAttachments(); err != nil {
		return err
	}
	if n := e.size(); n > MaxEmail {
		return &FieldError{Field: "Content", Reason: fmt.Sprintf("has %d bytes as it is sent, at most %d are taken", n, MaxEmail)}
	}
	return nil
}

func (e Email) checkRecipients() error {
	lists := []struct {
		field string
		list  []Address
	}{{"Content.To", e.To}, {"Content.CC", e.CC}, {"Content.BCC", e.BCC}, {"Content.ReplyTo", e.ReplyTo}}
	for _, l := range lists {
		for n, a := range l.list {
			if reason := a.fault(); reason != "" {
				return &FieldError{Field: fmt.Sprintf("%s[%d]", l.field, n), Reason: reason}
			}
		}
	}
	switch n := len(e.To) + len(e.CC) + len(e.BCC); {
	case len(e.To) == 0:
		return &FieldError{Field: "Content.To", Reason: "is empty"}
	case n > MaxRecipients:
		return &FieldError{Field: "Content.To", Reason: fmt.Sprintf("and the copies are %d addresses, at most %d fit into one mail", n, MaxRecipients)}
	case len(e.ReplyTo) > 10:
		return &FieldError{Field: "Content.ReplyTo", Reason: "has more than 10 addresses"}
	}
	return nil
}

func (a Address) fault() string {
	if reason := headerFault(a.Name, 200); reason != "" {
		return "name " + reason
	}
	if a.Email == "" {
		return "address is empty"
	}
	if reason := lineFault(a.Email, 254); reason != "" {
		return "address " + reason
	}
	for i, c := range a.Email {
		if unseen(c) {
			return fmt.Sprintf("address has %s at byte %d", describe(c), i)
		}
	}
	got, err := mail.ParseAddress(a.Email)
	if err != nil || got.Name != "" || got.Address != a.Email {
		return "address is not a bare mail address like ada@example.com"
	}
	return ""
}

func (t ProviderTemplate) check() error {
	if t.ID == "" {
		if t.Revision != "" || len(t.Data) > 0 || t.Unpinned {
			return &FieldError{Field: "Content.Template", Reason: "has no ID"}
		}
		return nil
	}
	if reason := lineFault(t.ID, 200); reason != "" {
		return &FieldError{Field: "Content.Template.ID", Reason: reason}
	}
	if reason := lineFault(t.Revision, 200); reason != "" {
		return &FieldError{Field: "Content.Template.Revision", Reason: reason}
	}
	if t.Revision == "" && !t.Unpinned {
		return &FieldError{Field: "Content.Template.Revision", Reason: "is empty: an editor could change the message; pin a revision or set Unpinned"}
	}
	if len(t.Data) > 0 && (!json.Valid(t.Data) || !utf8.Valid(t.Data) || bytes.TrimLeft(t.Data, " \t\r\n")[0] != '{') {
		return &FieldError{Field: "Content.Template.Data", Reason: "is not a JSON object"}
	}
	return nil
}

// allowedHeaders are the fields that a caller may set besides its own X- ones.
// Fields that name sender, recipients, ids or structure are the library's.
var allowedHeaders = map[string]bool{
	"list-unsubscribe": true, "list-unsubscribe-post": true, "list-id": true, "list-help": true,
	"in-reply-to": true, "references": true, "auto-submitted": true, "precedence": true,
	"importance": true, "priority": true, "feedback-id": true, "keywords": true, "organization": true,
}

// vendorHeaders begin fields by which vendors are steered, up to adding
// recipients.
var vendorHeaders = []string{"x-smtpapi", "x-msys", "x-mc-", "x-mailgun-", "x-ses-", "x-pm-", "x-mj-", "x-mailjet-", "x-sib-", "x-mailin-"}

func (e Email) checkHeaders() error {
	if len(e.Headers) > 50 {
		return &FieldError{Field: "Content.Headers", Reason: "has more than 50 fields"}
	}
	for n, h := range e.Headers {
		field := fmt.Sprintf("Content.Headers[%d]", n)
		name := strings.ToLower(h.Name)
		for i, c := range h.Name {
			if c <= ' ' || c > '~' || c == ':' { // RFC 5322 section 2.2
				return &FieldError{Field: field, Reason: fmt.Sprintf("name has %s at byte %d", describe(c), i)}
			}
		}
		if !allowedHeaders[name] && (!strings.HasPrefix(name, "x-") || len(name) < 3 || len(name) > 76) {
			return &FieldError{Field: field, Reason: "name is not one that a caller may set"}
		}
		for _, p := range vendorHeaders {
			if strings.HasPrefix(name, p) {
				return &FieldError{Field: field, Reason: "name steers a vendor"}
			}
		}
		if reason := headerFault(h.Value, 900); reason != "" {
			return &FieldError{Field: field, Reason: "value " + reason}
		}
	}
	return nil
}

func (e Email) checkAttachments() error {
	if len(e.Attachments) > 50 {
		return &FieldError{Field: "Content.Attachments", Reason: "has more than 50 files"}
	}
	for n, a := range e.Attachments {
		field := fmt.Sprintf("Content.Attachments[%d]", n)
		if a.Name == "" {
			return &FieldError{Field: field, Reason: "has no name"}
		}
		for _, part := range []struct{ name, value string }{{"name", a.Name}, {"type", a.Type}, {"content id", a.ContentID}} {
			if reason := lineFault(part.value, 200); reason != "" {
				return &FieldError{Field: field, Reason: part.name + " " + reason}
			}
		}
		if strings.ContainsAny(a.Name, `/\`) {
			return &FieldError{Field: field, Reason: "name has a path"}
		}
		if kind, _, err := mime.ParseMediaType(a.Type); err != nil || !strings.Contains(kind, "/") {
			return &FieldError{Field: field, Reason: `type is not a media type like "application/pdf"`}
		}
		if strings.ContainsAny(a.ContentID, " <>") {
			return &FieldError{Field: field, Reason: "content id has a space or a bracket"}
		}
	}
	if len(e.Tags) > 10 {
		return &FieldError{Field: "Content.Tags", Reason: "has more than 10 tags"}
	}
	for n, t := range e.Tags {
		reason := lineFault(t, 100)
		if t == "" {
			reason = "is empty"
		}
		if reason != "" {
			return &FieldError{Field: fmt.Sprintf("Content.Tags[%d]", n), Reason: reason}
		}
	}
	return nil
}

// headerFault is lineFault for text that stands in a header field of the mail,
// where an encoded word (RFC 2047) could hide what a reader's program unpacks.
func headerFault(s string, most int) string {
	if reason := lineFault(s, most); reason != "" {
		return reason
	}
	if !strings.Contains(s, "=?") {
		return ""
	}
	plain, err := new(mime.WordDecoder).DecodeHeader(s)
	if err == nil && lineFault(plain, len(plain)) != "" {
		return "hides a line break or a control character in an encoded word"
	}
	return ""
}

// size is the mail's size as it is sent: base64 adds a third, and a line end
// to each 76 characters.
func (e Email) size() int {
	n := len(e.Subject) + len(e.Text) + len(e.HTML) + len(e.Template.Data)
	for _, a := range e.Attachments {
		coded := (len(a.Data) + 2) / 3 * 4
		n += coded + coded/76*2 + 200
	}
	return n
}
