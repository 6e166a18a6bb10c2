// Package form turns content into its stored form and back. Tags are never
// used again for another meaning; a new field gets a new tag, and only a
// change of what old bytes mean gets a new version in package canon.
package form

import (
	"bytes"
	"fmt"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/canon"
)

// Tags of an SMS.
const (
	smsTo     = 1
	smsSender = 2
	smsBody   = 3
)

// Tags of an Email.
const (
	emailSender     = 1
	emailTo         = 2
	emailCC         = 3
	emailBCC        = 4
	emailReplyTo    = 5
	emailSubject    = 6
	emailText       = 7
	emailHTML       = 8
	emailHeader     = 9
	emailAttachment = 10
	emailTag        = 11
	emailTemplate   = 12
)

// emailLists are the tags that may stand more than once.
var emailLists = []byte{emailTo, emailCC, emailBCC, emailReplyTo, emailHeader, emailAttachment, emailTag}

// unpinned stands in a template's group where it was accepted without a
// revision.
const unpinned = "unpinned"

// Encode returns the stored form of normalized content.
func Encode(c dispatch.Content) []byte {
	switch c := c.(type) {
	case dispatch.SMS:
		w := canon.New(byte(dispatch.ChannelSMS), len(c.To)+len(c.Sender)+len(c.Body)+16)
		w.PutString(smsTo, c.To)
		w.PutString(smsSender, c.Sender)
		w.PutString(smsBody, c.Body)
		return w.Bytes()
	case dispatch.Email:
		return encodeEmail(c)
	}
	return nil
}

func encodeEmail(c dispatch.Email) []byte {
	size := 256 + len(c.Subject) + len(c.Text) + len(c.HTML)
	for _, a := range c.Attachments {
		size += len(a.Data) + len(a.Name) + 64
	}
	w := canon.New(byte(dispatch.ChannelEmail), size)
	w.PutString(emailSender, c.Sender)
	addresses(w, emailTo, c.To)
	addresses(w, emailCC, c.CC)
	addresses(w, emailBCC, c.BCC)
	addresses(w, emailReplyTo, c.ReplyTo)
	w.PutString(emailSubject, c.Subject)
	w.PutString(emailText, c.Text)
	w.PutString(emailHTML, c.HTML)
	for _, h := range c.Headers {
		w.PutGroup(emailHeader, h.Name, h.Value)
	}
	for _, a := range c.Attachments {
		w.PutGroup(emailAttachment, a.Name, a.Type, a.ContentID, string(a.Data))
	}
	for _, t := range c.Tags {
		w.PutString(emailTag, t)
	}
	if t := c.Template; t.ID != "" {
		pin := ""
		if t.Unpinned {
			pin = unpinned
		}
		w.PutGroup(emailTemplate, t.ID, t.Revision, pin, string(t.Data))
	}
	return w.Bytes()
}

func addresses(w *canon.Writer, tag byte, list []dispatch.Address) {
	for _, a := range list {
		w.PutGroup(tag, a.Email, a.Name)
	}
}

// Decode reads a stored form. An error means that this release can't read it;
// the row must be left alone.
func Decode(b []byte) (dispatch.Content, error) {
	r, err := canon.Open(b)
	if err != nil {
		return nil, err
	}
	switch dispatch.Channel(r.Kind()) { // #nosec G115 -- an unknown kind is refused below
	case dispatch.ChannelSMS:
		return decodeSMS(r)
	case dispatch.ChannelEmail:
		return decodeEmail(r)
	}
	return nil, fmt.Errorf("%w has kind %d", canon.ErrForm, r.Kind())
}

func decodeSMS(r *canon.Reader) (dispatch.Content, error) {
	var c dispatch.SMS
	err := each(r, nil, func(tag byte, v []byte) error {
		switch tag {
		case smsTo:
			c.To = string(v)
		case smsSender:
			c.Sender = string(v)
		case smsBody:
			c.Body = string(v)
		default:
			return unknownTag(tag)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

func decodeEmail(r *canon.Reader) (dispatch.Content, error) {
	var c dispatch.Email
	err := each(r, emailLists, func(tag byte, v []byte) (err error) {
		switch tag {
		case emailSender:
			c.Sender = string(v)
		case emailTo:
			c.To, err = address(c.To, v)
		case emailCC:
			c.CC, err = address(c.CC, v)
		case emailBCC:
			c.BCC, err = address(c.BCC, v)
		case emailReplyTo:
			c.ReplyTo, err = address(c.ReplyTo, v)
		case emailSubject:
			c.Subject = string(v)
		case emailText:
			c.Text = string(v)
		case emailHTML:
			c.HTML = string(v)
		case emailTag:
			c.Tags = append(c.Tags, string(v))
		default:
			return emailGroup(&c, tag, v)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

func emailGroup(c *dispatch.Email, tag byte, v []byte) error {
	switch tag {
	case emailHeader:
		g, err := canon.Group(v, 2)
		if err != nil {
			return err
		}
		c.Headers = append(c.Headers, dispatch.Header{Name: g[0], Value: g[1]})
	case emailAttachment:
		g, err := canon.Group(v, 4)
		if err != nil {
			return err
		}
		c.Attachments = append(c.Attachments, dispatch.Attachment{Name: g[0], Type: g[1], ContentID: g[2], Data: data(g[3])})
	case emailTemplate:
		g, err := canon.Group(v, 4)
		if err != nil {
			return err
		}
		if g[0] == "" || g[2] != "" && g[2] != unpinned {
			return fmt.Errorf("%w is not canonical at tag %d", canon.ErrForm, tag)
		}
		c.Template = dispatch.ProviderTemplate{ID: g[0], Revision: g[1], Unpinned: g[2] == unpinned, Data: data(g[3])}
	default:
		return unknownTag(tag)
	}
	return nil
}

func address(list []dispatch.Address, v []byte) ([]dispatch.Address, error) {
	g, err := canon.Group(v, 2)
	if err != nil {
		return nil, err
	}
	return append(list, dispatch.Address{Email: g[0], Name: g[1]}), nil
}

// each walks the fields. A tag that is no list and stands twice is refused:
// the form would have two readings.
func each(r *canon.Reader, lists []byte, field func(tag byte, v []byte) error) error {
	last := -1
	for {
		tag, v, ok, err := r.Next()
		if err != nil || !ok {
			return err
		}
		if int(tag) == last && bytes.IndexByte(lists, tag) < 0 {
			return fmt.Errorf("%w has tag %d twice", canon.ErrForm, tag)
		}
		last = int(tag)
		if err := field(tag, v); err != nil {
			return err
		}
	}
}

// data is nil for an empty file, as it is before it is stored.
func data(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}

func unknownTag(tag byte) error {
	return fmt.Errorf("%w has tag %d, which this release doesn't know", canon.ErrForm, tag)
}

// Sealed is the domain of sealed content, for Binding.
const Sealed = "dispatch content 1\x00"

// Binding ties what is sealed to its row: bytes that were moved into another
// one, or whose digest was changed, don't open.
func Binding(domain string, key dispatch.Key, digest []byte) []byte {
	b := make([]byte, 0, len(domain)+len(key)+len(digest))
	return append(append(append(b, domain...), key[:]...), digest...)
}
