package form_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/canon"
	"github.com/seed-8098fbb7/dispatch/internal/form"
)

// golden is where the stored forms of messages lie; this is what they say.
const golden = "../../testdata/forms"

var messages = map[string]dispatch.Content{
	"sms":         dispatch.SMS{To: "+15555550100", Sender: "otp", Body: "Your code is 482901"},
	"sms-unicode": dispatch.SMS{To: "+15555550100", Body: "Grüße 👋\r\nzweite Zeile"},
	"sms-long":    dispatch.SMS{To: "+15555550100", Body: strings.Repeat("0123456789", 20)},
	"email":       dispatch.Email{Sender: "receipts", To: []dispatch.Address{{Email: "ada@example.com"}}, Subject: "Receipt", Text: "Thank you."},
	"email-full": dispatch.Email{
		Sender: "receipts",
		To:     []dispatch.Address{{Name: "Ada", Email: "ada@example.com"}, {Email: "müller@exämple.com"}},
		CC:     []dispatch.Address{{Name: "", Email: "cc@example.com"}}, BCC: []dispatch.Address{{Name: "B", Email: "bcc@example.com"}},
		ReplyTo: []dispatch.Address{{Name: "Help, desk", Email: "help@example.com"}},
		Subject: "Rechnung", Text: "Grüße", HTML: "<p>Grüße</p>",
		Headers:     []dispatch.Header{{Name: "X-Order", Value: "1"}, {Name: "List-Unsubscribe", Value: ""}, {Name: "X-Order", Value: "2"}},
		Attachments: []dispatch.Attachment{{Name: "a.bin", Type: "application/octet-stream", Data: []byte{0, 1, 255}}, {Name: "l.png", Type: "image/png", ContentID: "logo"}},
		Tags:        []string{"b", "a"},
		Template:    dispatch.ProviderTemplate{ID: "t", Revision: "7", Data: []byte(`{"a":1}`)},
	},
	"email-unpinned": dispatch.Email{To: []dispatch.Address{{Email: "ada@example.com"}}, Template: dispatch.ProviderTemplate{ID: "t", Unpinned: true}},
}

// A drift of the stored form would leave rows unreadable; a drift of the
// digest would take a repeated enqueue for another message. Files are only
// ever added here.
func TestStoredFormNeverDrifts(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(golden, "*.txt"))
	require.NoError(t, err)
	require.Len(t, files, len(messages), "one file for each message")
	for name, content := range messages {
		t.Run(name, func(t *testing.T) {
			file, err := os.ReadFile(filepath.Join(golden, name+".txt"))
			require.NoError(t, err)
			got := render(strings.Split(name, "-")[0], form.Encode(content))
			assert.Equal(t, string(file), got)

			stored := field(t, string(file), "form")
			back, err := form.Decode(stored)
			require.NoError(t, err)
			assert.True(t, assert.ObjectsAreEqual(content, back), "the old bytes mean the same message")
		})
	}
}

func render(route string, b []byte) string {
	return fmt.Sprintf("route %s\nform %x\ndigest %x\n", route, b, canon.Digest(route, b))
}

func field(t *testing.T, file, name string) []byte {
	t.Helper()
	for line := range strings.Lines(file) {
		if hexed, found := strings.CutPrefix(strings.TrimSpace(line), name+" "); found {
			b, err := hex.DecodeString(hexed)
			require.NoError(t, err)
			return b
		}
	}
	t.Fatalf("no %s", name)
	return nil
}

func TestEachFieldChangesTheForm(t *testing.T) {
	full := messages["email-full"].(dispatch.Email)
	seen := map[string]string{string(form.Encode(full)): "unchanged"}
	for name, bend := range map[string]func(*dispatch.Email){
		"sender":        func(e *dispatch.Email) { e.Sender = "x" },
		"moved to cc":   func(e *dispatch.Email) { e.To, e.CC = e.To[:1], append(e.To[1:2:2], e.CC...) },
		"swapped to":    func(e *dispatch.Email) { e.To = []dispatch.Address{e.To[1], e.To[0]} },
		"bcc as cc":     func(e *dispatch.Email) { e.CC, e.BCC = e.BCC, e.CC },
		"name":          func(e *dispatch.Email) { e.To = []dispatch.Address{{Name: "Eva", Email: "ada@example.com"}, e.To[1]} },
		"reply":         func(e *dispatch.Email) { e.ReplyTo = nil },
		"subject":       func(e *dispatch.Email) { e.Subject = "" },
		"text as HTML":  func(e *dispatch.Email) { e.Text, e.HTML = e.HTML, e.Text },
		"header order":  func(e *dispatch.Email) { e.Headers = []dispatch.Header{e.Headers[2], e.Headers[1], e.Headers[0]} },
		"a header less": func(e *dispatch.Email) { e.Headers = e.Headers[:2] },
		"file":          func(e *dispatch.Email) { e.Attachments = e.Attachments[:1] },
		"content id": func(e *dispatch.Email) {
			e.Attachments = []dispatch.Attachment{e.Attachments[0], {Name: "l.png", Type: "image/png"}}
		},
		"tag order":       func(e *dispatch.Email) { e.Tags = []string{"a", "b"} },
		"template":        func(e *dispatch.Email) { e.Template.Revision = "8" },
		"template's data": func(e *dispatch.Email) { e.Template.Data = []byte(`{"a":2}`) },
		"pin":             func(e *dispatch.Email) { e.Template.Unpinned = true },
	} {
		e := full
		bend(&e)
		b := form.Encode(e)
		assert.Empty(t, seen[string(b)], name)
		seen[string(b)] = name
		back, err := form.Decode(b)
		require.NoError(t, err, name)
		assert.True(t, assert.ObjectsAreEqual(e, back), name)
	}
}

func TestDecodeRefuses(t *testing.T) {
	full, err := hex.DecodeString("0101")
	require.NoError(t, err)
	for name, s := range map[string]string{
		"kind 0":               "0100",
		"kind 3, B130":         "0103",
		"a later tag, B130":    "0101" + "040161",
		"a later mail's tag":   "0102" + "0d0161",
		"two numbers":          "0101" + "010161" + "010162",
		"two subjects":         "0102" + "060161" + "060162",
		"two templates":        "0102" + "0c05" + "0174000000" + "0c05" + "0174000000",
		"address of one part":  "0102" + "02020161",
		"address of three":     "0102" + "0203000000",
		"header of one part":   "0102" + "09020161",
		"file of three parts":  "0102" + "0a03000000",
		"template of two":      "0102" + "0c020000",
		"template without id":  "0102" + "0c05" + "0001740000",
		"template, other word": "0102" + "0c06" + "017400016100",
		"cut":                  "0102" + "0602",
	} {
		b, err := hex.DecodeString(s)
		require.NoError(t, err, name)
		c, err := form.Decode(b)
		require.ErrorIs(t, err, canon.ErrForm, name)
		assert.Nil(t, c, name)
	}
	c, err := form.Decode(full)
	require.NoError(t, err, "no field is a message without content, which the enqueue refuses, not the reader")
	assert.Equal(t, dispatch.SMS{}, c)
	assert.Nil(t, form.Encode(nil))
	assert.Nil(t, form.Encode(&dispatch.SMS{}), "only values are messages")
}

// What is decoded never shares bytes with the row it came from.
func TestDecodeCopies(t *testing.T) {
	b := form.Encode(messages["email-full"])
	c, err := form.Decode(b)
	require.NoError(t, err)
	clear(b)
	assert.True(t, assert.ObjectsAreEqual(messages["email-full"], c))
}

func FuzzDecode(f *testing.F) {
	for _, c := range messages {
		f.Add(form.Encode(c))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := form.Decode(b)
		if err != nil {
			require.ErrorIs(t, err, canon.ErrForm)
			require.Nil(t, c)
			return
		}
		require.True(t, bytes.Equal(b, form.Encode(c)), "%x decodes, and encodes to %x", b, form.Encode(c))
	})
}
