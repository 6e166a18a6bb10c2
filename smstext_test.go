package dispatch_test

import (
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
)

func TestSegments(t *testing.T) {
	a := func(n int) string { return strings.Repeat("a", n) }
	quotes := func(n int) string { return strings.Repeat("’", n) }
	for name, c := range map[string]struct {
		body  string
		enc   dispatch.SMSEncoding
		units int
		parts int
	}{
		"empty":                                  {"", dispatch.GSM7, 0, 0},
		"one letter":                             {"a", dispatch.GSM7, 1, 1},
		"B096 (1), a full part":                  {a(160), dispatch.GSM7, 160, 1},
		"B096 (2), one curly quote":              {a(159) + "’", dispatch.UCS2, 160, 3},
		"B096 (3), an extension character":       {a(159) + "€", dispatch.GSM7, 161, 2},
		"B096 (4), decomposed":                   {"e\u0301", dispatch.UCS2, 2, 1},
		"composed":                               {"é", dispatch.GSM7, 1, 1},
		"B096 (5), an escape pair at the seam":   {a(152) + "€" + a(152), dispatch.GSM7, 306, 3},
		"the same, one earlier":                  {a(151) + "€" + a(153), dispatch.GSM7, 306, 2},
		"B096 (6), a surrogate pair at the seam": {quotes(66) + "😀" + quotes(66), dispatch.UCS2, 134, 3},
		"the same, one earlier, UCS-2":           {quotes(65) + "😀" + quotes(67), dispatch.UCS2, 134, 2},
		"161":                                    {a(161), dispatch.GSM7, 161, 2},
		"306":                                    {a(306), dispatch.GSM7, 306, 2},
		"307":                                    {a(307), dispatch.GSM7, 307, 3},
		"1530":                                   {a(1530), dispatch.GSM7, 1530, 10},
		"UCS-2, 70":                              {quotes(70), dispatch.UCS2, 70, 1},
		"UCS-2, 71":                              {quotes(71), dispatch.UCS2, 71, 2},
		"UCS-2, 134":                             {quotes(134), dispatch.UCS2, 134, 2},
		"UCS-2, 135":                             {quotes(135), dispatch.UCS2, 135, 3},
		"UCS-2, 670":                             {quotes(670), dispatch.UCS2, 670, 10},
		"35 emoji":                               {strings.Repeat("😀", 35), dispatch.UCS2, 70, 1},
		"CRLF counts two":                        {"a\r\nb", dispatch.GSM7, 4, 1},
		"every extension character":              {"^{}\\[~]|€\f", dispatch.GSM7, 20, 1},
		"accents of the table":                   {"àèéùìòÇØøÅåÆæßÉÄÖÑÜäöñü¡¿§¤£¥@", dispatch.GSM7, 30, 1},
		"ç is not in it":                         {"ç", dispatch.UCS2, 1, 1},
		"backtick is not in it":                  {"`", dispatch.UCS2, 1, 1},
		"tab is not in it":                       {"\t", dispatch.UCS2, 1, 1},
		"the escape is not in it":                {"\x1b", dispatch.UCS2, 1, 1},
		"no-break space is not in it":            {"\u00a0", dispatch.UCS2, 1, 1},
		"U+FFFD itself":                          {"\ufffd", dispatch.UCS2, 1, 1},
		"invalid UTF-8":                          {"a\xffb", dispatch.UCS2, 3, 1},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, dispatch.SMSText{Encoding: c.enc, Units: c.units, Parts: c.parts}, dispatch.Segments(c.body))
		})
	}
	assert.Equal(t, "GSM-7", dispatch.GSM7.String())
	assert.Equal(t, "UCS-2", dispatch.UCS2.String())
	assert.Equal(t, "unknown encoding", dispatch.SMSEncoding(9).String())
	assert.Zero(t, dispatch.Segments(""))
}

// The parts are packed as full as whole characters allow.
func FuzzSegments(f *testing.F) {
	for _, s := range []string{"", strings.Repeat("a", 152) + "€", strings.Repeat("’", 66) + "😀", "e\u0301", "\xff\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := dispatch.Segments(s)
		single, part := 160, 153
		if got.Encoding == dispatch.UCS2 {
			single, part = 70, 67
			require.Equal(t, len(utf16.Encode([]rune(s))), got.Units)
		} else {
			require.True(t, utf8.ValidString(s))
			require.GreaterOrEqual(t, got.Units, utf8.RuneCountInString(s))
		}
		switch {
		case got.Units == 0:
			require.Zero(t, got.Parts)
		case got.Units <= single:
			require.Equal(t, 1, got.Parts)
		default:
			require.GreaterOrEqual(t, got.Parts*part, got.Units)
			require.LessOrEqual(t, (got.Parts-1)*(part-1), got.Units, "a part is left with more than one unit empty")
		}
	})
}

func TestValidSender(t *testing.T) {
	for _, s := range []string{"+15555550100", "12345", "898", "Shop", "A", "My Shop 24", "My-Shop", "B&B", "007James", "ABCDEFGHIJK"} {
		require.NoError(t, dispatch.ValidSender(s), s)
	}
	for s, want := range map[string]string{
		"":                  "is empty",
		"ABCDEFGHIJKL":      "12 characters",    // B095
		"My-Shop!":          "U+0021 at byte 7", // B095
		"Schöner":           "U+00F6 at byte 3",
		"Shop\n":            "U+000A at byte 4",
		"Sh\xffop":          "invalid UTF-8 at byte 2",
		"12":                "2 digits",
		"15555550100":       "begins with +",
		"+1 555 555 0100":   "other characters in it",
		"+0155555501":       "begins with 0",
		"+":                 "0 digits",
		" ":                 "is empty",
		"--":                "is empty",
		"+1555555010012345": "16 digits",
	} {
		err := dispatch.ValidSender(s)
		require.ErrorContains(t, err, want, "%q", s)
		require.NotContains(t, err.Error(), "5555550")
	}
}
