package mailapi_test

import (
	"math/rand/v2"
	"mime"
	"net/mail"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/loosejson"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

// B082: names survive both ways to write them, whatever stands in them.
func TestNames(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	letters := []rune(`ab ,;:"\<>()@[]äß€😀=?_-.`)
	for range 2000 {
		var name strings.Builder
		for range 1 + random.IntN(120) {
			name.WriteRune(letters[random.IntN(len(letters))])
		}
		want := dispatch.Address{Name: strings.Join(strings.Fields(name.String()), " "), Email: "a@example.com"}
		if want.Name == "" || strings.Contains(want.Name, "=?") && strings.Contains(want.Name, "?=") {
			continue // an encoded word that the caller wrote
		}
		for _, text := range []string{mailapi.Standard(want), mailapi.Words(want)} {
			got, err := mail.ParseAddress(text)
			require.NoError(t, err, text)
			require.Equal(t, want.Email, got.Address)
			require.Equal(t, want.Name, got.Name, text)
		}
	}
	for name, want := range map[string]string{"": "a@example.com", "Ada": "Ada <a@example.com>", "A, B": "=?utf-8?b?QSwgQg==?= <a@example.com>"} {
		require.Equal(t, want, mailapi.Words(dispatch.Address{Name: name, Email: "a@example.com"}))
	}
	for word := range strings.FieldsSeq(strings.TrimSuffix(mailapi.Words(dispatch.Address{Name: strings.Repeat("ü", 90), Email: "a"}), " <a>")) {
		require.LessOrEqual(t, len(word), 75, "RFC 2047 section 2")
		_, err := new(mime.WordDecoder).Decode(word)
		require.NoError(t, err)
	}
}

func TestSenders(t *testing.T) {
	for text, want := range map[string]dispatch.Address{
		"a@example.com": {Email: "a@example.com"}, "Shop <a@example.com>": {Name: "Shop", Email: "a@example.com"},
		`"Smith, John" <a@example.com>`: {Name: "Smith, John", Email: "a@example.com"},
	} {
		got, err := mailapi.ParseSender(text)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"", "Shop", "Smith, John <a@example.com>", "=?utf-8?q?a=0D=0AX?= <a@example.com>", "a@example.com\r\nBcc: b@example.com"} {
		_, err := mailapi.ParseSender(text)
		require.Error(t, err, text)
		require.NotContains(t, err.Error(), "example")
	}
}

func TestEventKey(t *testing.T) {
	a := mailapi.EventKey("id", "bounce", "1", "Ada@example.com")
	require.Equal(t, a, mailapi.EventKey("id", "bounce", "1", "ada@EXAMPLE.com"))
	require.NotContains(t, a, "example")
	for _, other := range []string{
		mailapi.EventKey("id2", "bounce", "1", "ada@example.com"), mailapi.EventKey("id", "open", "1", "ada@example.com"),
		mailapi.EventKey("id", "bounce", "2", "ada@example.com"), mailapi.EventKey("id", "bounce", "1", "bob@example.com"),
	} {
		require.NotEqual(t, a, other)
	}
	require.LessOrEqual(t, len(mailapi.EventKey(strings.Repeat("x", 1000), "", "", "")), 400)
}

// B159: a window has two ends.
func TestFresh(t *testing.T) {
	now := time.Unix(1_600_000_000, 0)
	for at, want := range map[string]bool{
		"1600000000": true, "1599999940": true, "1599999939": false, "1600000005": true, "1600000006": false,
		"": false, "NaN": false, "1e999": false, "-1": false, "0": false, "1600000000.5": false, "1600000000000": false, "9223372036854775807": false, " 1600000000": false,
	} {
		require.Equal(t, want, mailapi.Fresh(at, now, time.Minute, 5*time.Second), at)
	}
}

func TestUnix(t *testing.T) {
	for text, want := range map[loosejson.Text]time.Time{
		"1521472262.908181": time.UnixMilli(1521472262908).UTC(), "1600112492": time.Unix(1600112492, 0).UTC(),
		"": {}, "NaN": {}, "1e400": {}, "-5": {}, "1600112492000": {}, "Inf": {}, "5": {},
	} {
		require.Equal(t, want, mailapi.Unix(text), text)
	}
}

// B026: what counts is what is sent.
func TestSize(t *testing.T) {
	m := dispatch.Email{Text: "12345", Attachments: []dispatch.Attachment{{Data: make([]byte, 57)}, {Data: make([]byte, 1)}}}
	require.Equal(t, 76+4, mailapi.Files(m))
	require.Equal(t, 5+80+2, mailapi.Size(m))
	require.NoError(t, mailapi.Fits(m, 87, 5, 80))
	for field, err := range map[string]error{
		"Content has": mailapi.Fits(m, 86, 0, 0), "Content.Text": mailapi.Fits(m, 0, 4, 0), "Content.Attachments": mailapi.Fits(m, 0, 0, 79),
	} {
		require.ErrorContains(t, err, field)
	}
}
