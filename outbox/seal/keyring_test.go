package seal_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch/outbox/seal"
)

func secret(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }

func TestKeyringOpensWhatItSealed(t *testing.T) {
	ring, err := seal.NewKeyring(seal.Key{ID: "new", Secret: secret(2)}, seal.Key{ID: "old", Secret: secret(1)})
	require.NoError(t, err)
	assert.Equal(t, []string{"new", "old"}, ring.Keys())
	for _, plain := range []string{"", "Your code is 482901", string(bytes.Repeat([]byte("long "), 10_000))} {
		for _, id := range ring.Keys() {
			a, err := ring.Seal(id, []byte(plain), []byte("row 1"))
			require.NoError(t, err)
			b, err := ring.Seal(id, []byte(plain), []byte("row 1"))
			require.NoError(t, err)
			assert.NotEqual(t, a, b, "a fresh nonce each time")
			assert.Len(t, a, len(plain)+40)
			if plain != "" {
				assert.NotContains(t, string(a), plain)
			}
			got, err := ring.Open(id, a, []byte("row 1"))
			require.NoError(t, err)
			assert.Equal(t, plain, string(got))
		}
	}
}

// Whatever isn't exactly what was sealed doesn't open: another row, another
// key, another key of the same name, any changed or missing byte.
func TestKeyringRefuses(t *testing.T) {
	ring, err := seal.NewKeyring(seal.Key{ID: "a", Secret: secret(1)}, seal.Key{ID: "b", Secret: secret(2)})
	require.NoError(t, err)
	other, err := seal.NewKeyring(seal.Key{ID: "a", Secret: secret(3)})
	require.NoError(t, err)
	sealed, err := ring.Seal("a", []byte("text"), []byte("row 1"))
	require.NoError(t, err)

	_, err = ring.Open("a", sealed, []byte("row 2"))
	require.ErrorIs(t, err, seal.ErrOpen)
	_, err = ring.Open("b", sealed, []byte("row 1"))
	require.ErrorIs(t, err, seal.ErrOpen)
	_, err = other.Open("a", sealed, []byte("row 1"))
	require.ErrorIs(t, err, seal.ErrOpen)
	_, err = ring.Open("c", sealed, []byte("row 1"))
	require.ErrorIs(t, err, seal.ErrNoKey)
	_, err = ring.Seal("c", nil, nil)
	require.ErrorIs(t, err, seal.ErrNoKey)
	_, err = ring.Sum("", nil)
	require.ErrorIs(t, err, seal.ErrNoKey)
	for i := range sealed {
		bent := bytes.Clone(sealed)
		bent[i] ^= 1
		_, err = ring.Open("a", bent, []byte("row 1"))
		require.ErrorIs(t, err, seal.ErrOpen, "byte %d", i)
		_, err = ring.Open("a", sealed[:i], []byte("row 1"))
		require.ErrorIs(t, err, seal.ErrOpen, "cut at %d", i)
	}
}

func TestNewKeyringRefuses(t *testing.T) {
	good := seal.Key{ID: "a", Secret: secret(1)}
	for want, keys := range map[string][]seal.Key{
		`seal: key id is empty`:                      {{Secret: secret(1)}},
		`seal: key id has a character other than`:    {{ID: "Über", Secret: secret(1)}},
		`seal: key "a" has 0 bytes, want 32`:         {{ID: "a"}},
		`seal: key "b" has 16 bytes, want 32`:        {good, {ID: "b", Secret: secret(1)[:16]}},
		`seal: key "a" stands twice`:                 {good, {ID: "a", Secret: secret(2)}},
		`seal: key id is longer than 40 characters`:  {{ID: string(bytes.Repeat([]byte("k"), 41)), Secret: secret(1)}},
		`seal: key "a" has 33 bytes, want 32`:        {{ID: "a", Secret: append(secret(1), 1)}},
		`seal: key id has a character other than a-`: {{ID: "a/b", Secret: secret(1)}},
	} {
		_, err := seal.NewKeyring(keys[0], keys[1:]...)
		require.ErrorContains(t, err, want)
	}
}

// A sum is stored as a digest and as a recipient's hash: it must not drift.
func TestSumIsStable(t *testing.T) {
	ring, err := seal.NewKeyring(seal.Key{ID: "a", Secret: secret(1)}, seal.Key{ID: "b", Secret: secret(2)})
	require.NoError(t, err)
	a, err := ring.Sum("a", []byte("+15555550123"))
	require.NoError(t, err)
	assert.Equal(t, "6b9dfa21860083ed3263ea02d32b1c4189b8da47c5426e06d5e17f1b889d04b5", hex.EncodeToString(a[:]))
	b, err := ring.Sum("b", []byte("+15555550123"))
	require.NoError(t, err)
	assert.NotEqual(t, a, b)
}

// Bytes that a release has sealed open in every later one.
func TestStoredBytesOpen(t *testing.T) {
	ring, err := seal.NewKeyring(seal.Key{ID: "a", Secret: secret(1)})
	require.NoError(t, err)
	stored, err := hex.DecodeString("c7995711aa2cd89c9744dbe8b29799d68ba3655fcfa4a8e068605b14cd6646f8a90705f588636e179aa1db95")
	require.NoError(t, err)
	plain, err := ring.Open("a", stored, []byte("row 1"))
	require.NoError(t, err)
	assert.Equal(t, "text", string(plain))
}

func TestKeyHidesItsSecret(t *testing.T) {
	k := seal.Key{ID: "a", Secret: []byte("the secret of thirty-two bytes !")}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x", "%q"} {
		assert.Equal(t, "a", fmt.Sprintf(format, k), format)
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("key", "key", k)
	assert.Contains(t, log.String(), `"key":"a"}`)
}

func BenchmarkSealAndOpen(b *testing.B) {
	ring, err := seal.NewKeyring(seal.Key{ID: "a", Secret: secret(1)})
	require.NoError(b, err)
	for _, size := range []int{100, 20_000} {
		plain := make([]byte, size)
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sealed, err := ring.Seal("a", plain, plain[:48])
				if err != nil {
					b.Fatal(err)
				}
				if _, err := ring.Open("a", sealed, plain[:48]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
