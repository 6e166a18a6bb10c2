package mailapi

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/seed-8098fbb7/dispatch"
)

// JSON encodes v: the same value gives the same bytes, maps in the order of
// their names, HTML as it is.
func JSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, errors.New("mail can't be encoded")
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Base64 is a file as JSON carries it.
func Base64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

// Files is the size of the attachments in base64, in bytes, without line ends.
func Files(m dispatch.Email) int {
	n := 0
	for _, a := range m.Attachments {
		n += base64.StdEncoding.EncodedLen(len(a.Data))
	}
	return n
}

// Size is the mail's size as it is sent, in bytes: bodies, and attachments in
// base64 with line ends.
func Size(m dispatch.Email) int {
	files := Files(m)
	return len(m.Subject) + len(m.Text) + len(m.HTML) + len(m.Template.Data) + files + files/76*2
}

// Fits says which limit of a vendor a mail breaks, sizes in bytes as they are
// sent; 0 is no limit.
func Fits(m dispatch.Email, whole, body, files int) error {
	switch {
	case whole > 0 && Size(m) > whole:
		return Field("Content", fmt.Sprintf("has %d bytes as it is sent, at most %d are taken", Size(m), whole))
	case body > 0 && len(m.Text) > body:
		return Field("Content.Text", fmt.Sprintf("has %d bytes, at most %d are taken", len(m.Text), body))
	case body > 0 && len(m.HTML) > body:
		return Field("Content.HTML", fmt.Sprintf("has %d bytes, at most %d are taken", len(m.HTML), body))
	case files > 0 && Files(m) > files:
		return Field("Content.Attachments", fmt.Sprintf("have %d bytes in base64, at most %d are taken", Files(m), files))
	}
	return nil
}

// Unpinned checks the template of a mail for a vendor whose templates have no
// revisions, and which renders the bodies from the template alone.
func Unpinned(m dispatch.Email) error {
	switch t := m.Template; {
	case t.ID == "":
		return nil
	case t.Revision != "":
		return Field("Content.Template.Revision", "can't be pinned: this provider's templates have no revisions; set Unpinned")
	default:
		return NoBody(m)
	}
}

// NoBody refuses bodies beside a template.
func NoBody(m dispatch.Email) error {
	if m.Template.ID != "" && (m.Text != "" || m.HTML != "") {
		return Field("Content.Template", "and a Text or HTML exclude each other at this provider")
	}
	return nil
}

// Headers are the mail's header fields for a vendor that takes each name once.
func Headers(m dispatch.Email) (map[string]string, error) {
	seen := map[string]bool{}
	var out map[string]string
	for n, h := range m.Headers {
		name := strings.ToLower(h.Name)
		if seen[name] {
			return nil, Field(fmt.Sprintf("Content.Headers[%d]", n), "repeats a name, which this provider can't carry")
		}
		seen[name] = true
		if out == nil {
			out = map[string]string{}
		}
		out[h.Name] = h.Value
	}
	return out, nil
}

// Labels are the entries of an intent's metadata that the configuration lets
// out to the vendor, and our key.
func Labels(e dispatch.Envelope, names []string) map[string]string {
	out := map[string]string{}
	for _, name := range names {
		if v, ok := e.Metadata[name]; ok {
			out[name] = v
		}
	}
	out[KeyName] = e.Key.String()
	return out
}

// CheckLabels says what is wrong with the configured names of metadata.
func CheckLabels(names []string) error {
	for _, name := range names {
		switch {
		case name == "" || !Plain(name, "_-"):
			return errors.New("has a name with characters other than letters, digits, _ and -")
		case strings.HasPrefix(strings.ToLower(name), "dispatch_"):
			return errors.New("has a name that begins with dispatch_, which is ours")
		}
	}
	return nil
}

// Plain reports whether s is letters and digits of ASCII and the characters
// of more.
func Plain(s, more string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune(more, c)
	})
}
