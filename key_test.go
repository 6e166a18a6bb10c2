package dispatch_test

import (
	"bytes"
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
)

// The vectors were computed by another implementation. A key that drifts is a
// second message to everyone whose request is repeated over an upgrade.
func TestDerivedKeysNeverChange(t *testing.T) {
	file, err := os.ReadFile("testdata/keys.txt")
	require.NoError(t, err)
	n := 0
	for line := range strings.Lines(string(file)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		cells := strings.Split(strings.TrimSpace(line), "\t")
		require.Len(t, cells, 3, line)
		name, err := strconv.Unquote(cells[0])
		require.NoError(t, err, line)
		natural, err := strconv.Unquote(cells[1])
		require.NoError(t, err, line)
		ids, err := dispatch.NewNamespace(name)
		require.NoError(t, err, line)
		assert.Equal(t, cells[2], ids.Key(natural).String(), line)
		assert.Equal(t, uuid.Version(5), uuid.UUID(ids.Key(natural)).Version())
		n++
	}
	assert.GreaterOrEqual(t, n, 11)
}

// B062: a key of any length and alphabet goes out in one fixed form; an empty
// or a blank name makes no key at all.
func TestNamespaceRefusesNothingness(t *testing.T) {
	for _, name := range []string{"", " ", "\u200b\t", "a\xff"} {
		_, err := dispatch.NewNamespace(name)
		assert.Error(t, err, "%q", name)
	}
	ids, err := dispatch.NewNamespace("shop")
	require.NoError(t, err)
	for _, natural := range []string{"", "   ", "\u200b", "\u3164"} {
		assert.True(t, ids.Key(natural).IsZero(), "%q", natural)
	}
	assert.True(t, dispatch.Namespace{}.Key("order-1").IsZero(), "a forgotten namespace must not derive keys")
	assert.Len(t, ids.Key(strings.Repeat("long ", 100)).String(), 36)
}

func TestNamespacesAreApart(t *testing.T) {
	a, err := dispatch.NewNamespace("shop")
	require.NoError(t, err)
	b, err := dispatch.NewNamespace("sho")
	require.NoError(t, err)
	assert.NotEqual(t, a.Key("x"), b.Key("x"))
	assert.NotEqual(t, a.Key("x"), b.Key("px"), "names must not run into each other")
	assert.Equal(t, a.Key("x"), a.Key("x"))
}

func TestNewKeysAreVersion7AndInOrder(t *testing.T) {
	last := dispatch.NewKey()
	for range 1000 {
		k := dispatch.NewKey()
		require.Equal(t, uuid.Version(7), uuid.UUID(k).Version())
		require.Equal(t, 1, k.Compare(last), "keys minted in a row lie in a row")
		last = k
	}
}

func TestParseKey(t *testing.T) {
	for _, s := range []string{
		"0191d4c0-5f0a-7cc3-98c4-dc0c0c07398f", // v7
		"5df41881-3aed-4515-88a7-2f4a814cf09e", // v4
		"2ed6657d-e927-568b-95e1-2665a8aea6a2", // v5
	} {
		k, err := dispatch.ParseKey(s)
		require.NoError(t, err, s)
		assert.Equal(t, s, k.String())
		upper, err := dispatch.ParseKey(strings.ToUpper(s))
		require.NoError(t, err)
		assert.Equal(t, k, upper, "one key, one spelling")
	}
	for name, s := range map[string]string{
		"empty":         "",
		"zero":          "00000000-0000-0000-0000-000000000000",
		"max":           "ffffffff-ffff-ffff-ffff-ffffffffffff",
		"version 1":     "c232ab00-9414-11ec-b3c8-9f6bdeced846",
		"version 2":     "000003e8-9414-21ec-b300-9f6bdeced846",
		"version 3":     "5df41881-3aed-3515-88a7-2f4a814cf09e",
		"version 6":     "1ec9414c-232a-6b00-b3c8-9f6bdeced846",
		"version 8":     "2489e9ad-2ee2-8e00-8ec9-32d5f69181c0",
		"no variant":    "0191d4c0-5f0a-7cc3-18c4-dc0c0c07398f",
		"Microsoft":     "0191d4c0-5f0a-7cc3-d8c4-dc0c0c07398f",
		"urn":           "urn:uuid:0191d4c0-5f0a-7cc3-98c4-dc0c0c07398f",
		"braces":        "{0191d4c0-5f0a-7cc3-98c4-dc0c0c07398f}",
		"no dashes":     "0191d4c05f0a7cc398c4dc0c0c07398f",
		"newline, B034": "0191d4c0-5f0a-7cc3-98c4-dc0c0c07398f\n",
		"not hex":       "0191d4c0-5f0a-7cc3-98c4-dc0c0c0739zz",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := dispatch.ParseKey(s)
			require.Error(t, err)
			assert.True(t, strings.HasPrefix(err.Error(), "key "), err)
		})
	}
}

func TestKeyText(t *testing.T) {
	in := struct {
		Key dispatch.Key `json:"key"`
	}{dispatch.NewKey()}
	b, err := json.Marshal(in)
	require.NoError(t, err)
	assert.JSONEq(t, `{"key":"`+in.Key.String()+`"}`, string(b))
	out := in
	out.Key = dispatch.Key{}
	require.NoError(t, json.Unmarshal(b, &out))
	assert.Equal(t, in, out)

	before := out
	require.Error(t, json.Unmarshal([]byte(`{"key":"00000000-0000-0000-0000-000000000000"}`), &out))
	assert.Equal(t, before, out, "a refused text changes nothing")
}

// Compare must agree with the database, which compares uuids byte by byte.
func TestCompareIsByteOrder(t *testing.T) {
	keys := []dispatch.Key{{}, {15: 1}, {8: 1}, {7: 1}, {7: 255}, {0: 1}, {0: 127, 15: 255}, {0: 128}, {0: 255, 8: 128}}
	for _, a := range keys {
		for _, b := range keys {
			assert.Equal(t, bytes.Compare(a[:], b[:]), a.Compare(b), "%v %v", a, b)
		}
	}
}
