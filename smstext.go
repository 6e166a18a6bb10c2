package dispatch

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// SMSEncoding is how the characters of a text message travel.
type SMSEncoding int8

// The encodings. The zero value is GSM7, as an empty text needs no more.
const (
	// GSM7 is the default alphabet of GSM 03.38 (3GPP TS 23.038 section 6.2.1)
	// with its extension table: septets.
	GSM7 SMSEncoding = 0
	// UCS2 is two bytes for each UTF-16 unit: one character outside GSM7 turns
	// the whole text into it.
	UCS2 SMSEncoding = 1
)

func (e SMSEncoding) String() string {
	switch e {
	case GSM7:
		return "GSM-7"
	case UCS2:
		return "UCS-2"
	}
	return "unknown encoding"
}

// SMSText is what a text costs. The zero value is that of an empty text.
type SMSText struct {
	// Encoding is the cheapest that can carry the text as it is.
	Encoding SMSEncoding
	// Units are the septets (GSM7) or UTF-16 units (UCS2) of the characters,
	// without what a split leaves empty.
	Units int
	// Parts is how many messages the network carries and a vendor bills.
	Parts int
}

// What fits into a text of one part, and into each part of a longer one: 140
// bytes, of which the header of a split text takes 6 (3GPP TS 23.040 section
// 9.2.3.24.1, with the 8-bit reference that vendors use).
const (
	gsmSingle, gsmPart   = 160, 153
	ucs2Single, ucs2Part = 70, 67
)

// The alphabets of 3GPP TS 23.038: the default one takes a septet, the
// extension two. The escape itself is no character that can be sent.
const (
	gsmBasic = "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?" +
		"¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
	gsmExtension = "\f^{}\\[~]|€"
)

// Segments tells in which encoding a text travels and in how many parts, as
// vendors bill it. A character is never split over two parts: neither the
// escape pair of an extension character nor a surrogate pair, so that a text
// may need one part more than its units suggest.
//
// The text is taken as it is. Composing it (NFC), or a vendor's smart
// encoding, may make it cheaper; nothing here changes it. An invalid byte
// counts as U+FFFD.
func Segments(body string) SMSText {
	t := SMSText{Encoding: GSM7}
	for _, c := range body {
		if septets(c) == 0 {
			t.Encoding = UCS2
			break
		}
	}
	width, single, part := septets, gsmSingle, gsmPart
	if t.Encoding == UCS2 {
		width, single, part = units, ucs2Single, ucs2Part
	}
	used := 0 // of the last part, if the text is split
	for _, c := range body {
		n := width(c)
		t.Units += n
		if used += n; used > part || t.Parts == 0 {
			t.Parts++
			used = n
		}
	}
	if t.Units > 0 && t.Units <= single {
		t.Parts = 1
	}
	return t
}

// septets is how many septets a character takes, 0 where it has none.
func septets(c rune) int {
	switch {
	case c != utf8.RuneError && strings.ContainsRune(gsmBasic, c):
		return 1
	case strings.ContainsRune(gsmExtension, c):
		return 2
	}
	return 0
}

// units is how many UTF-16 units a character takes.
func units(c rune) int {
	if c > 0xffff {
		return 2
	}
	return 1
}

// ValidSender reports why s can't be the sender of a text message: it is a
// number in E.164 form ("+15555550100"), a short code of 3 to 8 digits, or a
// name of 1 to 11 letters, digits, spaces and "-", "+", "_" and "&" with at
// least one letter in it. That is the widest that vendors document (Twilio's
// AlphaSender resource); many take only letters, digits and spaces, and
// networks in the United States and Canada no name at all. The error doesn't
// quote the sender.
func ValidSender(s string) error {
	digits, letters := 0, 0
	for i, c := range s {
		switch {
		case c >= '0' && c <= '9':
			digits++
		case c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z':
			letters++
		case strings.ContainsRune(" -+_&", c):
		default:
			return fmt.Errorf("has %s at byte %d, want letters, digits, spaces and -+_&", describe(c), i)
		}
	}
	switch {
	case s == "":
		return errors.New("is empty")
	case letters > 0 && len(s) > 11:
		return fmt.Errorf("is a name of %d characters, at most 11 are shown", len(s))
	case letters > 0:
		return nil
	case digits == len(s) && digits >= 3 && digits <= 8:
		return nil
	case digits == len(s):
		return fmt.Errorf("has %d digits: a short code has 3 to 8, and a number begins with +", digits)
	}
	n, err := ParseNumber(s)
	if err != nil {
		return err
	}
	if n != s {
		return errors.New("is a number with other characters in it, want E.164 form")
	}
	return nil
}
