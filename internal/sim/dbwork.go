package sim

import (
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

// lanes is lanesSQL.
func (d *database) lanes() []string {
	var names []string
	for i := range d.rows {
		if r := &d.rows[i]; r.in == inQueue {
			names = addSorted(names, laneName(r.Lane))
		}
	}
	return names
}

func addSorted(list []string, s string) []string {
	at := 0
	for at < len(list) && list[at] < s {
		at++
	}
	if at < len(list) && list[at] == s {
		return list
	}
	list = append(list, "")
	copy(list[at+1:], list[at:])
	list[at] = s
	return list
}

// peek is peekSQL.
func (d *database) peek(probes []engine.Probe) engine.Sight {
	now := d.w.clock()
	sight := engine.Sight{Next: -1, Now: now}
	for _, p := range probes {
		var first engine.Cursor
		for i := range d.rows {
			r := &d.rows[i]
			if r.in != inQueue || laneName(r.Lane) != p.Lane {
				continue
			}
			switch wait := r.Due.Sub(now); {
			case wait > 0:
				if sight.Next < 0 || wait < sight.Next {
					sight.Next = wait
				}
			case r.idle(now) && !r.at().Before(p.From) && (first == engine.Cursor{} || r.at().Before(first)):
				first = r.at()
			}
		}
		sight.First = append(sight.First, first)
	}
	return sight
}

// at is the row's place in its lane.
func (r *row) at() engine.Cursor { return engine.Cursor{Due: r.Due, Key: r.Key} }

// take is claimSQL: rules 2 and 19.
func (d *database) take(c engine.Claim) []engine.Task {
	now := d.w.clock()
	var tasks []engine.Task
	if d.held(c.Provider) && !c.Probe {
		return nil
	}
	d.inOrder(c.Lane, func(r *row) bool {
		if len(tasks) == c.Limit {
			return false
		}
		if r.Due.After(now) || r.at().Before(c.From) || !d.claimable(r, c, now) {
			return true
		}
		before := *r
		rule := decide.RuleClaim
		if r.State == dispatch.InDoubt {
			rule = decide.RuleResend
		}
		r.State, r.Fence, r.Spent = dispatch.Sending, r.Fence+1, r.Spent+1
		if d.spentFence {
			r.Fence = int64(r.Spent)
		}
		r.Provider, r.Account, r.Encoding = c.Provider, c.Account, c.Encoding
		r.claim, r.Claimed, r.Lease = c.ID, now, now.Add(c.Lease)
		d.w.moved(rule, &before, r)
		d.w.ref.claimed(r)
		t := d.task(r)
		t.Now, t.Ended = now, decide.NotEnded
		t.From, t.Form = from(r.m, c.Provider), r.m.form
		tasks = append(tasks, t)
		return true
	})
	return tasks
}

func (d *database) claimable(r *row, c engine.Claim, now time.Time) bool {
	if r.Ended != decide.NotEnded && !d.sendEnded || r.Spent >= r.Budget ||
		!r.Deadline.IsZero() && !r.Deadline.After(now) && !d.sendExpired {
		return false
	}
	switch r.State {
	case dispatch.Pending:
		return true
	case dispatch.InDoubt:
		return r.idle(now) && r.Ledger.Count(decide.Open) == 1 &&
			r.Provider == c.Provider && r.Account == c.Account && r.Encoding == c.Encoding &&
			(r.ResolveUntil.IsZero() || r.ResolveUntil.After(now)) && r.first.Add(c.Window).After(now)
	case dispatch.Sending, dispatch.Held, dispatch.Dead, dispatch.Sent, dispatch.Cancelled:
	}
	return false
}

// task is what a statement returns of a row.
func (d *database) task(r *row) engine.Task {
	t := engine.Task{Row: r.Row, Senders: r.m.senders}
	t.Reason = dispatch.NoReason
	return t
}

func from(m *message, provider string) string {
	if m.senders == nil {
		return ""
	}
	for i := 0; i+3 < len(m.senders); i++ { // the map is one of three fixed texts
		if n := len(provider); i+n+4 < len(m.senders) && string(m.senders[i:i+n+3]) == provider+`":"` {
			return string(m.senders[i+n+3 : i+n+4])
		}
	}
	return ""
}

// unclaim is unclaimSQL: rule 13.
func (d *database) unclaim(id [16]byte) (n int) {
	for i := range d.rows {
		r := &d.rows[i]
		if r.in != inQueue || r.State != dispatch.Sending || r.claim != id {
			continue
		}
		before := *r
		r.State = dispatch.Pending
		if r.Ledger.Count(decide.Open) > 0 {
			r.State = dispatch.InDoubt
		}
		r.Spent--
		r.claim, r.Lease = [16]byte{}, time.Time{}
		d.w.ref.handedBack(r.m.n, r.Fence)
		d.w.moved(decide.RuleClaimLost, &before, r)
		n++
	}
	return n
}

// page is pageSQL.
func (d *database) page(lane string, after engine.Cursor, limit int) (tasks []engine.Task, next engine.Cursor, ok bool) {
	now := d.w.clock()
	parsed, _ := decide.ParseLane(lane)
	n := 0
	d.inOrder(parsed, func(r *row) bool {
		if r.Due.After(now) || n == limit {
			return false
		}
		if c := r.Due.Compare(after.Due); c < 0 || c == 0 && r.Key.Compare(after.Key) <= 0 {
			return true
		}
		n++
		next = engine.Cursor{Due: r.Due, Key: r.Key}
		tend := d.free(r, now)
		if r.State == dispatch.Pending {
			tend = r.Ended != decide.NotEnded || r.Spent >= r.Budget || !r.Deadline.IsZero() && !r.Deadline.After(now)
		}
		if tend {
			t := d.task(r)
			t.Now = now
			if d.noLease {
				t.Lease = time.Time{}
			}
			tasks = append(tasks, t)
		}
		return true
	})
	return tasks, next, n >= limit
}

// laneName is lane.String without its cost for the lanes that there are.
func laneName(l decide.Lane) string {
	if l.Route == routeName && l.Priority == dispatch.Normal && l.Retry {
		switch l.Provider {
		case "":
			return "sms/2//retry"
		case "alpha":
			return "sms/2/alpha/retry"
		case "beta":
			return "sms/2/beta/retry"
		}
	}
	if l.Route == routeName && l.Priority == dispatch.Normal && !l.Retry {
		switch l.Provider {
		case "":
			return "sms/2/"
		case "alpha":
			return "sms/2/alpha"
		case "beta":
			return "sms/2/beta"
		}
	}
	return l.String()
}
