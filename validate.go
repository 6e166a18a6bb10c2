package dispatch

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Limits of an intent. What is larger is refused when it is enqueued.
const (
	// MaxSMSBody is the longest text in UTF-16 units: ten parts, beyond which
	// vendors refuse or cut.
	MaxSMSBody = 1600
	// MaxEmail is the largest mail in bytes, attachments counted as they are
	// sent, in base64.
	MaxEmail = 25 << 20
	// MaxRecipients is how many addresses one mail may have in all.
	MaxRecipients = 50
	// MaxMetadata is the size of all keys and values in bytes.
	MaxMetadata = 8 << 10
)

// Normalize returns the intent as it is stored, with every number and address
// in its one spelling, or a *[FieldError] that says what is wrong. Enqueue and
// Do call it; it is here for callers who want to check earlier.
func (i Intent) Normalize() (Intent, error) {
	if reason := i.Key.fault(); reason != "" {
		return i, &FieldError{Field: "Key", Reason: reason}
	}
	if i.Route != "" {
		if err := ValidName(i.Route); err != nil {
			return i, &FieldError{Field: "Route", Reason: err.Error()}
		}
	}
	if i.Provider != "" {
		if err := ValidName(i.Provider); err != nil {
			return i, &FieldError{Field: "Provider", Reason: err.Error()}
		}
	}
	if err := i.checkTimes(); err != nil {
		return i, err
	}
	if err := i.checkLabels(); err != nil {
		return i, err
	}
	switch c := i.Content.(type) {
	case SMS:
		c, err := c.normalize()
		i.Content = c
		return i, err
	case Email:
		return i, c.check()
	case nil:
		return i, &FieldError{Field: "Content", Reason: "is missing"}
	default: // a type that embeds one of ours to get past sealed
		return i, &FieldError{Field: "Content", Reason: "is neither an SMS nor an Email value"}
	}
}

func (i Intent) checkTimes() error {
	switch {
	case i.ValidFor != 0 && !i.Deadline.IsZero():
		return &FieldError{Field: "Deadline", Reason: "and ValidFor are both set, want one"}
	case i.ValidFor < 0 && i.ValidFor != Never:
		return &FieldError{Field: "ValidFor", Reason: "is negative"}
	case i.ValidFor > maxValidity:
		return &FieldError{Field: "ValidFor", Reason: "is above ten years, want Never"}
	case !sane(i.Deadline):
		return &FieldError{Field: "Deadline", Reason: "is outside the years 2000 to 2200"}
	case !sane(i.NotBefore):
		return &FieldError{Field: "NotBefore", Reason: "is outside the years 2000 to 2200"}
	case !i.Deadline.IsZero() && !i.NotBefore.Before(i.Deadline):
		return &FieldError{Field: "Deadline", Reason: "is not after NotBefore"}
	case i.ValidFor > 0 && time.Until(i.NotBefore) >= i.ValidFor:
		return &FieldError{Field: "ValidFor", Reason: "ends before NotBefore"}
	}
	return nil
}

func sane(t time.Time) bool { return t.IsZero() || t.Year() >= 2000 && t.Year() < 2200 }

func (i Intent) checkLabels() error {
	if i.Priority < 0 || i.Priority > Low {
		return &FieldError{Field: "Priority", Reason: fmt.Sprintf("%d is unknown", i.Priority)}
	}
	if i.Notify&^notifyAll != 0 {
		return &FieldError{Field: "Notify", Reason: "has an unknown event"}
	}
	if err := i.OnUnknown.validate(); err != nil {
		return &FieldError{Field: "OnUnknown", Reason: err.Error()}
	}
	for _, l := range []struct {
		field, value string
		most         int
	}{{"Template.Name", i.Template.Name, 200}, {"Template.Revision", i.Template.Revision, 200}, {"TraceParent", i.TraceParent, 128}} {
		if reason := lineFault(l.value, l.most); reason != "" {
			return &FieldError{Field: l.field, Reason: reason}
		}
	}
	if !i.Linked.IsZero() {
		if reason := i.Linked.fault(); reason != "" {
			return &FieldError{Field: "Linked", Reason: reason}
		}
		if i.Linked == i.Key {
			return &FieldError{Field: "Linked", Reason: "is the message itself"}
		}
	}
	return i.checkMetadata()
}

func (i Intent) checkMetadata() error {
	size := 0
	for k, v := range i.Metadata {
		size += len(k) + len(v)
	}
	if size > MaxMetadata {
		return &FieldError{Field: "Metadata", Reason: fmt.Sprintf("has %d bytes, at most %d are kept", size, MaxMetadata)}
	}
	for _, k := range slices.Sorted(maps.Keys(i.Metadata)) { // in order: the same mistake, the same error
		if k == "" {
			return &FieldError{Field: "Metadata", Reason: "has an empty name"}
		}
		if reason := lineFault(k, 200); reason != "" {
			return &FieldError{Field: "Metadata", Reason: "has a name that " + reason}
		}
		if reason := textFault(i.Metadata[k]); reason != "" {
			return &FieldError{Field: "Metadata", Reason: "has a value that " + reason}
		}
	}
	return nil
}

// deadline is the moment after which nothing is sent, zero for never, for a
// caller without a database.
func (i Intent) deadline(now time.Time, p Policy) time.Time {
	valid := i.ValidFor
	if valid == 0 {
		valid = p.ValidFor
	}
	if !i.Deadline.IsZero() || valid == Never {
		return i.Deadline
	}
	return now.Add(valid)
}

// ValidName reports why s can't name a route or a provider: 1 to 40 characters
// of a-z, 0-9, "-" and "_".
func ValidName(s string) error {
	if s == "" {
		return errors.New("is empty")
	}
	if len(s) > 40 {
		return errors.New("is longer than 40 characters")
	}
	for _, c := range s {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return errors.New(`has a character other than a-z, 0-9, "-" and "_"`)
		}
	}
	return nil
}

// textFault says why a text can't be stored and sent.
func textFault(s string) string {
	if i := strings.IndexByte(s, 0); i >= 0 {
		return fmt.Sprintf("has a NUL at byte %d", i)
	}
	if !utf8.ValidString(s) {
		return "is not valid UTF-8"
	}
	return ""
}

// lineFault says why s can't stand in a header field or a label.
func lineFault(s string, most int) string {
	if reason := textFault(s); reason != "" {
		return reason
	}
	if len(s) > most {
		return fmt.Sprintf("has %d bytes, at most %d fit", len(s), most)
	}
	for i, c := range s {
		if c == '\r' || c == '\n' {
			return fmt.Sprintf("has a line break at byte %d", i)
		}
		if unicode.In(c, unicode.Cc, unicode.Zl, unicode.Zp) {
			return fmt.Sprintf("has control character %U at byte %d", c, i)
		}
	}
	return ""
}

// blank reports whether a reader would see nothing.
func blank(s string) bool {
	for _, c := range s {
		if !unseen(c) {
			return false
		}
	}
	return true
}

// unseen reports whether c leaves no ink: spaces, control and format
// characters, and the letters and marks that Unicode has for filling.
func unseen(c rune) bool {
	return unicode.IsSpace(c) || unicode.In(c, unicode.Cc, unicode.Cf, unicode.Zs, unicode.Zl, unicode.Zp,
		unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point) || c == '\u2800' // empty braille pattern
}

// clean cuts s to at most n bytes at a rune boundary and replaces what does
// not belong into one line.
func clean(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp) {
			return '?'
		}
		return r
	}, s)
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

func itoa(n int) string { return strconv.Itoa(n) }
