package providertest

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/seed-8098fbb7/dispatch"
)

// misbehaviours is the table of outcomes: what a provider must make of a
// vendor's answer, or of its lack.
func misbehaviours() []Misbehaviour {
	ok := Want{Outcome: dispatch.OK}
	unknown := Want{Stage: dispatch.Answered}
	silent := Want{}
	refused := func(s dispatch.Scope, floor time.Duration) Want {
		return Want{Outcome: dispatch.Rejected, Scope: s, Stage: dispatch.Answered, Floor: floor}
	}
	unknownFloor := func(d time.Duration) Want { return Want{Stage: dispatch.Answered, Floor: d} }
	now := time.Now().UTC()
	soon := now.Add(time.Minute)
	dated := func(layout string) Fault {
		f := TooMany(soon.Format(layout))
		f.Header.Set("Date", now.Format(http.TimeFormat)) // B046: our own clock doesn't count
		return f
	}
	html := http.Header{"Content-Type": {"text/html"}}
	page := "<html><h1>Not here</h1></html>"

	all := []Misbehaviour{
		{Name: "accepted", Want: ok},
		{Name: "accepted late", Fault: Fault{Delay: 50 * time.Millisecond}, Want: ok},
		{Name: "body cut after acceptance", Fault: Fault{Wire: HalfBody}, Want: ok},                                // B004
		{Name: "body stalls after acceptance", Fault: Fault{Wire: Stall}, Want: ok, Short: true},                   // B004
		{Name: "endless body after acceptance", Fault: Fault{Wire: Flood}, Want: ok},                               // B024
		{Name: "unreadable body after acceptance", Fault: Fault{Body: "<html>", Header: html}, Want: ok},           // B002
		{Name: "message refused", Fault: Fault{Refuse: true}, Want: refused(dispatch.Message, 0)},                  // B017
		{Name: "dropped", Fault: Fault{Refuse: true, Wire: Drop}, Want: silent},                                    // B020
		{Name: "dropped before reading", Fault: Fault{Refuse: true, Wire: DropUnread}, Want: silent},               //
		{Name: "dropped after acceptance", Fault: Fault{Wire: Drop}, Want: silent},                                 //
		{Name: "reset after acceptance", Fault: Fault{Wire: Reset}, Want: silent},                                  //
		{Name: "half a header after acceptance", Fault: Fault{Wire: HalfHeader}, Want: silent},                     //
		{Name: "hangs", Fault: Fault{Refuse: true, Wire: Hang}, Want: silent, Short: true},                         //
		{Name: "hangs after acceptance", Fault: Fault{Wire: Hang}, Want: silent, Short: true},                      //
		{Name: "error page 503", Fault: HTML503("30"), Want: unknownFloor(30 * time.Second)},                       // B001, B047
		{Name: "endless error body", Fault: Fault{Status: 500, Wire: Flood}, Want: unknown},                        // B024
		{Name: "packed error body", Fault: Fault{Status: 500, Wire: Bomb}, Want: unknown},                          // B024
		{Name: "key in flight", Fault: Fault{Refuse: true, Status: 409, Code: "in_progress"}, Want: unknown},       // B057
		{Name: "edge timed out", Fault: edge(524, "cloudflare"), Want: unknown},                                    // B019
		{Name: "edge's status from nobody", Fault: edge(522, ""), Want: unknown},                                   // B019
		{Name: "edge did not reach the vendor", Fault: edge(522, "cloudflare"), Want: refused(dispatch.Moment, 0)}, // B019
		{Name: "wrong path", Fault: Fault{Refuse: true, Status: 404, Header: html, Body: page}, Want: refused(dispatch.Account, 0)},
	}
	for _, status := range []int{408, 425, 500, 502, 504, 520, 599} { // B020: the message was taken all the same
		all = append(all, Misbehaviour{Name: "status " + strconv.Itoa(status), Fault: Fault{Status: status}, Want: unknown})
	}
	for _, status := range []int{401, 402, 403} {
		all = append(all, Misbehaviour{Name: "status " + strconv.Itoa(status), Fault: Fault{Refuse: true, Status: status}, Want: refused(dispatch.Account, 0)})
	}
	for _, status := range []int{301, 302, 303, 307, 308} { // B022
		all = append(all, Misbehaviour{Name: "redirect " + strconv.Itoa(status), Fault: Redirect(status, "/login"), Want: refused(dispatch.Account, 0)})
	}
	for _, r := range []struct {
		name  string
		fault Fault
		floor time.Duration
	}{
		{"seconds", TooMany("7"), 7 * time.Second},
		{"decimals", TooMany("1.5"), 1500 * time.Millisecond},                // B042
		{"a huge number", TooMany("9223372037"), dispatch.MaxFloor},          // B039
		{"400 digits", TooMany(strings.Repeat("9", 400)), dispatch.MaxFloor}, // B039
		{"zero", TooMany("0"), 0},                                            // B044
		{"a negative number", TooMany("-5"), 0},                              // B044
		{"a past date", TooMany("Wed, 21 Oct 2015 07:28:00 GMT"), 0},         // B044
		{"nonsense", TooMany("soon"), 0},                                     //
		{"IMF-fixdate", dated(http.TimeFormat), time.Minute},                 // B045
		{"RFC 850 date", dated("Monday, 02-Jan-06 15:04:05 GMT"), time.Minute},
		{"asctime date", dated(time.ANSIC), time.Minute},
		{"a date with an offset", dated("Mon, 02 Jan 2006 15:04:05 -0700"), 0},
	} {
		all = append(all, Misbehaviour{Name: "Retry-After with " + r.name, Fault: r.fault, Want: refused(dispatch.Moment, r.floor)})
	}
	return all
}

func edge(status int, server string) Fault {
	f := Fault{Status: status, Header: http.Header{}, Body: "error"}
	if server != "" {
		f.Header.Set("Server", server)
		f.Header.Set("Cf-Ray", "1-X")
	}
	return f
}

// short is how long a vendor that fell silent is listened to.
const short = 500 * time.Millisecond

// meets lets the provider meet a misbehaviour.
func (x *trial) meets(m Misbehaviour) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	x.vendor.SetFault(func(Call) Fault {
		if m.Short {
			time.AfterFunc(short, cancel)
		}
		return m.Fault
	})
	e := x.envelope()
	r := x.send(ctx, e)
	if r.stuck {
		return
	}
	x.compare(r, m.Want)
	calls := x.vendor.AllCalls()
	if len(calls) != 1 {
		x.fail("%d requests for one Send", len(calls))
	}
	for _, c := range calls {
		if c.Wrote > 32<<20 {
			x.fail("read a body without a bound")
		}
	}
	if used := totalAlloc() - x.memory; used > 24<<20 {
		x.fail("allocated %d MiB for one answer", used>>20)
	}
}

func (x *trial) compare(r result, w Want) {
	v := r.verdict
	if v.Outcome != w.Outcome {
		x.fail("outcome is %v, want %v (%v)", v.Outcome, w.Outcome, r.err)
		return
	}
	if w.Outcome == dispatch.OK {
		return
	}
	if r.evidence.Stage != w.Stage {
		x.fail("stage is %d, want %d", r.evidence.Stage, w.Stage)
	}
	if w.Outcome == dispatch.Rejected && v.Scope != w.Scope {
		x.fail("scope is %v, want %v", v.Scope, w.Scope)
	}
	if v.Floor != w.Floor {
		x.fail("floor is %v, want %v", v.Floor, w.Floor)
	}
	if v.Reason == "" {
		x.fail("verdict without a reason")
	}
}
