package providertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-8098fbb7/dispatch"
)

// Suite is what [Run] needs to know of a provider. Only New is required.
type Suite struct {
	// New makes the provider for a vendor at baseURL. Where it has a Close
	// method, the suite calls it.
	New func(baseURL string) (dispatch.Provider, error)
	// Options are how the vendor reads and answers: Key and Shape, for a wire
	// format other than plain JSON. The rest is the suite's.
	Options Options
	// Content and From are what is sent; nil means a short text message.
	Content dispatch.Content
	From    string
	// Secrets are texts that must stay out of errors: tokens, and recipient
	// and text of Content.
	Secrets []string
	// Want changes what is wanted of the misbehaviours, by their name: for a
	// vendor whose statuses mean something else, or whose verdict is in the
	// body. A name that none has fails the suite. They are those of More and
	//
	//	accepted, accepted late
	//	body cut, body stalls, endless body, unreadable body: each "... after acceptance"
	//	message refused, key in flight, wrong path
	//	dropped, dropped before reading, dropped after acceptance
	//	reset after acceptance, half a header after acceptance
	//	hangs, hangs after acceptance
	//	error page 503, endless error body, packed error body
	//	edge timed out, edge's status from nobody, edge did not reach the vendor
	//	status 401, 402, 403, 408, 425, 500, 502, 504, 520, 599: each "status ..."
	//	redirect 301, 302, 303, 307, 308: each "redirect ..."
	//	seconds, decimals, a huge number, 400 digits, zero, a negative number,
	//	a past date, nonsense, IMF-fixdate, RFC 850 date, asctime date,
	//	a date with an offset: each "Retry-After with ..."
	Want map[string]Want
	// More are further misbehaviours, for the vendor's own codes.
	More []Misbehaviour

	patience time.Duration // for the suite's own tests
}

// Want is what an attempt must come to.
type Want struct {
	Outcome dispatch.Outcome
	// Scope and Floor count for the outcome Rejected, the Floor for Unknown
	// too.
	Scope dispatch.Scope
	Floor time.Duration
	// Stage counts where the outcome isn't OK.
	Stage dispatch.Stage
}

// Misbehaviour is a fault and what an attempt that meets it must come to.
type Misbehaviour struct {
	Name  string
	Fault Fault
	Want  Want
	// Short ends the attempt's context soon after the vendor was called.
	Short bool
}

// Run checks that a provider keeps the rules of [dispatch.Provider], each in
// a subtest with a vendor and a provider of its own. Run it under the race
// detector, and not beside parallel tests that allocate much: it watches how
// much an answer costs.
func Run(t *testing.T, s Suite) {
	t.Helper()
	for _, name := range s.strangers() {
		t.Errorf("Want[%q] is the name of no misbehaviour", name)
	}
	for _, c := range s.checks() {
		t.Run(c.name, func(t *testing.T) {
			for _, f := range s.failures(c) {
				t.Error(f)
			}
		})
	}
}

// check is one rule.
type check struct {
	name string
	run  func(*trial)
}

// strangers are the names in Want that no misbehaviour has.
func (s Suite) strangers() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(s.Want)) {
		if !slices.ContainsFunc(append(misbehaviours(), s.More...), func(m Misbehaviour) bool { return m.Name == name }) {
			names = append(names, name)
		}
	}
	return names
}

func (s Suite) checks() []check {
	var all []check
	for _, m := range append(misbehaviours(), s.More...) {
		if w, ok := s.Want[m.Name]; ok {
			m.Want = w
		}
		all = append(all, check{m.Name, func(x *trial) { x.meets(m) }})
	}
	return append(append(all, rules()...), lookupRules()...)
}

// failures runs one check against a vendor and a provider of its own.
func (s Suite) failures(c check) []string {
	if s.Content == nil {
		s.Content = dispatch.SMS{To: "+15555550123", Body: "Your code is 482901"}
		s.Secrets = append([]string{"5555550123", "482901"}, s.Secrets...)
	}
	x := &trial{suite: s, memory: totalAlloc(), patience: s.patience}
	if x.patience == 0 {
		x.patience = 10 * time.Second
	}
	x.options = s.Options
	x.options.Addr, x.options.Fault, x.options.LookupFault = "", nil, nil
	x.options.Dedupe, x.options.Lag, x.options.BindsBody = 0, 0, false
	v, err := NewVendor(x.options)
	if err != nil {
		return []string{err.Error()}
	}
	defer v.Close()
	x.vendor = v
	if !x.open(v.URL) {
		return x.failed
	}
	x.leaks(c.run)
	return x.failed
}

// trial is one check under way.
type trial struct {
	suite    Suite
	options  Options
	vendor   *Vendor
	provider dispatch.Provider
	memory   uint64
	patience time.Duration // how long what should be at once may take: long, for busy machines

	mu     sync.Mutex
	failed []string
}

func (x *trial) fail(format string, args ...any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.failed = append(x.failed, fmt.Sprintf(format, args...))
}

// open makes the provider to be tried.
func (x *trial) open(url string) bool {
	p, err := x.suite.New(url)
	switch {
	case err != nil:
		x.fail("New: %v", err)
	case p == nil:
		x.fail("New returned no provider")
	default:
		x.provider = p
		return true
	}
	return false
}

func (x *trial) close() {
	if c, ok := x.provider.(interface{ Close() }); ok {
		c.Close()
	}
}

func (x *trial) envelope() dispatch.Envelope {
	return dispatch.Envelope{
		Key: dispatch.NewKey(), Route: "suite", Content: x.suite.Content, From: x.suite.From, Attempt: 1,
		Metadata: map[string]string{"suite": "1"},
	}
}

// result is what one Send came to.
type result struct {
	accepted dispatch.Accepted
	err      error
	evidence dispatch.Evidence
	verdict  dispatch.Verdict
	stuck    bool // it had not returned long after its context's end
}

// send makes one Send and checks what holds for each.
func (x *trial) send(ctx context.Context, e dispatch.Envelope) result {
	var r result
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				r.err = errors.New("panic")
				x.fail("Send panicked")
			}
		}()
		r.accepted, r.err = x.provider.Send(ctx, e)
	}()
	if !x.waits(ctx, done) {
		x.fail("Send did not return when its context ended")
		return result{stuck: true, verdict: dispatch.Verdict{Outcome: -1}}
	}
	r.evidence, r.verdict = dispatch.Judge(r.accepted, r.err)
	x.private(r.err, e)
	return r
}

// waits waits for done, for some time longer than ctx.
func (x *trial) waits(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
	}
	t := time.NewTimer(x.patience)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}

// private checks that an error quotes nothing of the message and no secret.
// The vendor's words are in the evidence, where they may.
func (x *trial) private(err error, e dispatch.Envelope) {
	if err == nil {
		return
	}
	text := err.Error()
	for _, secret := range x.suite.Secrets {
		if secret != "" && strings.Contains(text, secret) {
			x.fail("the error's text quotes a secret, the recipient or the message")
		}
	}
	if strings.Contains(text, x.vendor.URL) || strings.Contains(text, strings.TrimPrefix(x.vendor.URL, "http://")) {
		x.fail("the error's text quotes the URL")
	}
	var f *dispatch.Fault
	if errors.As(err, &f) && f.Verdict.Outcome == dispatch.OK {
		x.fail("a Fault says ok")
	}
	if errors.As(err, &f) && f.Evidence.Stage == dispatch.NotSent && len(x.vendor.Calls(e.Key.String())) > 0 {
		x.fail("evidence says not sent, and the vendor was called")
	}
}

func totalAlloc() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}
