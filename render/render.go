// Package render fills an intent's content from a template when it is
// enqueued, and keeps the template's name and revision with it as evidence.
// What was rendered is frozen: an edited template changes what is enqueued
// afterwards, never what waits.
//
// It is text/template and html/template with what messages need: a value that
// is missing is an error instead of "<no value>", output has a bound, and a
// revision that nobody has to remember to raise. For a template that a provider
// renders see [dispatch.ProviderTemplate].
package render

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	htmltemplate "html/template"
	"io"
	"strings"
	texttemplate "text/template"

	"github.com/seed-8098fbb7/dispatch"
)

// Source is a template's text, from a file, an embed.FS or a table of the
// application's.
type Source struct {
	// Name is what history shows, "contact/sales".
	Name string
	// Revision is the revision's own name; empty means the first half of the
	// SHA-256 of the texts below, which changes with them.
	Revision string
	// Subject, Text and HTML are the parts, each a template; an empty one
	// leaves the content's part alone. Of an SMS only Text is meant.
	Subject, Text, HTML string
	// Funcs are further functions, for all parts. They don't count towards the
	// revision.
	Funcs map[string]any
}

// Template is a parsed Source. It is safe for concurrent use.
type Template struct {
	evidence            dispatch.Template
	subject, text, html executer
}

type executer interface {
	Execute(w io.Writer, data any) error
}

// Parse checks and parses a source.
func Parse(s Source) (*Template, error) {
	if s.Name == "" {
		return nil, errors.New("render: template has no name")
	}
	if s.Subject == "" && s.Text == "" && s.HTML == "" {
		return nil, fmt.Errorf("render: template %q is empty", s.Name)
	}
	if s.Revision == "" {
		s.Revision = revision(s)
	}
	t := &Template{evidence: dispatch.Template{Name: s.Name, Revision: s.Revision}}
	for _, part := range []struct {
		name, text string
		to         *executer
	}{{"subject", s.Subject, &t.subject}, {"text", s.Text, &t.text}} {
		if part.text == "" {
			continue
		}
		parsed, err := texttemplate.New(part.name).Option("missingkey=error").Funcs(s.Funcs).Parse(part.text)
		if err != nil {
			return nil, fmt.Errorf("render: template %q: %w", s.Name, err)
		}
		*part.to = parsed
	}
	if s.HTML != "" {
		parsed, err := htmltemplate.New("html").Option("missingkey=error").Funcs(s.Funcs).Parse(s.HTML)
		if err != nil {
			return nil, fmt.Errorf("render: template %q: %w", s.Name, err)
		}
		t.html = parsed
	}
	return t, nil
}

// revision is over the parts, apart: none can lend bytes to another.
func revision(s Source) string {
	h := sha256.New()
	for _, part := range []string{s.Subject, s.Text, s.HTML} {
		h.Write(binary.AppendUvarint(nil, uint64(len(part))))
		_, _ = io.WriteString(h, part) // never fails
	}
	return hex.EncodeToString(h.Sum(nil)[:sha256.Size/2])
}

// Evidence is the template's name and revision.
func (t *Template) Evidence() dispatch.Template { return t.evidence }

// Intent returns the intent with the template's parts filled in and the
// template as its evidence. Everything else in its content stays as it is:
// recipients, sender, attachments. An error names the part and says nothing of
// the data; the intent's own checks come with the enqueue.
func (t *Template) Intent(i dispatch.Intent, data any) (dispatch.Intent, error) {
	var err error
	switch c := i.Content.(type) {
	case dispatch.SMS:
		if t.subject != nil || t.html != nil || t.text == nil {
			return i, fmt.Errorf("render: template %q is not one for an SMS: it has more than a text, or none", t.evidence.Name)
		}
		err = t.fill(&c.Body, "text", t.text, data)
		i.Content = c
	case dispatch.Email:
		err = errors.Join(
			t.fill(&c.Subject, "subject", t.subject, data),
			t.fill(&c.Text, "text", t.text, data),
			t.fill(&c.HTML, "html", t.html, data))
		i.Content = c
	default:
		err = &dispatch.FieldError{Field: "Content", Reason: "is neither an SMS nor an Email value"}
	}
	i.Template = t.evidence
	return i, err
}

func (t *Template) fill(to *string, name string, part executer, data any) error {
	if part == nil {
		return nil
	}
	if *to != "" {
		return fmt.Errorf("render: template %q: %s is filled already", t.evidence.Name, name)
	}
	var w bounded
	if err := part.Execute(&w, data); err != nil {
		if w.full {
			return fmt.Errorf("render: template %q: %s is larger than %d bytes", t.evidence.Name, name, dispatch.MaxEmail)
		}
		return fmt.Errorf("render: template %q: %s: %w", t.evidence.Name, name, hidden(err))
	}
	*to = w.String()
	if name == "subject" {
		*to = strings.TrimSpace(*to)
	}
	return nil
}

// hidden keeps of an error what the template's author needs, and nothing that
// quotes a value: where it happened, not what was there.
func hidden(err error) error {
	if escape := (*htmltemplate.Error)(nil); errors.As(err, &escape) {
		return escape // about the template alone, before any value
	}
	where, _, found := strings.Cut(err.Error(), ">: ") // template: text:1:9: executing "text" at <.Name>: ...
	if !found {
		return errors.New("can't be executed with these data")
	}
	return errors.New(where + ">: no such value, or one that doesn't fit")
}

// bounded takes as much as a mail may have.
type bounded struct {
	strings.Builder

	full bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > dispatch.MaxEmail {
		b.full = true
		return 0, io.ErrShortBuffer
	}
	return b.Builder.Write(p)
}
