package smtp

import (
	"errors"
	netmail "net/mail"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// mailbox is an address as it is sent: its domain in A-labels (RFC 5891),
// which every server reads. A local part has no such form.
type mailbox string

// parseMailbox reads a bare address. What would need quotes is refused: an
// address stands in a command here, between angle brackets. Its error doesn't
// quote it.
func parseMailbox(s string) (mailbox, error) {
	a, err := netmail.ParseAddress(s)
	if err != nil || a.Name != "" || a.Address != s {
		return "", errors.New("is no bare mail address")
	}
	if strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c == 0x7f || c == utf8.RuneError || c == '<' || c == '>' }) {
		return "", errors.New("has a character that no command can carry")
	}
	at := strings.LastIndexByte(s, '@')
	domain := s[at+1:]
	if !ascii(domain) {
		if domain, err = idna.Lookup.ToASCII(domain); err != nil {
			return "", errors.New("has a domain that is no internationalized one")
		}
	}
	return mailbox(s[:at+1] + domain), nil
}

// utf8 reports whether only a server with SMTPUTF8 (RFC 6531) takes it.
func (m mailbox) utf8() bool { return !ascii(string(m)) }

func (m mailbox) domain() string { return string(m[strings.LastIndexByte(string(m), '@')+1:]) }

func ascii(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return c >= utf8.RuneSelf })
}
