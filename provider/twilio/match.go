package twilio

import (
	"strings"
	"unicode"

	"github.com/seed-8098fbb7/dispatch"
)

// trial is what Twilio puts in front of each text of a trial account.
const trial = "Sent from your Twilio trial account - "

// compare tells whether ours, as it was sent, and theirs, as it is listed, are
// one text. Smart encoding, which messaging services have switched on, replaces
// characters outside GSM-7 by others inside: a curly quote by a straight one, a
// tab by blanks, a full-width letter by its plain one; the table is not
// documented as final. So each such character of ours may stand for anything,
// or nothing, and blanks don't count:
//
//   - it fits where every other character of ours is there, in order, with
//     nothing else of substance between, before (but for a trial account's line)
//     or behind;
//   - it may be ours where they are there and there is more;
//   - it differs where one is missing.
//
// A digit of a code is in GSM-7: another code is another text.
func compare(ours, theirs string) fit {
	f := within(ours, theirs)
	if rest, ok := strings.CutPrefix(theirs, trial); ok {
		f = max(f, within(ours, rest))
	}
	return f
}

func within(ours, theirs string) fit {
	if ours == theirs {
		return fits
	}
	theirs = solid(theirs)
	f := fits
	gap := false // characters that may have become anything lie before the run
	for _, run := range runs(ours) {
		if run == "" {
			gap = true
			continue
		}
		i := strings.Index(theirs, run)
		if i < 0 {
			return differs
		}
		if extra := theirs[:i]; extra != "" && (!gap || substance(extra)) {
			f = maybe
		}
		theirs, gap = theirs[i+len(run):], false
	}
	if theirs != "" && (!gap || substance(theirs)) {
		f = maybe
	}
	return f
}

// runs are the stretches of s that smart encoding leaves as they are, without
// blanks, and "" for each stretch in between.
func runs(s string) []string {
	var list []string
	var b strings.Builder
	flush := func() {
		if b.Len() > 0 {
			list = append(list, b.String())
			b.Reset()
		}
	}
	for _, c := range s {
		if unicode.Is(unicode.Mn, c) && b.Len() > 0 { // the letter before it may have been composed with it
			run := []rune(b.String())
			b.Reset()
			b.WriteString(string(run[:len(run)-1]))
		}
		switch {
		case dispatch.Segments(string(c)).Encoding != dispatch.GSM7:
			flush()
			if len(list) == 0 || list[len(list)-1] != "" {
				list = append(list, "")
			}
		case !unicode.IsSpace(c):
			b.WriteRune(c)
		}
	}
	flush()
	return list
}

// solid is s without blanks.
func solid(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsSpace(c) {
			return -1
		}
		return c
	}, s)
}

// substance reports whether s has a letter or a digit.
func substance(s string) bool {
	return strings.ContainsFunc(s, func(c rune) bool { return unicode.IsLetter(c) || unicode.IsDigit(c) })
}
