package outbox

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
)

var ada = Audit{By: "ada", Why: "asked by support"}

// all pages through a list.
func all(t *testing.T, box *Box, f Filter, limit int) []Message {
	t.Helper()
	var out []Message
	cursor := ""
	for range 1000 {
		page, next, err := box.List(t.Context(), f, cursor, limit)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page), limit)
		out = append(out, page...)
		if next == "" {
			return out
		}
		require.NotEqual(t, cursor, next)
		cursor = next
	}
	t.Fatal("a list without an end")
	return nil
}

func keysIn(messages []Message) []dispatch.Key {
	out := make([]dispatch.Key, len(messages))
	for i, m := range messages {
		out[i] = m.Key
	}
	return out
}

// Each kind of list shows what its filter means, in its order, whatever the
// size of its pages.
func TestList(t *testing.T) {
	t.Parallel()
	tb, box := newOperated(t)
	pending := tb.seed(5, nil)
	later := tb.seed(1, map[string]string{"due": "clock_timestamp() + interval '1 hour'", "lane": "'sms/1/'"})
	flying := tb.seed(1, sending("due", "clock_timestamp() - interval '2 hours'"))
	doubt := tb.seed(3, unknown("first_sent", "clock_timestamp() - g * interval '1 minute'"))
	again := tb.seed(1, sending("first_sent", "clock_timestamp()", "open", "0"))
	dead := tb.seed(4, nil)
	tb.park(dead, map[string]string{"parked_at": "clock_timestamp() - g * interval '1 hour'"})
	held := tb.seed(1, nil)
	tb.park(held, map[string]string{"state": "4", "reason": "4", "open": "1", "parked_at": "clock_timestamp() - interval '90 minutes'", "provider": "'other'"})
	sent, cancelled := tb.seed(2, nil), tb.seed(1, nil)
	tb.finish(sent, 6, time.Hour)
	tb.finish(cancelled, 7, time.Hour)
	news := tb.seed(1, map[string]string{"lane": "'news/2/'"})
	tb.exec("set session_replication_role = replica; update {schema}.message set route = 'news' where id = '" + news[0].String() + "'; set session_replication_role = default")
	slices.Reverse(doubt) // the longest uncertain first
	reversed := func(lists ...[]dispatch.Key) []dispatch.Key {
		out := slices.Concat(lists...)
		slices.Reverse(out)
		return out
	}
	parked := []dispatch.Key{dead[0], held[0], dead[1], dead[2], dead[3]}
	of := func(states ...dispatch.State) Filter { return Filter{States: states} }
	for name, c := range map[string]struct {
		f    Filter
		want []dispatch.Key
	}{
		"dead":               {of(dispatch.Dead), dead},
		"parked":             {of(dispatch.Held, dispatch.Dead), parked},
		"parked in a time":   {Filter{States: []dispatch.State{dispatch.Held, dispatch.Dead}, Since: time.Now().Add(-150 * time.Minute), Before: time.Now().Add(-80 * time.Minute)}, parked[1:3]},
		"unknown":            {of(dispatch.InDoubt), doubt},
		"sending":            {of(dispatch.Sending), append(slices.Clone(flying), again...)},
		"pending of a route": {Filter{States: []dispatch.State{dispatch.Pending}, Route: "sms"}, append(slices.Clone(pending), later...)},
		"of a route":         {Filter{Route: "news"}, news},
		"by provider":        {Filter{Provider: "other"}, held},
		"by reason":          {Filter{Reason: dispatch.ReasonUnresolved}, held},
		"sent":               {of(dispatch.Sent), reversed(sent)},
		"final":              {of(dispatch.Sent, dispatch.Cancelled), reversed(sent, cancelled)},
		"mixed":              {of(dispatch.Dead, dispatch.Sent), reversed(dead, sent)},
		"all":                {Filter{}, reversed(pending, later, flying, doubtOrder(doubt), again, dead, held, sent, cancelled, news)},
		"nothing":            {Filter{Route: "none"}, nil},
		"too old":            {Filter{Before: time.Now().Add(-time.Hour)}, nil},
	} {
		for _, limit := range []int{1, 2, 100} {
			got := all(t, box, c.f, limit)
			require.Equal(t, texted(c.want), texted(keysIn(got)), "%s, by %d", name, limit)
		}
	}
	m := all(t, box, of(dispatch.Dead), 100)[0]
	require.Equal(t, []any{"sms", dispatch.ChannelSMS, dispatch.Dead, dispatch.ReasonRejected, "test", 1, 8, 400, "21211", "refused", false},
		[]any{m.Route, m.Channel, m.State, m.Reason, m.Provider, m.Attempts, m.Budget, m.Status, m.Code, m.Detail, m.Scrubbed})
	near(t, time.Hour, time.Since(m.Changed))
	near(t, 0, time.Since(m.Created))
	require.True(t, m.Next.IsZero())
	require.False(t, all(t, box, of(dispatch.Pending), 100)[0].Next.IsZero())
}

// doubtOrder is how they were enqueued.
func doubtOrder(keys []dispatch.Key) []dispatch.Key {
	out := slices.Clone(keys)
	slices.Reverse(out)
	return out
}

// A filter that few pass costs no more than its pages, and is found through.
func TestListFindsTheRareOne(t *testing.T) {
	t.Parallel()
	tb, box := newOperated(t)
	tb.seed(1, map[string]string{"due": "clock_timestamp() + interval '1 hour'", "lane": "'news/2/'"})
	rare := tb.seed(1, nil)
	tb.finish(rare, 7, time.Hour)
	tb.finish(tb.seed(2*listScan+10, nil), 6, time.Hour)
	require.Equal(t, rare, keysIn(all(t, box, Filter{States: []dispatch.State{dispatch.Cancelled}}, 10)))
	require.Empty(t, all(t, box, Filter{States: []dispatch.State{dispatch.Cancelled}, Provider: "none"}, 10))
	n := 0
	for cursor := ""; ; n++ {
		page, next, err := box.List(t.Context(), Filter{States: []dispatch.State{dispatch.Sent}}, cursor, MaxList)
		require.NoError(t, err)
		if cursor = next; next == "" {
			require.Len(t, page, 10)
			break
		}
		require.Len(t, page, MaxList)
	}
	require.Equal(t, 2, n)
}

// A recipient is found in any form that an intent may have it in, and never
// shown.
func TestListByRecipient(t *testing.T) {
	t.Parallel()
	tb, box := newOperated(t)
	var keys []dispatch.Key
	require.NoError(t, box.InTx(t.Context(), func(tx pgx.Tx) error {
		for _, c := range []dispatch.Content{
			dispatch.SMS{To: "+1 (555) 555-8765", Body: "zebra"},
			dispatch.SMS{To: "+15555550000", Body: "zebra"},
			dispatch.Email{To: []dispatch.Address{{Name: "Zoë", Email: "zoe@Example.COM"}}, Subject: "zebra", Text: "zebra"},
		} {
			i := dispatch.Intent{Key: dispatch.NewKey(), Route: "sms", Content: c}
			keys = append(keys, i.Key)
			if _, err := box.Enqueue(t.Context(), tx, i); err != nil {
				return err
			}
		}
		return nil
	}))
	tb.finish(keys[:1], 6, time.Hour)
	for to, want := range map[string][]dispatch.Key{
		"+15555558765": keys[:1], "+1 555-555-8765": keys[:1], "zoe@example.com": keys[2:], "zoe@EXAMPLE.com": keys[2:], "+15555550001": nil,
	} {
		require.Equal(t, texted(want), texted(keysIn(all(t, box, Filter{Recipient: to}, 1))), to)
	}
	require.Empty(t, all(t, box, Filter{Recipient: "+15555558765", States: []dispatch.State{dispatch.Dead}}, 10))
	for _, to := range []string{"8765", "zebra", "@", "a@b@c", "+1555\x00", strings.Repeat("x", 1<<20) + "@example.com"} {
		_, _, err := box.List(t.Context(), Filter{Recipient: to}, "", 0)
		var field *dispatch.FieldError
		require.ErrorAs(t, err, &field)
		require.Equal(t, "Recipient", field.Field)
		require.NotContains(t, err.Error(), "8765")
	}
}

func TestListRefusesBadInput(t *testing.T) {
	t.Parallel()
	_, box := newOperated(t)
	for field, f := range map[string]Filter{
		"States":   {States: []dispatch.State{9}},
		"Reason":   {Reason: -1},
		"Route":    {Route: "No Route"},
		"Provider": {Provider: "\x00"},
		"Since":    {Since: time.Date(30000, 1, 1, 0, 0, 0, 0, time.UTC)},
		"Before":   {Before: time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		_, _, err := box.List(t.Context(), f, "", 0)
		var e *dispatch.FieldError
		require.ErrorAs(t, err, &e)
		require.Equal(t, field, e.Field)
		f.Recipient = "+15555550123"
		_, err = box.Bulk(t.Context(), f, box.Retry, ada, nil)
		require.ErrorAs(t, err, &e)
	}
	for _, cursor := range []string{
		"x", "m", "m..", "m.1", "p.1." + dispatch.NewKey().String(), "m.99999999999999999999." + dispatch.NewKey().String(),
		"m.9223372036854775807." + dispatch.NewKey().String(), "m.1.x", "m.1.00000000-0000-0000-0000-000000000000", "\xff.1.x", strings.Repeat("m.", 1<<20),
	} {
		_, _, err := box.List(t.Context(), Filter{}, cursor, 0)
		require.ErrorContains(t, err, "Cursor", "%.20q", cursor)
	}
	for _, limit := range []int{-1, MaxList + 1} {
		_, _, err := box.List(t.Context(), Filter{}, "", limit)
		require.ErrorContains(t, err, "limit")
	}
}

// The claim itself sees a paused route, a probe's too: a worker's knowledge of
// the gates may be a moment old.
func TestClaimSeesAPausedRoute(t *testing.T) {
	t.Parallel()
	tb, box := newOperated(t)
	tb.seed(2, nil)
	require.NoError(t, box.PauseRoute(t.Context(), "sms", ada))
	c := request(1)
	require.Empty(t, tb.claim(c))
	c = request(1)
	c.Probe = true
	require.Empty(t, tb.claim(c))
	require.NoError(t, box.ResumeRoute(t.Context(), "sms", ada))
	require.Len(t, tb.claim(request(1)), 1)
}
