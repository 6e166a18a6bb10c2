package dispatch

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
)

func (s SMS) normalize() (SMS, error) {
	to, err := ParseNumber(s.To)
	if err != nil {
		return s, &FieldError{Field: "Content.To", Reason: err.Error()}
	}
	s.To = to
	if reason := lineFault(s.Sender, 100); reason != "" {
		return s, &FieldError{Field: "Content.Sender", Reason: reason}
	}
	if reason := textFault(s.Body); reason != "" {
		return s, &FieldError{Field: "Content.Body", Reason: reason}
	}
	if blank(s.Body) {
		return s, &FieldError{Field: "Content.Body", Reason: "is empty"}
	}
	units := 0
	for _, c := range s.Body {
		units += utf16.RuneLen(c)
	}
	if units > MaxSMSBody {
		return s, &FieldError{Field: "Content.Body", Reason: fmt.Sprintf("has more than %d UTF-16 units", MaxSMSBody)}
	}
	return s, nil
}

// ParseNumber returns a phone number in E.164 form ("+15555550123"): a plus, a
// digit from 1 to 9, and 6 to 14 further digits. Spaces, brackets, dots, dashes
// of all kinds and invisible format characters, as contact applications leave
// them, are removed first. A number without its plus is refused, since its
// country would be a guess, and so are digits of other scripts and a trunk
// prefix in brackets, "+44 (0)20", which is dialled inside the country only.
// The error doesn't quote the number.
func ParseNumber(s string) (string, error) {
	if len(s) > 100 {
		return "", numberError("is longer than 100 bytes")
	}
	var b strings.Builder
	bracket := 0
	for i, c := range s {
		switch {
		case c >= '0' && c <= '9', c == '+' && b.Len() == 0:
			b.WriteRune(c)
		case c == '(':
			bracket = b.Len()
		case c == ')' && b.String()[bracket:] == "0":
			return "", numberError("has a trunk prefix (0), which is not part of an international number")
		case unicode.In(c, unicode.Cf, unicode.Zs, unicode.Pd), c == ')', c == '.':
		default:
			return "", numberError(fmt.Sprintf("has %s at byte %d, want a number in E.164 form like +15555550123", describe(c), i))
		}
	}
	n := b.String()
	switch {
	case n == "":
		return "", numberError("is empty")
	case n[0] != '+':
		return "", numberError("has no leading +, want E.164 form like +15555550123")
	case len(n) < 8 || len(n) > 16:
		return "", numberError(fmt.Sprintf("has %d digits, want 7 to 15 in E.164 form", len(n)-1))
	case n[1] == '0':
		return "", numberError("has a country code that begins with 0")
	}
	return n, nil
}

type numberError string

func (e numberError) Error() string { return string(e) }

// describe names a character without quoting text around it.
func describe(c rune) string {
	if c == unicode.ReplacementChar {
		return "invalid UTF-8"
	}
	return fmt.Sprintf("character %U", c)
}

// CallingCode returns the ITU country calling code (ITU-T E.164, list of
// assigned codes) of a number in E.164 form: 1 for +15555550123, 0 where there
// is none. Zone 1 and zone 7 are one code each.
func CallingCode(number string) int {
	if len(number) < 4 || number[0] != '+' {
		return 0
	}
	n := 0
	for _, c := range number[1:4] {
		if c < '0' || c > '9' {
			return 0
		}
		n = n*10 + int(c-'0')
	}
	switch zone := n / 100; zone {
	case 0, 1, 7:
		return zone
	}
	if strings.Contains(" 20 27 30 31 32 33 34 36 39 40 41 43 44 45 46 47 48 49 51 52 53 54 55 56 57 58 60 61 62 63 64 65 66 81 82 84 86 90 91 92 93 94 95 98 ",
		fmt.Sprintf(" %d ", n/10)) {
		return n / 10
	}
	return n
}
