package canon_test

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch/internal/canon"
)

func TestFormIsTagLengthBytes(t *testing.T) {
	w := canon.New(2, 0)
	w.PutString(1, "ab")
	w.Put(2, nil)
	w.PutString(3, "")
	w.PutString(4, strings.Repeat("x", 128))
	w.PutGroup(5, "a", "", "bc")
	w.PutGroup(5, "", "")
	want := "01 02 | 01 02 6162 | 04 8001 " + strings.Repeat("78", 128) + " | 05 06 01 61 00 02 6263 | 05 02 00 00"
	assert.Equal(t, strings.NewReplacer(" ", "", "|", "").Replace(want), hex.EncodeToString(w.Bytes()))

	r, err := canon.Open(w.Bytes())
	require.NoError(t, err)
	assert.Equal(t, byte(2), r.Kind())
	var tags []byte
	for {
		tag, v, more, err := r.Next()
		require.NoError(t, err)
		if !more {
			break
		}
		tags = append(tags, tag)
		if tag == 5 && len(v) > 2 {
			g, err := canon.Group(v, 3)
			require.NoError(t, err)
			assert.Equal(t, []string{"a", "", "bc"}, g)
		}
	}
	assert.Equal(t, []byte{1, 4, 5, 5}, tags)
}

func TestWriterRefusesAnotherOrder(t *testing.T) {
	w := canon.New(1, 0)
	w.PutString(2, "a")
	assert.Panics(t, func() { w.PutString(1, "b") })
	w = canon.New(1, 0)
	w.Put(2, nil)
	assert.Panics(t, func() { w.PutString(1, "b") }, "an empty field counts for the order too")
}

// One message has one form: what is cut, padded, reordered or of another
// release is refused, never misread.
func TestReaderRefuses(t *testing.T) {
	for name, form := range map[string]string{
		"empty":                  "",
		"version only":           "01",
		"version 0":              "0001",
		"a later version":        "0201",
		"cut after a tag":        "010101",
		"cut in a length":        "01010180",
		"cut in bytes":           "0101010361",
		"an empty field":         "01010100",
		"order":                  "0101" + "020161" + "010161",
		"a length with padding":  "0101018200" + "6162",
		"a length past the int":  "010101ffffffffffffffffff01" + "61",
		"a length past the uint": "010101ffffffffffffffffffff01" + "61",
	} {
		t.Run(name, func(t *testing.T) {
			b, err := hex.DecodeString(form)
			require.NoError(t, err)
			require.ErrorIs(t, walk(b), canon.ErrForm)
		})
	}
	_, err := canon.Open(make([]byte, canon.MaxSize+1))
	require.ErrorIs(t, err, canon.ErrForm)

	for name, g := range map[string]string{"none": "", "too few": "0161", "too many": "0161" + "0162" + "0163", "cut": "0161" + "02" + "62", "padded": "0161" + "8100" + "62"} {
		b, err := hex.DecodeString(g)
		require.NoError(t, err)
		_, err = canon.Group(b, 2)
		require.ErrorIs(t, err, canon.ErrForm, name)
	}
}

func walk(form []byte) error {
	r, err := canon.Open(form)
	if err != nil {
		return err
	}
	for {
		_, _, more, err := r.Next()
		if err != nil || !more {
			return err
		}
	}
}

// The digest is over route and form, apart: neither can lend bytes to the
// other.
func TestDigest(t *testing.T) {
	of := func(route, form string) string {
		d := canon.Digest(route, []byte(form))
		return hex.EncodeToString(d[:])
	}
	plain := of("sms", "form")
	assert.Equal(t, plain, of("sms", "form"))
	for name, other := range map[string]string{
		"form": of("sms", "forM"), "route": of("smt", "form"), "border": of("smsf", "orm"), "other border": of("sm", "sform"),
		"no route": of("", "smsform"),
	} {
		assert.NotEqual(t, plain, other, name)
	}
}

// Whatever the reader accepts, the writer writes again byte for byte.
func FuzzReader(f *testing.F) {
	for _, s := range []string{"", "0101", "0101010161", "0102010161020162", "0102010161010162", "0101018200"} {
		b, err := hex.DecodeString(s)
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, form []byte) {
		kept := bytes.Clone(form)
		r, err := canon.Open(form)
		if err != nil {
			require.ErrorIs(t, err, canon.ErrForm)
			return
		}
		w := canon.New(r.Kind(), 0)
		for {
			tag, v, more, err := r.Next()
			if err != nil {
				require.ErrorIs(t, err, canon.ErrForm)
				return
			}
			if !more {
				break
			}
			w.Put(tag, v)
			for n := range 4 {
				if g, err := canon.Group(v, n); err == nil && len(v) > 0 {
					again := canon.New(1, 0)
					again.PutGroup(tag, g...)
					_, field, _, err := open(again.Bytes())
					require.NoError(t, err)
					require.Equal(t, v, field)
				}
			}
		}
		require.Equal(t, kept, w.Bytes())
		require.Equal(t, kept, form, "reading changes nothing")
	})
}

func open(form []byte) (byte, []byte, bool, error) {
	r, err := canon.Open(form)
	if err != nil {
		return 0, nil, false, err
	}
	return r.Next()
}
