// Package canon is the stored form of a message: fields in one fixed order,
// each a tag, a length and bytes, so that equal messages are equal bytes and
// a digest over them means something. It knows primitives only.
//
// A form begins with its version. Readers refuse versions and tags that they
// don't know: a row written by a newer release is left alone, not misread.
package canon

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

// Version is the version that Writer writes.
const Version = 1

// MaxSize bounds a form, as a guard against reading nonsense.
const MaxSize = 64 << 20

// Writer builds a form. The zero value is not usable; begin with New.
type Writer struct {
	buf  []byte
	last byte
}

// New begins a form of the given kind.
func New(kind byte, size int) *Writer {
	return &Writer{buf: append(make([]byte, 0, size+2), Version, kind)}
}

// Put adds a field; an empty one is left out. Tags must not go down: a form
// with its fields in another order would be other bytes for the same message,
// and is a mistake in the caller's code.
func (w *Writer) Put(tag byte, v []byte) {
	if tag < w.last {
		panic("canon: tags out of order")
	}
	w.last = tag
	if len(v) == 0 {
		return
	}
	w.buf = append(w.buf, tag)
	w.buf = binary.AppendUvarint(w.buf, uint64(len(v)))
	w.buf = append(w.buf, v...)
}

// PutString is Put for a string.
func (w *Writer) PutString(tag byte, v string) { w.Put(tag, []byte(v)) }

// PutGroup adds one field that holds several strings, empty ones too.
func (w *Writer) PutGroup(tag byte, vs ...string) {
	var b []byte
	for _, v := range vs {
		b = binary.AppendUvarint(b, uint64(len(v)))
		b = append(b, v...)
	}
	w.Put(tag, b)
}

// Bytes is the form.
func (w *Writer) Bytes() []byte { return w.buf }

// Reader walks a form.
type Reader struct {
	kind byte
	rest []byte
	last byte
}

// ErrForm is wrapped by all errors of reading.
var ErrForm = errors.New("stored form")

// Open checks the head of a form.
func Open(form []byte) (*Reader, error) {
	if len(form) < 2 || len(form) > MaxSize {
		return nil, fmt.Errorf("%w has %d bytes", ErrForm, len(form))
	}
	if form[0] != Version {
		return nil, fmt.Errorf("%w has version %d, this release reads %d", ErrForm, form[0], Version)
	}
	return &Reader{kind: form[1], rest: form[2:]}, nil
}

// Kind is the kind that New was given.
func (r *Reader) Kind() byte { return r.kind }

// Next returns the next field, ok false at the end. The bytes are the form's
// own.
func (r *Reader) Next() (tag byte, v []byte, ok bool, err error) {
	if len(r.rest) == 0 {
		return 0, nil, false, nil
	}
	tag = r.rest[0]
	v, rest, err := take(r.rest[1:])
	if err != nil {
		return 0, nil, false, err
	}
	if tag < r.last || len(v) == 0 {
		return 0, nil, false, fmt.Errorf("%w is not canonical at tag %d", ErrForm, tag)
	}
	r.last, r.rest = tag, rest
	return tag, v, true, nil
}

// Group splits what PutGroup wrote into exactly n strings.
func Group(v []byte, n int) ([]string, error) {
	out := make([]string, n)
	for i := range out {
		s, rest, err := take(v)
		if err != nil {
			return nil, err
		}
		out[i], v = string(s), rest
	}
	if len(v) != 0 {
		return nil, fmt.Errorf("%w has a group of more than %d parts", ErrForm, n)
	}
	return out, nil
}

func take(b []byte) (v, rest []byte, err error) {
	n, size := binary.Uvarint(b)
	if size <= 0 || size != len(binary.AppendUvarint(nil, n)) {
		return nil, nil, fmt.Errorf("%w has a broken length", ErrForm)
	}
	if n > uint64(len(b)-size) { // #nosec G115 -- size is at most len(b)
		return nil, nil, fmt.Errorf("%w is cut short", ErrForm)
	}
	return b[size : size+int(n)], b[size+int(n):], nil // #nosec G115 -- n is at most len(b)
}

// Digest is over what a key stands for: the route and the form, which holds
// content, recipient and logical sender.
func Digest(route string, form []byte) [sha256.Size]byte {
	h := sha256.New()
	head := binary.AppendUvarint([]byte("dispatch digest 1\x00"), uint64(len(route)))
	h.Write(append(head, route...))
	h.Write(form)
	var d [sha256.Size]byte
	h.Sum(d[:0])
	return d
}
