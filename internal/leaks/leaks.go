// Package leaks searches what a test program lets out for what must not be in
// it: recipients, texts of messages, credentials. Main of package pgtest leads
// the program's log here, notes what the library wrote into its tables in words
// of its own, and lets the program fail where something is found.
package leaks

import (
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Suite is what this test program lets out.
var Suite Search

// Search keeps what was let out, and which texts must not be in it. The zero
// value is ready. It is safe for concurrent use.
type Search struct {
	mu    sync.Mutex
	lines map[string]string // the first line of each shape, with where it was let out
	texts map[string]bool   // shapes
}

// known is what is found by its form, so that no test can forget to name it:
// E.164 numbers, those of the tests without their sign too, mail addresses, and
// what the tests write into their credentials and codes.
var known = regexp.MustCompile(`\+[1-9][0-9]{6}|` + digits + `|[^\s'<>(),:;@]@[A-Za-z0-9-]+\.[A-Za-z]|(?i:hunter|sentinel|zebra)`)

const digits = `1555[0-9]{7}|1500555[0-9]{4}|482901`

var telling = regexp.MustCompile(`^(` + digits + `)$`)

// shape is a text without what differs from one line of a kind to the next: keys
// and other digits than those of a recipient, and what quoting does to it.
func shape(text string) string {
	var b strings.Builder
	last := byte(' ')
	for len(text) > 0 {
		n, as := 1, text[:1]
		switch c := text[0]; {
		case len(text) >= 36 && text[8] == '-' && text[13] == '-' && text[18] == '-' && text[23] == '-':
			n, as = 36, "KEY"
		case '0' <= c && c <= '9':
			for n < len(text) && '0' <= text[n] && text[n] <= '9' {
				n++
			}
			if as = text[:n]; last != '+' && (last == '.' || !telling.MatchString(as)) { // a fraction has any digits
				as = "0"
			}
		case c == '\\' && len(text) > 1 && strings.IndexByte("nrt", text[1]) >= 0:
			n, as = 2, " "
		case c == '\\' || c == '"':
			as = ""
		case c == '\n' || c == '\r' || c == '\t':
			as = " "
		}
		if text = text[n:]; as == "" || as == " " && last == ' ' {
			continue
		}
		b.WriteString(as)
		last = as[len(as)-1]
	}
	return strings.TrimSpace(b.String())
}

// Note keeps what was let out, and where.
func (s *Search) Note(where, line string) {
	kind := shape(line)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lines == nil {
		s.lines = map[string]string{}
	}
	if s.lines[kind] == "" {
		s.lines[kind] = where + ": " + strings.TrimSpace(line)
	}
}

// A text is looked for by its first words. One that is shorter than minText, or
// that is a word of the library's own or a name of a test's, is everywhere.
const (
	firstWords = 6
	minText    = 4
)

var common = strings.Fields("sent held dead cancelled waits lost refused first second other")

// Forbid adds texts that must not be let out, before or after.
func (s *Search) Forbid(texts ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.texts == nil {
		s.texts = map[string]bool{}
	}
	for _, text := range texts {
		words := strings.Fields(shape(text))
		kind := strings.Join(words[:min(len(words), firstWords)], " ")
		if len(kind) >= minText && !slices.Contains(common, kind) {
			s.texts[kind] = true
		}
	}
}

// Found are the lines with something in them that must not be there, one of a
// kind, after what that is.
func (s *Search) Found() (found []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for kind, line := range s.lines {
		bad := known.FindString(kind)
		for text := range s.texts {
			if bad == "" && holds(kind, text) {
				bad = text
			}
		}
		if bad != "" {
			found = append(found, fmt.Sprintf("%q in %.1000s", bad, line))
		}
	}
	return found
}

// holds reports whether a text stands in a line, and not in the middle of a word.
func holds(line, text string) bool {
	for {
		before, after, ok := strings.Cut(line, text)
		if !ok {
			return false
		}
		last, _ := utf8.DecodeLastRuneInString(before)
		next, _ := utf8.DecodeRuneInString(after)
		if !inWord(last) && !inWord(next) {
			return true
		}
		line = line[len(before)+1:]
	}
}

func inWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// Logger notes each record, as text and as JSON: a value may show itself in one
// of them alone. Other handlers get it too.
func (s *Search) Logger(others ...slog.Handler) *slog.Logger {
	o := &slog.HandlerOptions{AddSource: true, Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration { // in JSON, nanoseconds have all digits some day
			a.Value = slog.StringValue(a.Value.Duration().String())
		}
		return a
	}}
	return slog.New(slog.NewMultiHandler(append(others, slog.NewTextHandler(page{s}, o), slog.NewJSONHandler(page{s}, o))...))
}

// page is a log's way into a Search: a handler writes a record at a time.
type page struct{ *Search }

func (p page) Write(line []byte) (int, error) {
	p.Note("log", string(line))
	return len(line), nil
}
