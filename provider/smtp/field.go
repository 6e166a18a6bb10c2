package smtp

import (
	"fmt"
	"strings"

	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

// fold breaks a header field's value at blanks, so that its lines have at most
// 78 characters where words allow it (RFC 5322 section 2.1.1). No value that
// fits into an email has a word above the hard limit of 998. No line is made
// of blanks alone: those of a value with several in a row stay together.
func fold(name, value string) string {
	var b strings.Builder
	column, ink := len(name)+1, true
	for i, word := range strings.Split(value, " ") {
		if i > 0 {
			if word != "" && ink && column+1+len(word) > 78 {
				b.WriteString("\r\n")
				column, ink = 0, false
			}
			b.WriteByte(' ')
		}
		b.WriteString(word)
		column += 1 + len(word)
		ink = ink || word != ""
	}
	return b.String()
}

// text is a value that readers see as it is: in encoded words (RFC 2047)
// unless it is plain, and no reader would take a part of it for one.
func text(s string) string {
	if printable(s) && !strings.Contains(s, "=?") && !strings.Contains(s, "  ") && strings.TrimSpace(s) == s {
		return s
	}
	return mailapi.EncodedWords(s)
}

// raw is the value of a caller's own field, which is as it must be written but
// for letters that no header carries.
func raw(s string) string {
	if printable(s) {
		return s
	}
	return mailapi.EncodedWords(s)
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c > '~' })
}

// disposition is a Content-Disposition (RFC 2183) with a file's name: where it
// isn't plain in the form of RFC 2231, with one in ASCII beside it for those
// who don't read that.
func disposition(kind, name string) string {
	plain := strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			return '_'
		}
		return c
	}, name)
	s := kind + `; filename="` + plain + `"`
	if plain == name {
		return s
	}
	var b strings.Builder
	for _, c := range []byte(name) {
		if c > ' ' && c <= '~' && mailapi.Plain(string(rune(c)), "!#$&+-.^_`|~") { // attr-char of RFC 5987
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return s + "; filename*=utf-8''" + b.String()
}
