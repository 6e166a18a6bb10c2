package providertest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"reflect"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-8098fbb7/dispatch"
)

// rules are the checks that aren't about one answer.
func rules() []check {
	return []check{
		{"contract", (*trial).contract},
		{"closed port", (*trial).closedPort},
		{"same bytes in each attempt", (*trial).sameBytes},
		{"a changed repeat is not sent", (*trial).changedRepeat},
		{"a repeat is deduped", (*trial).deduped},
		{"other message, other key", (*trial).otherKey},
		{"context already over", (*trial).contextOver},
		{"context cancelled", (*trial).contextCancelled},
		{"envelope is not changed", (*trial).unchanged},
		{"concurrent use", (*trial).concurrent},
		{"unknown content", (*trial).unknownContent},
	}
}

func (x *trial) contract() {
	c := x.provider.Contract()
	if err := dispatch.ValidName(c.Name); err != nil {
		x.fail("contract's Name %v", err)
	}
	if c.Timeout < 0 || c.Dedupe.Window < 0 || c.Search.Lag < 0 || c.Echo.Grace < 0 {
		x.fail("contract has a negative time")
	}
	if c.RefusalProves && c.Dedupe.Window == 0 {
		x.fail("RefusalProves needs a dedupe window")
	}
	x.send(context.Background(), x.envelope())
	if again := x.provider.Contract(); again != c {
		x.fail("contract is not constant")
	}
}

// closedPort: nothing listens, so nothing can have left. B030.
func (x *trial) closedPort() {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		x.fail("listen: %v", err)
		return
	}
	url := "http://" + l.Addr().String()
	_ = l.Close() // nothing waits on it
	x.close()
	if x.open(url) {
		x.compare(x.send(context.Background(), x.envelope()), Want{Outcome: dispatch.Rejected, Stage: dispatch.NotSent})
	}
}

// attempt makes an attempt that must be accepted, and returns its call.
func (x *trial) attempt(e dispatch.Envelope) (Call, result) {
	before := len(x.vendor.AllCalls())
	r := x.send(context.Background(), e)
	calls := x.vendor.AllCalls()
	if r.verdict.Outcome != dispatch.OK || len(calls) != before+1 {
		x.fail("attempt %d: %v, %d requests (%v)", e.Attempt, r.verdict.Outcome, len(calls)-before, r.err)
		return Call{}, r
	}
	return calls[before], r
}

func (x *trial) sameBytes() {
	e := x.envelope()
	a, first := x.attempt(e)
	e.Attempt, e.Replay = 2, first.evidence.Request
	b, second := x.attempt(e)
	if len(first.evidence.Request) == 0 {
		x.fail("evidence has no digest of the request")
	}
	if !bytes.Equal(first.evidence.Request, second.evidence.Request) {
		x.fail("the digest differs between two attempts")
	}
	if a.Key != b.Key || !bytes.Equal(a.Body, b.Body) || a.Method != b.Method || a.Path != b.Path {
		x.fail("the request differs between two attempts")
	}
}

func (x *trial) changedRepeat() {
	e := x.envelope()
	e.Attempt, e.Replay = 2, bytes.Repeat([]byte{1}, 32)
	r := x.send(context.Background(), e)
	if r.evidence.Stage != dispatch.NotSent || r.evidence.Cause != dispatch.CauseChanged || r.verdict.Outcome == dispatch.OK {
		x.fail("a request other than Replay's: %v, cause %v", r.verdict.Outcome, r.evidence.Cause)
	}
	if n := len(x.vendor.AllCalls()); n > 0 {
		x.fail("a request other than Replay's was sent")
	}
}

// deduped: the answer is lost, the repeat carries the key.
func (x *trial) deduped() {
	window := x.provider.Contract().Dedupe.Window
	if window == 0 {
		return
	}
	x.renew(func(o *Options) { o.Dedupe, o.Fault = window, Script(Fault{Wire: Drop}) })
	e := x.envelope()
	first := x.send(context.Background(), e)
	e.Attempt, e.Replay = 2, first.evidence.Request
	x.attempt(e)
	deliveries := 0
	for _, key := range x.vendor.Keys() {
		deliveries += x.vendor.Deliveries(key)
	}
	if deliveries != 1 {
		x.fail("%d deliveries of one message", deliveries)
	}
}

// renew starts the vendor and the provider anew.
func (x *trial) renew(change func(*Options)) {
	x.close()
	x.vendor.Close()
	o := x.options
	change(&o)
	v, err := NewVendor(o)
	if err != nil {
		x.fail("vendor: %v", err)
		return
	}
	x.vendor = v
	x.open(v.URL)
}

// otherKey: B056.
func (x *trial) otherKey() {
	a, _ := x.attempt(x.envelope())
	b, _ := x.attempt(x.envelope())
	switch deduped := x.provider.Contract().Dedupe.Window > 0; {
	case deduped && a.Key == "":
		x.fail("no key was sent, and the contract dedupes")
	case a.Key != "" && a.Key == b.Key:
		x.fail("two messages went out under one key")
	}
}

func (x *trial) contextOver() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r := x.send(ctx, x.envelope())
	if r.err == nil {
		x.fail("accepted, with a context that was over")
	}
	if n := len(x.vendor.AllCalls()); n > 0 {
		x.fail("sent, with a context that was over")
	}
}

func (x *trial) contextCancelled() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	x.vendor.SetFault(func(Call) Fault {
		cancel()
		return Fault{Wire: Hang}
	})
	if r := x.send(ctx, x.envelope()); !r.stuck {
		x.compare(r, Want{})
	}
}

// unchanged: B141.
func (x *trial) unchanged() {
	e := x.envelope()
	before := fmt.Sprintf("%#v", e)
	copied := e
	copied.Metadata = map[string]string{"suite": "1"}
	x.attempt(e)
	if fmt.Sprintf("%#v", e) != before || !reflect.DeepEqual(e, copied) {
		x.fail("the envelope was changed")
	}
}

func (x *trial) concurrent() {
	const n = 16
	x.vendor.SetFault(func(c Call) Fault { return Fault{Delay: time.Duration(c.Total%3) * time.Millisecond} })
	var wg sync.WaitGroup
	var mu sync.Mutex
	ids := map[string]bool{}
	for range n {
		wg.Go(func() {
			if r := x.send(context.Background(), x.envelope()); r.verdict.Outcome != dispatch.OK {
				x.fail("outcome is %v, want ok (%v)", r.verdict.Outcome, r.err)
			} else if !r.accepted.NoID {
				mu.Lock()
				defer mu.Unlock()
				if ids[r.accepted.ID] {
					x.fail("two messages got one id")
				}
				ids[r.accepted.ID] = true
			}
		})
	}
	wg.Wait()
	if calls := len(x.vendor.AllCalls()); calls != n {
		x.fail("%d requests for %d Sends", calls, n)
	}
}

// unknownContent: what an adapter can't encode is not sent, and no panic.
func (x *trial) unknownContent() {
	e := x.envelope()
	e.Content = nil
	if r := x.send(context.Background(), e); r.err == nil {
		x.fail("accepted a message without content")
	}
	if n := len(x.vendor.AllCalls()); n > 0 {
		x.fail("sent a message without content")
	}
}

var trials atomic.Int64

// leaks runs a check and looks for goroutines that it leaves behind. They are
// told by a label, which goroutines inherit, so that those of other tests
// don't count.
func (x *trial) leaks(run func(*trial)) {
	label := fmt.Sprintf("trial-%d", trials.Add(1))
	pprof.Do(context.Background(), pprof.Labels("providertest", label), func(context.Context) { run(x) })
	x.close()
	x.vendor.Close()
	var dump strings.Builder
	for end := time.Now().Add(x.patience); time.Now().Before(end); {
		dump.Reset()
		if err := pprof.Lookup("goroutine").WriteTo(&dump, 1); err != nil {
			x.fail("goroutines: %v", err)
			return
		}
		if !strings.Contains(dump.String(), label+`"`) {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	x.fail("left goroutines behind")
}
