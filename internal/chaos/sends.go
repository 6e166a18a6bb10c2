package main

import (
	"fmt"
	"strings"
	"time"
)

// checkDeliveries: at most one message goes out, but for the residue.
func (c *checker) checkDeliveries(m row) {
	out := c.out(m.Key)
	if len(out) < 2 {
		return
	}
	residue := true
	for i, k := range out[1:] {
		// Each further delivery needs its excuse: itself, or the one before it,
		// left a frozen process or a slow network when no client could still
		// expect it to.
		residue = residue && kindOf(k.Vendor).residue && (c.beyondReach(k) || c.beyondReach(out[i]))
	}
	text := c.story(m.Key)
	if residue {
		c.residue++
		c.residues = append(c.residues, fmt.Sprintf("%s (%s): delivered %d times:%s", m.Key, m.Route, len(out), text))
		return
	}
	c.duplicates++
	c.blame("%s (%s): delivered %d times:%s", m.Key, m.Route, len(out), text)
}

// beyondReach reports whether a call came to its vendor after the moment until
// which any client must expect it: after the end of its attempt, or of its
// lease. Only a process that stood still between its last check and its write,
// or bytes that were held back on the way, do that.
func (c *checker) beyondReach(k call) bool {
	s := c.sends[sendID{k.Key, k.Attempt}]
	return s != nil && !s.lease.IsZero() && k.At.After(s.reach())
}

// story tells the sends of a message by the clocks of both sides.
func (c *checker) story(key string) string {
	var b strings.Builder
	at := func(t time.Time) string {
		if t.IsZero() {
			return "never"
		}
		return t.Format("15:04:05.000")
	}
	for _, id := range c.byKey[key] {
		s := c.sends[id]
		fmt.Fprintf(&b, "\n    attempt %d at %s by worker %d: began %s, ended %s, lease until %s", id.attempt, s.vendor, s.worker,
			at(s.begin), at(s.end), at(s.lease))
		for _, k := range s.calls {
			fmt.Fprintf(&b, ", %s %s", k.Verdict, at(k.At))
		}
		if s.evidence == nil {
			b.WriteString(", no evidence")
			continue
		}
		fmt.Fprintf(&b, ", evidence kind %d outcome %d at %s", s.evidence.Kind, s.evidence.Outcome, at(s.evidence.At))
	}
	for _, k := range c.l.calls {
		if k.Key == key && k.Attempt == 0 {
			fmt.Fprintf(&b, "\n    look-up: %s %s", k.Verdict, at(k.At))
		}
	}
	return b.String()
}

// checkSends: each send that began has one row of evidence, and each row that
// tells of an answer had a call.
func (c *checker) checkSends() {
	for id, s := range c.sends {
		c.judged["sends"]++
		if _, ok := c.rows[id.key]; !ok {
			continue // blamed already
		}
		switch {
		case s.evidence == nil:
			c.blame("%s: attempt %d left no evidence", id.key, id.attempt)
			continue
		case len(s.calls) > 0 && s.begin.IsZero():
			c.blame("%s: attempt %d called without having begun", id.key, id.attempt)
		case s.evidence.Kind == 1 && s.begin.IsZero():
			c.blame("%s: attempt %d never began, and has evidence of an outcome", id.key, id.attempt)
		case s.evidence.Kind == 1 && s.evidence.Status > 0 && len(s.calls) == 0:
			c.blame("%s: attempt %d was answered %d by nobody", id.key, id.attempt, s.evidence.Status)
		}
		for _, k := range s.calls {
			// Evidence of an acceptance or a refusal is the vendor's own word. A
			// refusal whose call was taken has lost a message; the reverse
			// invented one.
			took := k.Verdict == delivered || k.Verdict == replayed
			if s.evidence.Kind == 1 && (s.evidence.Outcome == 1 && !took || s.evidence.Outcome == 2 && took) {
				c.blame("%s: attempt %d was %s, and its evidence says outcome %d", id.key, id.attempt, k.Verdict, s.evidence.Outcome)
			}
			if k.Vendor != s.evidence.Provider {
				c.blame("%s: attempt %d went to %s, and its evidence says %s", id.key, id.attempt, k.Vendor, s.evidence.Provider)
			}
		}
		if s.lease.IsZero() {
			c.blame("%s: attempt %d was never claimed", id.key, id.attempt)
		} else if s.begin.After(s.lease) && !c.frozen(s.worker, s.lease.Add(-2*leaseTime), s.begin) {
			c.blame("%s: attempt %d began after its lease", id.key, id.attempt)
		}
	}
}

// spreadTime is how long a hold may take to be known everywhere: a claim
// interval, a claim under way, and a busy machine.
const spreadTime = time.Second

// hold is a wait that a vendor named and that was written down.
type hold struct {
	id          sendID
	known, ends time.Time
}

// checkFloors: no send of the same message, and none of any other once the
// hold is known, begins before the wait is over that the vendor named.
func (c *checker) checkFloors() {
	holds := map[string][]hold{}
	for id, s := range c.sends {
		if s.evidence == nil || s.evidence.Kind != 1 || s.evidence.Floor == 0 || len(s.calls) == 0 {
			continue
		}
		ends := s.calls[0].At.Add(s.evidence.Floor)
		holds[s.vendor] = append(holds[s.vendor], hold{id: id, known: s.evidence.At.Add(spreadTime), ends: ends})
		c.judged["floors of a message"]++
		for _, other := range c.byKey[id.key] {
			o := c.sends[other]
			if other.attempt > id.attempt && o.vendor == s.vendor && o.begin.Before(ends) && !o.begin.IsZero() {
				c.blame("%s: attempt %d began %v before the end of the wait of attempt %d", id.key, other.attempt, ends.Sub(o.begin), id.attempt)
			}
		}
	}
	for id, s := range c.sends {
		for _, h := range holds[s.vendor] {
			if s.begin.Before(h.known) || s.begin.After(h.ends) || c.disturbed(s, h) {
				continue
			}
			c.blame("%s: attempt %d began %v before the end of the wait that %s named for %s", id.key, id.attempt, h.ends.Sub(s.begin), s.vendor, h.id.key)
		}
	}
	for _, list := range holds {
		c.judged["floors of a vendor"] += len(list)
	}
}

// disturbed reports whether a worker may not have known of a hold in time: it
// stood still, or its way to the database or the database did.
func (c *checker) disturbed(s *send, h hold) bool {
	from := h.known.Add(-spreadTime - leaseTime)
	return c.struck(from, s.begin.Add(patience), func(f struck) bool {
		switch f.Fault {
		case freeze, crash, terminate, crowd, rowlocks, tablelock, deploy, kill:
			return true
		}
		return strings.HasSuffix(f.Target, databasePath(""))
	})
}
