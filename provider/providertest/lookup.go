package providertest

import (
	"context"
	"errors"
	"time"

	"github.com/seed-8098fbb7/dispatch"
)

// lookupRules are the checks of Lookup. "Absent" lets a message go out again:
// only the vendor's own word may say so.
func lookupRules() []check {
	all := []check{
		{"look-up as the contract says", (*trial).lookupContract},
		{"look-up finds", (*trial).lookupFinds},
		{"look-up of nothing", (*trial).lookupMisses},
		{"look-up within the lag", (*trial).lookupLags},
		{"look-up ends with its context", (*trial).lookupHangs},
	}
	for _, c := range []struct {
		name  string
		fault Fault
	}{
		{"on a wrong path", Fault{Status: 404, Body: "<html>not here</html>"}},
		{"with an error", Fault{Status: 500}},
		{"without the right", Fault{Status: 403, Code: "forbidden"}},
		{"redirected", Redirect(302, "/login")},
		{"dropped", Fault{Wire: Drop}},
		{"cut", Fault{Wire: HalfBody}},
		{"empty", Fault{Status: 200, Body: "{}"}},
		{"with a page", Fault{Status: 200, Body: "<html>"}},
		{"endless", Fault{Wire: Flood}},
	} {
		all = append(all, check{"look-up " + c.name, func(x *trial) { x.lookupProvesNothing(c.fault) }})
	}
	return all
}

func (x *trial) searches() bool { return x.provider.Contract().Search.Available }

func (x *trial) lookup(ctx context.Context, e dispatch.Envelope) (dispatch.Found, error) {
	var found dispatch.Found
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		found, err = x.provider.Lookup(ctx, dispatch.Query{
			Key: e.Key, Content: e.Content, From: e.From,
			Since: time.Now().Add(-time.Hour), Until: time.Now().Add(time.Hour),
		})
	}()
	if !x.waits(ctx, done) {
		x.fail("Lookup did not return when its context ended")
		return dispatch.Found{}, errors.New("stuck")
	}
	x.private(err, dispatch.Envelope{})
	return found, err
}

func (x *trial) lookupContract() {
	_, err := x.lookup(context.Background(), x.envelope())
	if is := errors.Is(err, dispatch.ErrNoLookup); is == x.searches() {
		x.fail("contract and Lookup disagree on whether there is a look-up (%v)", err)
	}
}

func (x *trial) lookupFinds() {
	if !x.searches() {
		return
	}
	e := x.envelope()
	_, r := x.attempt(e)
	before := len(x.vendor.AllCalls())
	found, err := x.lookup(context.Background(), e)
	if err != nil || found.Presence != dispatch.Present || found.ID != r.accepted.ID {
		x.fail("an accepted message is %v (%v)", found.Presence, err)
	}
	if len(x.vendor.AllCalls()) != before {
		x.fail("a look-up sent something")
	}
}

func (x *trial) lookupMisses() {
	if !x.searches() {
		return
	}
	found, err := x.lookup(context.Background(), x.envelope())
	if err != nil || found.Presence != dispatch.Absent {
		x.fail("a message that was never sent is %v, want absent (%v)", found.Presence, err)
	}
}

// lookupLags: an adapter reports what the vendor says; that "absent" within
// the lag is no proof is for its caller to know.
func (x *trial) lookupLags() {
	if !x.searches() {
		return
	}
	x.renew(func(o *Options) { o.Lag = time.Hour })
	e := x.envelope()
	x.attempt(e)
	if found, err := x.lookup(context.Background(), e); err == nil && found.Presence == dispatch.Present {
		x.fail("found what the vendor does not show")
	}
}

func (x *trial) lookupHangs() {
	if !x.searches() {
		return
	}
	x.vendor.SetLookupFault(func(string) Fault { return Fault{Wire: Hang} })
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if found, err := x.lookup(ctx, x.envelope()); err == nil || found.Presence != dispatch.Unclear {
		x.fail("a look-up without an answer says %v", found.Presence)
	}
}

func (x *trial) lookupProvesNothing(f Fault) {
	if !x.searches() {
		return
	}
	x.vendor.SetLookupFault(func(string) Fault { return f })
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if found, _ := x.lookup(ctx, x.envelope()); found.Presence != dispatch.Unclear {
		x.fail("the look-up says %v, and the vendor said nothing", found.Presence)
	}
}
