package loosejson_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch/provider/internal/loosejson"
)

func TestText(t *testing.T) {
	for in, want := range map[string]loosejson.Text{
		`"a"`: "a", `21211`: "21211", `-1.50`: "-1.50", `null`: "", `true`: "", `{"a":1}`: "", `[1]`: "",
		`19421798915720714`: "19421798915720714", // B152: every digit
		`"\u00e4"`:          "ä",
	} {
		var doc struct {
			V loosejson.Text `json:"v"`
		}
		require.NoError(t, loosejson.Decode([]byte("\xef\xbb\xbf{\"v\":"+in+"}"), &doc))
		require.Equal(t, want, doc.V, in)
	}
	require.Equal(t, "a", loosejson.Text(" a\t").Word(1))
	require.Empty(t, loosejson.Text("ab").Word(1))
	require.Empty(t, loosejson.Text("a\x00").Word(9))
	require.Empty(t, loosejson.Text("a\xff").Word(9))
	require.Equal(t, "aä", loosejson.Text("a\x00\xffää").Cut(4))
}

func TestDecode(t *testing.T) {
	var v any
	require.NoError(t, loosejson.Decode([]byte(` {"a":1} `), &v))
	for _, in := range []string{``, `{`, `{}{}`, `{} x`, `<html>`} {
		require.Error(t, loosejson.Decode([]byte(in), &v), in)
	}
}

func TestFlat(t *testing.T) {
	got, err := loosejson.Flat([]byte(`{"a":"x","b":19421798915720714,"c":true,"d":null}`))
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "x", "b": "19421798915720714", "c": "true", "d": ""}, got)
	for _, in := range []string{``, `[]`, `null`, `{"a":1,"a":2}`, `{"a":{}}`, `{"a":[1]}`, `{"a":1`, `{"a":1}{}`, `{"a"}`, `{1:2}`} {
		_, err := loosejson.Flat([]byte(in))
		require.Error(t, err, in)
	}
}

// What is kept of a vendor's text can be stored.
func FuzzText(f *testing.F) {
	f.Add([]byte(`{"v":"a\u0000\ud800ä"}`), 3)
	f.Add([]byte(`{"v":1e999,"w":[null]}`), 0)
	f.Fuzz(func(t *testing.T, b []byte, limit int) {
		if limit < 0 || limit > 1000 {
			return
		}
		var doc struct {
			V loosejson.Text `json:"v"`
		}
		if loosejson.Decode(b, &doc) != nil {
			return
		}
		for _, s := range []string{doc.V.Word(limit), doc.V.Cut(limit)} {
			if len(s) > limit || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
				t.Fatalf("%q", s)
			}
		}
		if flat, err := loosejson.Flat(b); err == nil && flat["v"] == "" && doc.V != "" {
			t.Fatal("two readings")
		}
	})
}
