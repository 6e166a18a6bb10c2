package outbox

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/seed-8098fbb7/dispatch"
)

// Alarms are the limits of Box.Check. A zero field is its default, a negative
// one switches it off.
type Alarms struct {
	// Late is how long the oldest message that is due may wait for a worker;
	// 5 min.
	Late time.Duration
	// Unknown is how long a message may be uncertain; 1 h.
	Unknown time.Duration
	// DeadLastHour is how many deaths in an hour are too many; 20.
	DeadLastHour int
	// Held is how many messages that wait for a person are too many; 100.
	Held int
	// Holdback is how long a transaction may keep vacuum from its work; 30 min.
	Holdback time.Duration
	// Unmatched is how many receipts without a message are too many; 1,000.
	Unmatched int
	// Account is how long a provider may be held because it refuses the account:
	// only a person mends that; 1 min.
	Account time.Duration
}

// Check reports whether the box is in order: the schema is migrated, and
// nothing is over its limit. It is cheap enough for a readiness endpoint, though
// an alarm is the better place: restarting a process mends none of this. Its
// error wraps ErrUnready and names everything that is over, without personal
// data; any other error means that it can't be known.
func (b *Box) Check(ctx context.Context, a Alarms) error {
	if err := b.Validate(ctx); err != nil {
		return err
	}
	s, err := b.Stats(ctx)
	if err != nil {
		return err
	}
	if over := s.Over(a); len(over) > 0 {
		return fmt.Errorf("%w: %s", ErrUnready, strings.Join(over, "; "))
	}
	return nil
}

// Over names what is over its limit, one line each.
func (s Stats) Over(a Alarms) []string {
	var over []string
	say := func(format string, args ...any) { over = append(over, fmt.Sprintf(format, args...)) }
	late, doubt := or(a.Late, 5*time.Minute), or(a.Unknown, time.Hour)
	for _, d := range s.Depths {
		switch {
		case d.State == dispatch.Pending && late >= 0 && d.Oldest > late:
			say("route %s: a message is due since %v, over %v (%d overdue)", d.Route, d.Oldest.Round(time.Second), late, d.Overdue)
		case d.State == dispatch.InDoubt && doubt >= 0 && d.Oldest > doubt:
			say("route %s: a message is unknown since %v, over %v (%d unknown)", d.Route, d.Oldest.Round(time.Second), doubt, d.Count)
		}
	}
	if most := or(a.DeadLastHour, 20); most >= 0 && s.Total(dispatch.Dead).LastHour >= int64(most) {
		say("%d messages died in the last hour, the limit is %d", s.Total(dispatch.Dead).LastHour, most)
	}
	if most := or(a.Held, 100); most >= 0 && s.Total(dispatch.Held).Count >= int64(most) {
		say("%d messages are held, the limit is %d", s.Total(dispatch.Held).Count, most)
	}
	if most := or(a.Unmatched, 1000); most >= 0 && s.ReceiptsUnmatched >= int64(most) {
		say("%d receipts are without a message, the limit is %d", s.ReceiptsUnmatched, most)
	}
	if most := or(a.Holdback, 30*time.Minute); most >= 0 && s.Holdback != nil && s.Holdback.For > most {
		say("%s %s holds vacuum back since %v, over %v", s.Holdback.Kind, s.Holdback.Name, s.Holdback.For.Round(time.Second), most)
	}
	for _, g := range s.Gates {
		most := or(a.Account, time.Minute)
		if closed := s.At.Sub(g.Since); most >= 0 && g.Closed && g.Reason == "account" && closed > most {
			say("provider %s refuses the account since %v, over %v", g.Provider, closed.Round(time.Second), most)
		}
	}
	return over
}
