package dispatch_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
)

func TestParseRetryAfter(t *testing.T) {
	now := time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)
	in := func(d time.Duration, layout string) string { return now.Add(d).Format(layout) }
	const imf, rfc850, asctime = "Mon, 02 Jan 2006 15:04:05 GMT", "Monday, 02-Jan-06 15:04:05 GMT", "Mon Jan _2 15:04:05 2006"
	for name, c := range map[string]struct {
		value, date string
		want        time.Duration
	}{
		"missing":       {"", "", 0},
		"blank":         {"  ", "", 0},
		"seconds":       {"120", "", 2 * time.Minute},
		"spaces":        {" 120\t", "", 2 * time.Minute},
		"leading zeros": {"0120", "", 2 * time.Minute},

		// B039: what overflows is the maximum, never negative, never nothing.
		"past the int64 of ns, B039": {"9223372037", "", dispatch.MaxFloor},
		"past the uint64, B039":      {"18446744073709551616", "", dispatch.MaxFloor},
		"400 digits, B039":           {strings.Repeat("9", 400), "", dispatch.MaxFloor},
		"2^62, B041":                 {"4611686018427387904", "", dispatch.MaxFloor},
		"exponent, B041":             {"1e300", "", dispatch.MaxFloor},
		"infinite exponent, B041":    {"1e999", "", dispatch.MaxFloor},
		"small exponent":             {"1.2e2", "", 2 * time.Minute},
		"30 days":                    {"2592000", "", dispatch.MaxFloor},
		"a second less":              {"2591999", "", dispatch.MaxFloor - time.Second},

		// B042: rounded up to milliseconds, never below.
		"1.5, B042":       {"1.5", "", 1500 * time.Millisecond},
		"2.0, B042":       {"2.0", "", 2 * time.Second},
		"1.5 blank, B042": {"1.5 ", "", 1500 * time.Millisecond},
		"292.05, B042":    {"292.05", "", 292050 * time.Millisecond},
		"a breath, B042":  {"0.0000001", "", time.Millisecond},
		"1.":              {"1.", "", time.Second},

		// B044: no floor.
		"zero, B044":     {"0", "", 0},
		"0.0":            {"0.0", "", 0},
		"negative, B044": {"-5", "", 0},
		"past, B044":     {"Wed, 21 Oct 2015 07:28:00 GMT", "", 0},
		"now":            {in(0, imf), "", 0},

		// B045: the three layouts of RFC 9110, and no other.
		"IMF-fixdate, B045": {in(time.Minute, imf), "", time.Minute},
		"RFC 850, B045":     {in(time.Minute, rfc850), "", time.Minute},
		"asctime, B045":     {in(time.Minute, asctime), "", time.Minute},
		"+0000, B045":       {in(time.Minute, "Mon, 02 Jan 2006 15:04:05 +0000"), "", 0},
		"UTC, B045":         {in(time.Minute, "Mon, 02 Jan 2006 15:04:05 UTC"), "", 0},
		"-0500, B045":       {in(time.Minute, "Mon, 02 Jan 2006 15:04:05 -0500"), "", 0},
		"ISO":               {in(time.Minute, time.RFC3339), "", 0},
		"impossible date":   {"Fri, 32 Mar 2026 15:09:26 GMT", "", 0},
		"in 400 years":      {"Mon, 14 Mar 2426 15:09:26 GMT", "", dispatch.MaxFloor},

		// B046: against the answer's own clock.
		"we are late, B046":     {in(-9*time.Minute, imf), in(-10*time.Minute, imf), time.Minute},
		"we are early, B046":    {in(11*time.Minute, imf), in(10*time.Minute, imf), time.Minute},
		"Date in RFC 850":       {in(11*time.Minute, imf), in(10*time.Minute, rfc850), time.Minute},
		"unreadable Date, B046": {in(time.Minute, imf), "yesterday", time.Minute},
		"Date and seconds":      {"60", in(10*time.Minute, imf), time.Minute},
		"before the answer":     {in(time.Minute, imf), in(10*time.Minute, imf), 0},

		"words":        {"soon", "", 0},
		"unit":         {"10s", "", 0},
		"two values":   {"10, 20", "", 0},
		"two points":   {"1.2.3", "", 0},
		"hexadecimal":  {"0x10", "", 0},
		"underscores":  {"1_000", "", 0},
		"plus":         {"+5", "", 0},
		"only a point": {".", "", 0},
		"NaN":          {"NaN", "", 0},
		"Inf":          {"Inf", "", 0},
		"e":            {"1e", "", 0},
		"small e":      {"1e-5", "", 0},
		"Arabic":       {"١٢", "", 0},
		"NUL":          {"1\x00", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, dispatch.ParseRetryAfter(c.value, c.date, now))
		})
	}
	// B042: binary fractions may round up to the next millisecond, not down.
	got := dispatch.ParseRetryAfter("0.503", "", now)
	assert.GreaterOrEqual(t, got, 503*time.Millisecond)
	assert.LessOrEqual(t, got, 504*time.Millisecond)
	assert.Equal(t, dispatch.MaxFloor, dispatch.ParseRetryAfter(in(time.Hour, imf), "", time.Time{}), "no clock at all")
}

func FuzzParseRetryAfter(f *testing.F) {
	for _, s := range []string{"", "120", "1e300", "0.503", "-5", "Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"} {
		f.Add(s, "Sun, 06 Nov 1994 08:49:37 GMT", int64(784111777))
	}
	f.Fuzz(func(t *testing.T, value, date string, now int64) {
		got := dispatch.ParseRetryAfter(value, date, time.Unix(now, 0))
		require.GreaterOrEqual(t, got, time.Duration(0))
		require.LessOrEqual(t, got, dispatch.MaxFloor)
	})
}
