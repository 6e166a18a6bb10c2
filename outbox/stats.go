package outbox

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

// Stats is what a box holds at one moment, for dashboards and alarms.
type Stats struct {
	// At is when it was read, by the database's clock.
	At time.Time
	// Depths are the messages in motion and parked, by route, state and
	// reason; what is empty is left out. Final messages are not counted.
	Depths []Depth
	// Providers are the calls, outcomes and times of the last five minutes, as
	// for Box.Health.
	Providers []ProviderHealth
	// Gates are the holds on providers and routes, closed or not, as for
	// Box.Gates.
	Gates []Gate
	// ReceiptsWaiting are receipts that are yet to be applied, and
	// ReceiptsUnmatched those that no message was found for in a day: their
	// message is another application's, or was deleted. Each is counted to
	// 10,000.
	ReceiptsWaiting, ReceiptsUnmatched int64
	// NoticesWaiting are notices that the application has yet to take, counted
	// to 10,000.
	NoticesWaiting int64
	// DeadRows are the row versions in the queue that vacuum has yet to remove,
	// as the database estimates them: many beside few messages slow the claims.
	DeadRows int64
	// Holdback is what keeps vacuum from removing them, nil for nothing.
	Holdback *Holdback
}

// Depth is how many messages of a route are in a state.
type Depth struct {
	Route  string
	State  dispatch.State
	Reason dispatch.Reason // of held and dead
	Count  int64
	// Approximate tells that Count, Due and Overdue rest on the database's own
	// estimate: a lane is counted to 10,000 only, so that Stats stays cheap at
	// any depth.
	Approximate bool
	// Oldest is for how long the oldest of them has waited: since it was due
	// (pending; zero where none is due), since it was claimed (sending), since
	// its first send that may have left (unknown), since it was parked (held,
	// dead).
	Oldest time.Duration
	// Due are those of Pending that a worker may claim now, and Overdue those
	// that wait for it since more than a minute.
	Due, Overdue int64
	// LastHour are those of Held and Dead that were parked in the last hour.
	LastHour int64
}

// Holdback is the oldest thing that keeps vacuum from removing dead rows.
type Holdback struct {
	// Kind is "session", "prepared" (transaction), "slot" (of a replication) or
	// "standby"; Name is the process id, the transaction's or the slot's name.
	Kind, Name string
	// Transactions is how many transactions began since.
	Transactions int64
	// For is how long it has been at it, negative where the database doesn't
	// say: of slots and standbys, and of other roles' sessions without
	// pg_read_all_stats.
	For time.Duration
}

// Total sums the depths of a state, of all routes and reasons.
func (s Stats) Total(state dispatch.State) Depth {
	sum := Depth{State: state}
	for _, d := range s.Depths {
		if d.State == state {
			sum.add(d)
		}
	}
	return sum
}

func (d *Depth) add(e Depth) {
	d.Count += e.Count
	d.Approximate = d.Approximate || e.Approximate
	d.Oldest = max(d.Oldest, e.Oldest)
	d.Due += e.Due
	d.Overdue += e.Overdue
	d.LastHour += e.LastHour
}

// statsBound is how far a lane is counted; it stands in the statements as
// {bound}.
const statsBound = 10_000

// overdueAfter is how long a message may be due before it counts as overdue.
const overdueAfter = time.Minute

// Stats reads how the box stands, in one round trip and a few milliseconds
// whatever it holds.
func (b *Box) Stats(ctx context.Context) (Stats, error) {
	if b.pool == nil {
		return Stats{}, ErrNoPool
	}
	limits, err := Thresholds{}.engine()
	if err != nil {
		return Stats{}, err
	}
	var s Stats
	var c census
	var batch pgx.Batch
	queue := func(read func(row pgx.CollectableRow) error, sql string, args ...any) {
		batch.Queue(sql, args...).Query(func(rows pgx.Rows) error {
			defer rows.Close()
			for rows.Next() {
				if err := read(rows); err != nil {
					return err
				}
			}
			return rows.Err()
		})
	}
	queue(func(row pgx.CollectableRow) error {
		var off string
		return row.Scan(&off, &s.At, &s.ReceiptsWaiting, &s.ReceiptsUnmatched, &s.NoticesWaiting)
	}, b.sql.waiting)
	queue(c.lane, b.sql.lanesDepth, overdueAfter.Microseconds())
	queue(c.doubt, b.sql.doubts)
	queue(c.size, b.sql.size, b.name)
	queue(c.kind, b.sql.parked)
	queue(func(row pgx.CollectableRow) error {
		var h Holdback
		var held int64
		err := row.Scan(&h.Kind, &h.Name, &h.Transactions, &held)
		h.For = micros(held)
		s.Holdback = &h
		return err
	}, b.sql.holdback)
	var gates []engine.Gate
	queue(func(row pgx.CollectableRow) error {
		g, err := scanGate(row)
		gates = append(gates, g)
		return err
	}, b.sql.gates)
	var tallies []engine.Tally
	queue(func(row pgx.CollectableRow) error {
		t, err := scanTally(row)
		tallies = append(tallies, t)
		return err
	}, b.sql.health, limits.Window.Microseconds(), limits.Delivery.Microseconds())
	if err := b.pool.SendBatch(ctx, &batch).Close(); err != nil {
		return Stats{}, missing(err)
	}
	s.Depths, s.DeadRows = c.depths(), c.deadRows
	s.Gates, s.Providers = publicGates(gates), publicHealth(tallies)
	return s, nil
}

// census is what was counted of the queue and of what is parked.
type census struct {
	lanes    []laneCount
	doubts   map[string]laneCount
	parked   []Depth
	rows     map[string]int64
	shares   map[string]float64
	deadRows int64
}

type laneCount struct {
	lane                                 string
	n, sending, unknown, ready, late     int64
	notDue, notLate, age, sent, doubtful int64
}

func (c *census) lane(row pgx.CollectableRow) error {
	var l laneCount
	err := row.Scan(&l.lane, &l.n, &l.sending, &l.unknown, &l.ready, &l.late, &l.notDue, &l.notLate, &l.age, &l.sent, &l.doubtful)
	c.lanes = append(c.lanes, l)
	return err
}

func (c *census) doubt(row pgx.CollectableRow) error {
	var l laneCount
	err := row.Scan(&l.lane, &l.unknown, &l.doubtful)
	if c.doubts == nil {
		c.doubts = map[string]laneCount{}
	}
	c.doubts[l.lane] = l
	return err
}

func (c *census) size(row pgx.CollectableRow) error {
	var table, lane string
	var rows, dead int64
	var share float64
	if err := row.Scan(&table, &rows, &dead, &lane, &share); err != nil {
		return err
	}
	if c.rows == nil {
		c.rows, c.shares = map[string]int64{}, map[string]float64{}
	}
	c.rows[table], c.shares[table+" "+lane] = rows, share
	if table == "queue" {
		c.deadRows = dead
	}
	return nil
}

func (c *census) kind(row pgx.CollectableRow) error {
	var d Depth
	var lane string
	var age int64
	if err := row.Scan(&d.State, &lane, &d.Reason, &d.Count, &d.LastHour, &age); err != nil {
		return err
	}
	d.Route, d.Oldest, d.Approximate = lane, max(0, micros(age)), d.Count >= statsBound
	c.parked = append(c.parked, d)
	return nil
}

// estimate spreads the rows that the database estimates beyond what was counted
// exactly over the lanes that were too deep to count, by the shares that it
// knows. It never says less than was counted.
func (c *census) estimate(table string, counted int64, deep []string) map[string]int64 {
	var sum float64
	for _, lane := range deep {
		sum += c.shares[table+" "+lane]
	}
	out := map[string]int64{}
	for _, lane := range deep {
		share := 1 / float64(len(deep))
		if sum > 0 {
			share = c.shares[table+" "+lane] / sum
		}
		out[lane] = max(statsBound, int64(share*float64(c.rows[table]-counted)))
	}
	return out
}

func (c *census) depths() []Depth {
	var counted int64
	var deep []string
	for _, l := range c.lanes {
		if l.n < statsBound {
			counted += l.n
		} else {
			deep = append(deep, l.lane)
		}
	}
	guess := c.estimate("queue", counted, deep)
	var all []Depth
	for _, l := range c.lanes {
		all = append(all, l.depths(guess[l.lane], c.doubts[l.lane])...)
	}
	counted, deep = 0, nil
	for _, d := range c.parked {
		if d.Approximate {
			deep = append(deep, d.Route) // a lane still; it may stand here for each state and reason
		} else {
			counted += d.Count
		}
	}
	guess = c.estimate("parked", counted, deep)
	for _, d := range c.parked {
		if d.Approximate {
			kinds := int64(0)
			for _, lane := range deep {
				if lane == d.Route {
					kinds++
				}
			}
			d.Count = max(statsBound, guess[d.Route]/kinds)
		}
		d.Route = routeOf(d.Route)
		all = append(all, d)
	}
	return sumDepths(all)
}

// depths are those of a lane. estimate is its depth where it was too deep to
// count, and doubts is what is unknown in it then.
func (l laneCount) depths(estimate int64, doubts laneCount) []Depth {
	deep := estimate > 0
	unknown, doubtful := l.unknown, l.doubtful
	pending := Depth{
		Route: routeOf(l.lane), State: dispatch.Pending, Count: l.n - l.sending - l.unknown, Due: l.ready, Overdue: l.late,
		Oldest: max(0, micros(l.age)), Approximate: deep,
	}
	if deep {
		unknown, doubtful = max(unknown, doubts.unknown), max(doubtful, doubts.doubtful)
		pending.Count = max(estimate-l.sending-unknown, l.n-l.sending-l.unknown)
		if l.notDue < statsBound {
			pending.Due = max(l.ready, pending.Count-l.notDue)
		}
		if l.notLate < statsBound {
			pending.Overdue = max(l.late, pending.Count-l.notLate)
		}
		if l.ready+l.sending+l.unknown < l.n { // the front reaches beyond what is due: those were counted
			pending.Due, pending.Overdue = l.ready, l.late
		}
	}
	all := []Depth{pending, {
		Route: pending.Route, State: dispatch.Sending, Count: l.sending, Oldest: max(0, micros(l.sent)),
	}, {
		Route: pending.Route, State: dispatch.InDoubt, Count: unknown, Oldest: max(0, micros(doubtful)), Approximate: deep && unknown >= statsBound,
	}}
	return slices.DeleteFunc(all, func(d Depth) bool { return d.Count == 0 })
}

// sumDepths sums the lanes of a route.
func sumDepths(all []Depth) []Depth {
	var out []Depth
	for _, d := range all {
		at := slices.IndexFunc(out, func(o Depth) bool { return o.Route == d.Route && o.State == d.State && o.Reason == d.Reason })
		if at < 0 {
			out = append(out, Depth{Route: d.Route, State: d.State, Reason: d.Reason})
			at = len(out) - 1
		}
		out[at].add(d)
	}
	slices.SortFunc(out, func(x, y Depth) int {
		return cmp.Or(cmp.Compare(x.Route, y.Route), cmp.Compare(x.State, y.State), cmp.Compare(x.Reason, y.Reason))
	})
	return out
}

// routeOf is the route of a lane, or the lane as it is where it was written by
// something else.
func routeOf(lane string) string {
	if l, ok := decide.ParseLane(lane); ok {
		return l.Route
	}
	return lane
}
