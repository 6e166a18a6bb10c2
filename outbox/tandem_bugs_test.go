package outbox

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// sqlBug is a mistake in one statement: a clause of it, and what stands there
// instead.
type sqlBug struct {
	seed      uint64 // where the search begins: some script that meets it soon
	name      string
	text      func(s *statements) *string
	old, with string
}

// sqlBugs are those that the tandem must find. Each is one clause that a
// person might forget, or think needless.
var sqlBugs = []sqlBug{
	{9, "settle of an acceptance without the fence", applySentText, " and q.fence = i.fence", ""},
	{0, "settle of an acceptance without the state", applySentText, " and q.state + 0 = 2", ""},
	{9, "settle of an acceptance that takes an older send of its batch along", applySentText, "i.n not in (select gone.n from gone)", "i.id not in (select gone.id from gone)"},
	{10, "settle without the fence", applyText, " and q.fence = i.fence", ""},
	{10, "settle without the state", applyText, " and q.state + 0 = i.was", ""},
	{2, "settle of the sweep whatever the lease", applyText, "(i.idle = 0 or coalesce(q.lease <= clock_timestamp(), true))", "i.idle >= 0"},
	{9, "settle that doesn't see a cancel", applyText, "when r.goal = 1 and r.ended <> 0 and r.waived = 0 then 7", ""},
	{8, "settle that takes a cancel as the end of what may have been accepted", applyText, "r.ended <> 0 and r.waived = 0 then 7", "r.ended <> 0 then 7"},
	{11, "settle that doesn't see the deadline", applyText, " or r.deadline <= r.now or", " or"},
	{0, "settle that doesn't see the budget", applyText, " or r.spent >= r.budget", ""},
	{2, "settle that forgets the cancel", applyText, "ended = p.ended,", "ended = 0,"},
	{7, "settle before the floor", applyText, "greatest(e.now + e.wait * interval '1 microsecond', nullif(e.not_before, '')::timestamptz)", "e.now + e.wait * interval '1 microsecond'"},
	{4, "settle that hides a row behind its deadline", applyText, "case e.state when 1 then e.deadline else nullif(e.resolve_until, '')::timestamptz end", "nullif(e.resolve_until, '')::timestamptz"},
	{0, "look-up without a fence of its own", applyText, "q.fence + case when p.lease > 0 then 1 else 0 end", "q.fence"},
	{5, "claim without a new fence", claimText, "fence = q.fence + 1", "fence = q.fence + 0"},
	{4, "claim that counts the budget only", claimText, "fence = q.fence + 1", "fence = q.spent + 1"},
	{8, "claim of what was cancelled", claimText, "when 1 then w.ended = 0 and", "when 1 then"},
	{2, "claim of a cancelled unknown", claimText, "when 3 then w.ended = 0 and", "when 3 then"},
	{7, "claim past the deadline", claimText, "when 1 then w.ended = 0 and w.spent < w.budget and coalesce(w.deadline > clock_timestamp(), true)", "when 1 then w.ended = 0 and w.spent < w.budget"},
	{7, "claim in the deadline's own microsecond", claimText, "when 1 then w.ended = 0 and w.spent < w.budget and coalesce(w.deadline >", "when 1 then w.ended = 0 and w.spent < w.budget and coalesce(w.deadline >="},
	{16, "re-send at another account", claimText, " and w.account = $3::text", ""},
	{11, "re-send by another encoding", claimText, " and w.encoding = $4::bigint", ""},
	{5, "re-send after the window", claimText, "w.first_sent + $7::bigint * interval '1 microsecond' > clock_timestamp()", "$7::bigint >= 0"},
	{13, "re-send with two open", claimText, " and w.open = 1", ""},
	{2, "re-send while a look-up asks", claimText, "and coalesce(w.lease <= clock_timestamp(), true) and w.open", "and w.open"},
	{2, "re-send after resolve_until", claimText, "and coalesce(w.resolve_until > clock_timestamp(), true)", ""},
	{4, "claim for a held provider", claimText, "($9::bigint = 1 or not", "($9::bigint >= 0 or not"},
	{10, "hand-back of another claim's rows", unclaimText, "q.claim = $1::text::uuid", "$1::text is not null"},
	{5, "hand-back that spends", unclaimText, "spent = q.spent - 1, ", ""},
	{2, "hand-back of an open row to pending", unclaimText, "case when q.open > 0 then 3 else 1 end", "case when q.open > 9 then 3 else 1 end"},
	{1, "second evidence of one send", recordText, "case when $3::bigint in (1, 2) then 0 else", "case when $3::bigint = 9 then 0 else"},
	{1, "locked move that lowers the fence", requeueText, "$7::bigint, $8::bigint", "$7::bigint - 1, $8::bigint"},
	{5, "cancel of a send that leaves no mark", markEndedText, "ended = $2::bigint", "ended = $2::bigint * 0"},
	{6, "truth that is the latest acceptance, not the first", knownText, "order by h.at, h.fence, h.sub limit 1", "order by h.at desc, h.fence desc, h.sub desc limit 1"},
	{11, "evidence of any send", knownText, "h.fence = $2::bigint and h.sub = 0", "$2::bigint >= 0 and h.sub = 0"},
	{10, "sweep of what is leased", pageText, "else coalesce(d.lease <= clock_timestamp(), true)", "else true"},
	{1, "sweep whose cursor passes equals", pageText, "(q.due, q.id) >", "(q.due, q.id) >="},
	{8, "gate that a shorter hold opens earlier", closeGateText, "else greatest(g.until, excluded.until) end", "else excluded.until end"},
	{7, "probe before its time", probeGateText, " and g.probe_at <= clock_timestamp()", ""},
}

func applySentText(s *statements) *string { return &s.applySent }
func applyText(s *statements) *string     { return &s.apply }
func unclaimText(s *statements) *string   { return &s.unclaim }
func recordText(s *statements) *string    { return &s.record }
func requeueText(s *statements) *string   { return &s.requeue }
func markEndedText(s *statements) *string { return &s.markEnded }
func knownText(s *statements) *string     { return &s.known }
func pageText(s *statements) *string      { return &s.page }
func closeGateText(s *statements) *string { return &s.closeGate }
func probeGateText(s *statements) *string { return &s.probeGate }

func claimText(s *statements) *string { return &s.claim }

// plantIn changes the statement; it fails where the clause isn't there.
func (b sqlBug) plantIn(t *testing.T, s *statements) {
	t.Helper()
	change := func(text string) string {
		require.Equal(t, 1, strings.Count(text, b.old), "%s: the clause must stand there once", b.name)
		return strings.Replace(text, b.old, b.with, 1)
	}
	text := b.text(s)
	*text = change(*text)
}

// The tandem can fail: each mistake in the SQL is a difference soon.
func TestTandemFindsMistakesInTheSQL(t *testing.T) {
	t.Parallel()
	var next atomic.Int64
	for shard := range 3 {
		t.Run(fmt.Sprint(shard), func(t *testing.T) {
			t.Parallel()
			tm := newTandem(t)
			for n := next.Add(1); n <= int64(len(sqlBugs)); n = next.Add(1) {
				tm.find(t, sqlBugs[n-1])
			}
		})
	}
}

// bugSeeds is how many scripts a mistake may go unseen in.
const bugSeeds = 40

// find plays seeds until one differs.
func (tm *tandem) find(t *testing.T, bug sqlBug) {
	t.Helper()
	tm.plant(func(s *statements) { bug.plantIn(t, s) })
	for n := range uint64(bugSeeds) {
		tm.begin((bug.seed + n) % bugSeeds)
		if tm.play(tandemSteps) != "" {
			what, _, _ := strings.Cut(tm.diff, ":")
			t.Logf("%s: seed %d, step %d, in %s", bug.name, tm.seed, len(tm.story), what)
			return
		}
	}
	t.Errorf("%s: not found", bug.name)
}
