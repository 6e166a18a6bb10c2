package dispatch_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
)

func TestParseNumber(t *testing.T) {
	for in, want := range map[string]string{
		"+15555550100":     "+15555550100",
		"+1234567":         "+1234567",
		"+123456789012345": "+123456789012345",
		// B091: as contact applications copy them.
		"\u202d+1 555 555 0100\u202c":    "+15555550100",
		"+1\u2011555\u2011555\u20110100": "+15555550100",
		"+1555\u00ad5550100":             "+15555550100",
		"+1\u00a0555\u2009555\u202f0100": "+15555550100",
		"\ufeff+1\u200b5555550100\u200e": "+15555550100",
		"+1\u2013555\u2014555\uff0d0100": "+15555550100",
		// B094: one person, one spelling.
		"+1 (555) 555-0100": "+15555550100",
		"+1-555-555-0100":   "+15555550100",
		"+1.555.555.0100":   "+15555550100",
		"+44 20 7946 0958":  "+442079460958",
		"+1 (800) 555 0100": "+18005550100",
	} {
		got, err := dispatch.ParseNumber(in)
		require.NoError(t, err, "%q", in)
		assert.Equal(t, want, got, "%q", in)
		again, err := dispatch.ParseNumber(got)
		require.NoError(t, err)
		assert.Equal(t, got, again, "the spelling is stable")
	}
}

func TestParseNumberSaysWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"empty":                       {"", "is empty"},
		"only marks":                  {"\u202d\u202c", "is empty"},
		"no plus, B094":               {"1 (555) 555-0100", "no leading +"},
		"short code, B095":            {"12345", "no leading +"},
		"too short":                   {"+123456", "6 digits"},
		"too long":                    {"+1234567890123456", "16 digits"},
		"country code":                {"+0155555501", "begins with 0"},
		"letters":                     {"+1555CALLNOW", "U+0043 at byte 5"},
		"second plus":                 {"+1+5555550100", "U+002B at byte 2"},
		"Arabic digits, B092":         {"+١٥٥٥٥٥٥٠١٠٠", "U+0661"},
		"full-width digits, B092":     {"＋１５５５５５５０１００", "U+FF0B"},
		"full-width after plus, B092": {"+１5555550100", "U+FF11"},
		"trunk prefix":                {"+44 (0)20 7946 0958", "trunk prefix"},
		"trunk prefix, spaced":        {"+44 ( 0 ) 20 7946 0958", "trunk prefix"},
		"newline, B081":               {"+15555550100\n", "U+000A"},
		"NUL, B116":                   {"+1555\x005550100", "U+0000"},
		"invalid UTF-8":               {"+1555\xff5550100", "invalid UTF-8"},
		"extension":                   {"+15555550100x12", "U+0078"},
		"URI":                         {"tel:+15555550100", "U+0074"},
		"two numbers":                 {"+15555550100,+15555550101", "U+002C"},
		"very long":                   {"+" + strings.Repeat("1", 1000), "longer than 100 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := dispatch.ParseNumber(c.in)
			require.ErrorContains(t, err, c.want)
			assert.Empty(t, got)
			assert.NotContains(t, strings.ReplaceAll(err.Error(), "+15555550123", ""), "555", "the error quotes the number") // B162
		})
	}
}

func FuzzParseNumber(f *testing.F) {
	for _, s := range []string{"+15555550100", "\u202d+1 555 555 0100\u202c", "+44 (0)20", "(((+1)))", "+\xff", "٣"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := dispatch.ParseNumber(s)
		if err != nil {
			return
		}
		require.Regexp(t, `^\+[1-9][0-9]{6,14}$`, got)
		again, err := dispatch.ParseNumber(got)
		require.NoError(t, err)
		require.Equal(t, got, again)
		require.Positive(t, dispatch.CallingCode(got))
	})
}

func TestCallingCode(t *testing.T) {
	for number, want := range map[string]int{
		"+15555550123": 1, "+18765550100": 1, "+79991234567": 7, "+77011234567": 7,
		"+442079460958": 44, "+4915123456789": 49, "+33612345678": 33, "+8613800138000": 86,
		"+358401234567": 358, "+3531234567": 353, "+420601123456": 420, "+423123456": 423,
		"+21612345678": 216, "+85212345678": 852, "+88212345678": 882, "+99212345678": 992,
		"+5012345678": 501, "+5912345678": 591, "+6712345678": 671, "+2901234": 290,
		"": 0, "+": 0, "+12": 0, "+0123456": 0, "15555550123": 0, "+1a55555": 0, "+٣٣٣": 0,
	} {
		assert.Equal(t, want, dispatch.CallingCode(number), number)
	}
}

// Every code of two digits in the ITU's list of assigned codes stands for
// itself; what else begins with the same digit has three.
func TestCallingCodeZones(t *testing.T) {
	two := map[int]bool{}
	for n := 100; n <= 999; n++ {
		got := dispatch.CallingCode(fmt.Sprintf("+%d5550100", n))
		switch {
		case n/100 == 1 || n/100 == 7:
			require.Equal(t, n/100, got)
		case got == n:
			require.False(t, two[n/10], "%d is cut in one place and not in another", n)
		default:
			require.Equal(t, n/10, got)
			two[n/10] = true
		}
	}
	assert.Len(t, two, 44)
}
