package twilio

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCompare(t *testing.T) {
	for name, c := range map[string]struct {
		ours, theirs string
		want         fit
	}{
		"equal":                       {"Your code is 482901", "Your code is 482901", fits},
		"another code":                {"Your code is 482901", "Your code is 482902", differs},
		"another word":                {"Your order shipped", "Your order is late", differs},
		"trial account":               {"Your code is 482901", "Sent from your Twilio trial account - Your code is 482901", fits},
		"the trial line is ours":      {trial + "4", trial + "4", fits},
		"the trial line twice":        {trial + "4", trial + trial + "4", fits},
		"blanks":                      {"Your code\r\nis 482901 ", "Your code\nis 482901", fits},
		"smart quote":                 {"It’s “482901” – use it…", `It's "482901" - use it...`, fits},
		"smart quote, left as it was": {"It’s 482901", "It’s 482901", fits},
		"smart quote, another code":   {"It’s 482901", "It's 482902", differs},
		"smart quote, another word":   {"It’s here", "It's there", differs},
		"tab and no-break space":      {"code:\t48\u00a02901", "code:       48  2901", fits},
		"full-width digit":            {"code １48290", "code 148290", maybe},
		"a fraction":                  {"½ price", "1/2 price", maybe},
		"a small capital":             {"ᴀ48290", "A48290", maybe},
		"Arabic, equal":               {"رمزك 482901", "رمزك 482901", fits},
		"Arabic, another code":        {"رمزك 482901", "رمزك 482902", differs},
		"Arabic, another text":        {"رمزك هنا", "مرحبا", maybe},
		"emoji dropped":               {"Hi 😀", "Hi ", fits},
		"decomposed":                  {"caf\u0065\u0301 482901", "café 482901", maybe},
		"a footer":                    {"Your code is 482901", "Your code is 482901. Reply STOP", maybe},
		"a header":                    {"Your code is 482901", "Shop: Your code is 482901", maybe},
		"something in between":        {"Your code is ‘482901", "Your code is not 482901", maybe},
		"a part of ours":              {"Your code is 482901", "Your code", differs},
		"case":                        {"Your code", "your code", differs},
		"two quotes swapped":          {"a’b’c", "c'b'a", differs},
		"a run twice":                 {"ab’ab", "ab", differs},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, compare(c.ours, c.theirs))
		})
	}
}

// Whatever a text is: equal texts fit, and what lost a digit of a code doesn't.
func FuzzCompare(f *testing.F) {
	for _, s := range []string{"Your code is 482901", "It’s “4”", "رمزك", "e\u0301", "\xff", "½", " \t", ""} {
		f.Add(s, s)
		f.Add(s, "Sent from your Twilio trial account - "+s)
	}
	f.Fuzz(func(t *testing.T, ours, theirs string) {
		require.Equal(t, fits, compare(ours, ours))
		require.NotEqual(t, differs, compare(ours, "x"+ours+"y"))
		require.NotEqual(t, differs, compare(ours, trial+ours))
		require.Equal(t, differs, compare(ours+"482901", "482902"))
		if compare(ours, theirs) == fits && !strings.HasPrefix(theirs, trial) && ours != theirs {
			require.Equal(t, fits, compare(ours, theirs+" "))
		}
	})
}
