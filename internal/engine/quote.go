package engine

import (
	"errors"
	"strings"

	"github.com/seed-8098fbb7/dispatch"
)

// shown takes a code that repeats what the message says to where the vendor's
// words go. Its form can't tell a code of the vendor's from the login code in
// the text.
func (a Attempt) shown(err error) error {
	if err == nil {
		return nil
	}
	var f *dispatch.Fault
	if !errors.As(err, &f) || f == nil || f.Evidence.Code == "" || !Quotes(a.Envelope.Content, f.Evidence.Code) {
		return err
	}
	g := *f
	g.Evidence.Code, g.Evidence.Reason = "", f.Evidence.Code+" "+f.Evidence.Reason
	return &g
}

// Quotes reports whether s holds a recipient of the message, or a word of its
// text that stands for something: four digits or more in it.
func Quotes(c dispatch.Content, s string) bool {
	if s == "" {
		return false
	}
	switch c := c.(type) {
	case dispatch.SMS:
		return Names(c, s) || quotesText(c.Body, s)
	case dispatch.Email:
		return Names(c, s) || quotesText(c.Subject, s) || quotesText(c.Text, s) || quotesText(c.HTML, s)
	}
	return false
}

// Names reports whether s holds a recipient of the message.
func Names(c dispatch.Content, s string) bool {
	switch c := c.(type) {
	case dispatch.SMS:
		return strings.Contains(s, strings.TrimPrefix(c.To, "+"))
	case dispatch.Email:
		for _, list := range [...][]dispatch.Address{c.To, c.CC, c.BCC} {
			for _, to := range list {
				if containsFold(s, to.Email) {
					return true
				}
			}
		}
	}
	return false
}

func containsFold(s, part string) bool {
	return part != "" && strings.Contains(strings.ToLower(s), strings.ToLower(part))
}

// quotesText looks for the text's runs of letters and digits with four digits
// or more: codes, numbers of orders and accounts.
func quotesText(text, s string) bool {
	begin, digits := 0, 0
	for i := 0; i <= len(text); i++ {
		b := byte(0)
		if i < len(text) {
			b = text[i]
		}
		switch {
		case '0' <= b && b <= '9':
			digits++
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', b == '_', b == '-':
		default:
			if digits >= 4 && strings.Contains(s, text[begin:i]) {
				return true
			}
			begin, digits = i+1, 0
		}
	}
	return false
}
