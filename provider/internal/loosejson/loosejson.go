// Package loosejson reads JSON as vendors write it: a byte order mark in
// front, numbers where the documents say strings, null anywhere.
package loosejson

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"unicode/utf8"
)

// Text is a string or a number, digit for digit, and "" for anything else:
// an id of seventeen digits must not go through a float.
type Text string

// UnmarshalJSON takes every valid value. What is neither a string nor a
// number is "".
func (t *Text) UnmarshalJSON(b []byte) error {
	*t = ""
	switch c := b[0]; {
	case c == '"':
		var s string
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
		*t = Text(s)
	case c == '-' || c >= '0' && c <= '9':
		*t = Text(b)
	}
	return nil
}

// Word is t where it can be an id or a code: at most limit bytes of valid
// UTF-8 without control characters, blanks around it removed; otherwise "".
func (t Text) Word(limit int) string {
	s := strings.TrimSpace(string(t))
	if len(s) > limit || strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f || c == utf8.RuneError }) {
		return ""
	}
	return s
}

// Cut is t as a sentence for operators: valid UTF-8 without NUL, at most
// limit bytes.
func (t Text) Cut(limit int) string {
	s := strings.ReplaceAll(strings.ToValidUTF8(string(t), ""), "\x00", "")
	if len(s) <= limit {
		return s
	}
	for !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// Decode reads one JSON value into v and refuses anything behind it.
func Decode(b []byte, v any) error {
	d := decoder(b)
	if err := d.Decode(v); err != nil {
		return err
	}
	return end(d)
}

func decoder(b []byte) *json.Decoder {
	d := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))))
	d.UseNumber()
	return d
}

func end(d *json.Decoder) error {
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON value")
	}
	return nil
}

// Flat reads an object whose values are all strings, numbers, booleans or
// null, as text, null being "". A name that stands twice is an error: two
// readers would see two objects.
func Flat(b []byte) (map[string]string, error) {
	d := decoder(b)
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("no JSON object")
	}
	out := map[string]string{}
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, errors.New("JSON object is broken")
		}
		if _, twice := out[name]; twice {
			return nil, errors.New("a name stands twice")
		}
		if t, err = d.Token(); err != nil {
			return nil, errors.New("JSON object is broken")
		}
		switch v := t.(type) {
		case string:
			out[name] = v
		case json.Number:
			out[name] = v.String()
		case bool:
			out[name] = map[bool]string{true: "true", false: "false"}[v]
		case nil:
			out[name] = ""
		default:
			return nil, errors.New("a value is no plain one")
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, errors.New("JSON object is broken")
	}
	return out, end(d)
}
