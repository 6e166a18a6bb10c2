package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/seed-8098fbb7/dispatch"
)

// kind is what a fake vendor promises, and so what the library can know. Its
// name is also the provider's, and that of the route that has it alone.
type kind struct {
	name   string
	window time.Duration // of its dedupe; zero is none
	search bool          // it can be asked
	echo   bool          // its receipts carry our key
	proves bool          // it looks for the key before it validates
	// mayHold tells that an uncertain message may end held: nothing that the
	// vendor offers can tell in every case.
	mayHold bool
	// residue tells that a frozen process, or late bytes, may deliver twice,
	// whatever a client does.
	residue bool
}

// lag is how long an accepted message is missing from the look-ups of a fake,
// grace how long its first receipt may take.
const (
	lag   = 700 * time.Millisecond
	grace = 6 * time.Second
)

// kinds are the vendors. The last two share a route, with failover.
var kinds = []kind{
	{name: "keyed", window: time.Hour, proves: true},
	{name: "brief", window: 20 * time.Second, mayHold: true, residue: true},
	{name: "searched", search: true, residue: true},
	{name: "echoing", echo: true, mayHold: true},
	{name: "mute", mayHold: true},
	{name: "first", window: time.Hour, proves: true},
	{name: "second", search: true, residue: true},
}

func kindOf(name string) kind {
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
	if i < 0 {
		return kind{}
	}
	return kinds[i]
}

// pair is the route with two providers.
const pair = "pair"

// routes are what the box of every process declares.
func routes() []dispatch.Route {
	policy := dispatch.SMSPolicy()
	policy.Backoff = dispatch.Backoff{Base: 100 * time.Millisecond, Cap: 2 * time.Second}
	// Enough that no message of a vendor that can tell runs out of them.
	policy.Attempts = 60
	var out []dispatch.Route
	for _, k := range kinds[:5] {
		out = append(out, dispatch.Route{Name: k.name, Providers: []string{k.name}, Policy: policy})
	}
	out[1].Policy.Attempts = briefBudget
	return append(out, dispatch.Route{Name: pair, Providers: []string{"first", "second"}, Policy: policy})
}

// briefBudget is small, so that the budget is seen to be kept.
const briefBudget = 4

// providers are the kinds that a route's messages may go to.
func providers(route string) []kind {
	if route == pair {
		return kinds[5:]
	}
	return []kind{kindOf(route)}
}

// shares are the routes by how many of a hundred messages take them.
var shares = []struct {
	route string
	of100 int
}{{"keyed", 35}, {"searched", 20}, {pair, 15}, {"echoing", 14}, {"mute", 8}, {"brief", 8}}

// unwanted is a text that every vendor refuses.
const unwanted = "unwanted"

// planned is message n of a run: the same in every process and at every try.
type planned struct {
	key      dispatch.Key
	route    string
	unwanted bool
	validFor time.Duration // zero is the policy's four hours
	notify   dispatch.Notify
}

// plan draws the messages of a run from its seed.
type plan struct {
	seed     uint64
	messages int
	ids      dispatch.Namespace
}

func newPlan(seed uint64, messages int) (plan, error) {
	ids, err := dispatch.NewNamespace(fmt.Sprintf("chaos-%d", seed))
	return plan{seed: seed, messages: messages, ids: ids}, err
}

func (p plan) message(n int) planned {
	r := rand.New(rand.NewPCG(p.seed, uint64(n))) // #nosec G115 -- a count
	m := planned{key: p.ids.Key(fmt.Sprint(n))}
	at := r.IntN(100)
	for _, s := range shares {
		if at -= s.of100; at < 0 {
			m.route = s.route
			break
		}
	}
	m.unwanted = r.IntN(100) == 0
	short := r.IntN(12) == 0
	if short && (m.route == "searched" || m.route == "brief") {
		m.validFor = time.Duration(3+r.IntN(9)) * time.Second
	}
	if r.IntN(8) == 0 {
		m.notify = dispatch.NotifySent | dispatch.NotifyDead | dispatch.NotifyHeld
	}
	return m
}

// ghosts is every how many messages one is enqueued besides that is rolled
// back: it must never be sent (B121).
const ghosts = 50

func (p plan) ghost(n int) planned {
	m := p.message(n)
	m.key = p.ids.Key(fmt.Sprint("ghost ", n))
	return m
}

func (m planned) intent() dispatch.Intent {
	text := "Your code is 482901"
	if m.unwanted {
		text = unwanted
	}
	return dispatch.Intent{
		Key: m.key, Route: m.route, Content: dispatch.SMS{To: "+15555550123", Body: text}, ValidFor: m.validFor, Notify: m.notify,
	}
}
