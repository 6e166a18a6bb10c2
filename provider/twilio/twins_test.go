package twilio_test

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
)

// twin is one of two messages with one text to one number.
var twin = dispatch.SMS{To: "+15555550123", Body: "Your table is ready"}

// Another key's identical text to the same number: the list can't tell whose a
// message is, so the look-up must not guess. Each case ends wrong with a matcher
// that takes what fits. a is in doubt before b is sent.
func TestTwinsStayUnresolved(t *testing.T) {
	t.Parallel()
	script := func(faults ...fault) func(int, url.Values) fault {
		return func(n int, _ url.Values) fault {
			if n <= len(faults) {
				return faults[n-1]
			}
			return none
		}
	}
	cases := []struct {
		name     string
		faults   []fault
		distinct bool
		b        dispatch.State
		taken    int
	}{
		{"only b's is there: a was never taken", []fault{lostRequest, none}, false, dispatch.Sent, 1},
		{"both are there, and the promise of distinct texts is broken", []fault{lostAnswer, none}, true, dispatch.Sent, 2},
		{"both are there", []fault{lostAnswer, none}, false, dispatch.Sent, 2},
		{"both in doubt, and the promise is broken", []fault{lostAnswer, lostAnswer}, true, dispatch.Held, 2},
		{"both in doubt, b's is there", []fault{lostRequest, lostAnswer}, false, dispatch.Held, 1},
		{"both in doubt, a's is there", []fault{lostAnswer, lostRequest}, false, dispatch.Held, 1},
	}
	stacks := make([]*stack, len(cases))
	for n, c := range cases { // all at once: each takes seconds
		stacks[n] = newStack(t, stackOptions{giveUp: 9 * time.Second, distinct: c.distinct, fake: fakeOptions{fault: script(c.faults...)}}, twin)
		stacks[n].Becomes(t, stacks[n].Keys[0], dispatch.InDoubt)
		stacks[n].Enqueue(t, twin)
	}
	for n, c := range cases {
		s := stacks[n]
		a, b := s.Keys[0], s.Keys[1]
		s.Settled(t)
		assert.Equal(t, dispatch.Held, s.History(t, a).State, c.name)
		assert.Equal(t, c.b, s.History(t, b).State, c.name)
		assert.Len(t, s.fake.messages(), c.taken, "nothing was sent again: %s", c.name)
		assert.Empty(t, s.History(t, a).Reference, "nobody's id was taken: %s", c.name)
		asked := 0
		for _, e := range s.History(t, a).Events {
			if e.Kind == "look-up" {
				asked++
			}
		}
		assert.Positive(t, asked, c.name)
	}
}

// A receipt tells twins apart: it carries the key.
func TestReceiptTellsTwinsApart(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackOptions{receipts: true, giveUp: 7 * time.Second, fake: fakeOptions{fault: func(int, url.Values) fault { return lostAnswer }}}, twin)
	s.Becomes(t, s.Keys[0], dispatch.InDoubt)
	s.Enqueue(t, twin)
	for _, key := range s.Keys {
		s.Becomes(t, key, dispatch.Held)
	}
	for _, m := range s.fake.messages() {
		code, err := call(t.Context(), m, "delivered", "")
		require.NoError(t, err)
		require.Equal(t, http.StatusNoContent, code)
	}
	for n, key := range s.Keys {
		s.Becomes(t, key, dispatch.Sent)
		require.Equal(t, s.fake.messages()[n].sid, s.History(t, key).Reference)
	}
}
