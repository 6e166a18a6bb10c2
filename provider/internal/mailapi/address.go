package mailapi

import (
	"encoding/base64"
	"errors"
	"net/mail"
	"strings"
	"unicode/utf8"

	"github.com/seed-8098fbb7/dispatch"
)

// From is the sender of an envelope, or the configured one. Its error is a
// fault of the sender and doesn't quote it.
func From(registered, configured string) (dispatch.Address, error) {
	if registered == "" {
		registered = configured
	}
	if registered == "" {
		return dispatch.Address{}, Refuse(Sender("sender is missing"), errors.New("no sender"))
	}
	a, err := ParseSender(registered)
	if err != nil {
		return dispatch.Address{}, Refuse(Sender("sender is no mail address"), err)
	}
	return a, nil
}

// ParseSender reads a sender as it is registered: "ada@example.com" or
// "Shop <no-reply@shop.example>". A name that hides a control character in an
// encoded word is refused. Its error doesn't quote it.
func ParseSender(s string) (dispatch.Address, error) {
	a, err := mail.ParseAddress(s)
	if err != nil {
		return dispatch.Address{}, errors.New("is no mail address")
	}
	if strings.ContainsFunc(a.Name+a.Address, func(c rune) bool { return c < ' ' || c == 0x7f || c == utf8.RuneError }) {
		return dispatch.Address{}, errors.New("has a control character")
	}
	return dispatch.Address{Name: a.Name, Email: a.Address}, nil
}

// Standard writes an address as RFC 5322 has it: its name in quotes, or in
// encoded words where it isn't ASCII. (net/mail's own form of a name with both
// a backslash and other letters can't be read again, by net/mail neither.)
func Standard(a dispatch.Address) string {
	if a.Name == "" || !ascii(a.Name) || strings.Contains(a.Name, "=?") {
		return Words(a)
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(a.Name) + `" <` + a.Email + ">"
}

// Special reports whether a name holds what RFC 5322 allows in quotes only.
func Special(name string) bool { return strings.ContainsAny(name, `()<>[]:;@\,."`) }

// Words writes an address with its name in encoded words (RFC 2047, base64)
// wherever it isn't plain letters, for vendors that refuse quoted names.
func Words(a dispatch.Address) string {
	if a.Name == "" {
		return a.Email
	}
	if ascii(a.Name) && !Special(a.Name) && !strings.Contains(a.Name, "=?") {
		return a.Name + " <" + a.Email + ">"
	}
	return EncodedWords(a.Name) + " <" + a.Email + ">"
}

// EncodedWords writes text as encoded words of RFC 2047 in base64, each short
// enough for one.
func EncodedWords(s string) string {
	var words []string
	for s != "" {
		n := 0
		for n < len(s) {
			_, size := utf8.DecodeRuneInString(s[n:])
			if n+size > 42 { // 42 bytes are 56 characters, a word has at most 75
				break
			}
			n += size
		}
		words = append(words, "=?utf-8?b?"+base64.StdEncoding.EncodeToString([]byte(s[:n]))+"?=")
		s = s[n:]
	}
	return strings.Join(words, " ")
}

func ascii(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return c >= utf8.RuneSelf })
}

// Map writes a list of addresses, nil for none.
func Map(list []dispatch.Address, write func(dispatch.Address) string) []string {
	var out []string
	for _, a := range list {
		out = append(out, write(a))
	}
	return out
}
