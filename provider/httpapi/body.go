package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/seed-8098fbb7/dispatch"
)

// The longest texts that are kept, in bytes.
const (
	maxID     = 512
	maxWord   = 100
	maxReason = 300
)

// encode builds the body of one send.
func (c *Config) encode(e dispatch.Envelope) ([]byte, error) {
	v, err := c.Body(e)
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// defaultBody has fixed fields in a fixed order: the same envelope gives the
// same bytes.
func defaultBody(e dispatch.Envelope) (any, error) {
	switch m := e.Content.(type) {
	case dispatch.SMS:
		return struct {
			To   string `json:"to"`
			From string `json:"from,omitempty"`
			Body string `json:"body"`
		}{m.To, e.From, m.Body}, nil
	case dispatch.Email:
		if len(m.Attachments) > 0 || len(m.Headers) > 0 || m.Template.ID != "" {
			return nil, errors.New("attachments, headers and templates need a Config.Body")
		}
		return struct {
			From    string   `json:"from,omitempty"`
			To      []string `json:"to,omitempty"`
			CC      []string `json:"cc,omitempty"`
			BCC     []string `json:"bcc,omitempty"`
			ReplyTo []string `json:"reply_to,omitempty"`
			Subject string   `json:"subject"`
			Text    string   `json:"text,omitempty"`
			HTML    string   `json:"html,omitempty"`
			Tags    []string `json:"tags,omitempty"`
		}{e.From, addresses(m.To), addresses(m.CC), addresses(m.BCC), addresses(m.ReplyTo), m.Subject, m.Text, m.HTML, m.Tags}, nil
	}
	return nil, fmt.Errorf("content of type %T is not known", e.Content)
}

func addresses(list []dispatch.Address) []string {
	var out []string
	for _, a := range list {
		if a.Name != "" { // quoted: a comma in a name must not make two addresses
			a.Email = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(a.Name) + `" <` + a.Email + `>`
		}
		out = append(out, a.Email)
	}
	return out
}

// decode reads a JSON object, a byte order mark in front of it allowed, and
// returns nil for anything else. Numbers stay as they were written.
func decode(b []byte) map[string]any {
	d := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))))
	d.UseNumber()
	var doc map[string]any
	if d.Decode(&doc) != nil || d.More() {
		return nil
	}
	return doc
}

// lookup follows a dotted path of names and list indices, nil where it leads
// nowhere.
func lookup(doc map[string]any, path string) any {
	var v any = doc
	for name := range strings.SplitSeq(path, ".") {
		switch in := v.(type) {
		case map[string]any:
			v = in[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(in) {
				return nil
			}
			v = in[i]
		default:
			return nil
		}
	}
	return v
}

// text is a string or a number, digit for digit, "" for anything else and for
// what can't be one: longer than limit, or with control characters in it.
func text(v any, limit int) string {
	var s string
	switch v := v.(type) {
	case string:
		s = v
	case json.Number:
		s = v.String()
	}
	if len(s) > limit || strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f || c == utf8.RuneError }) {
		return ""
	}
	return s
}

// cut bounds s at a rune's boundary and drops what Postgres would not store.
func cut(s string, limit int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, ""), "\x00", "")
	if len(s) <= limit {
		return s
	}
	for !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
