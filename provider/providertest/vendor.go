// Package providertest tests providers: a [Vendor] that misbehaves on
// purpose, on a real socket, and keeps a ledger of what it delivered; and
// [Run], the suite that every provider must pass.
package providertest

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Options are how a Vendor behaves. The zero Options is a vendor that takes
// every message and doesn't dedupe.
type Options struct {
	// Addr is where it listens; empty means a free port of 127.0.0.1.
	Addr string
	// Key finds a request's key; nil means its Idempotency-Key field, without
	// quotes.
	Key func(r *http.Request, body []byte) string
	// Dedupe is how long a key is remembered from its first acceptance: a
	// repeat is answered with the first id and not delivered. Zero means
	// never.
	Dedupe time.Duration
	// BindsBody refuses a repeated key with another body, by 422.
	BindsBody bool
	// Lag is how long an accepted message is missing from look-ups.
	Lag time.Duration
	// Shape is the wire format; zero means JSON.
	Shape Shape
	// Fault chooses what goes wrong with a call; nil means nothing. It is
	// called for one call at a time and must not call the vendor.
	Fault func(Call) Fault
	// LookupFault is the same for look-ups; Refuse means nothing there.
	LookupFault func(key string) Fault
}

// Call is one request, other than for the ledger or a look-up.
type Call struct {
	// Key is the idempotency key, "" where there was none.
	Key string
	// N counts the calls with this key, Total all calls, both from 1.
	N, Total int
	// Time is when the header was read.
	Time time.Time
	// Method, Path and Header are the request's.
	Method, Path string
	Header       http.Header
	// Body is empty while Fault is asked, and stays so where the connection
	// was cut before it was read.
	Body []byte
	// Remote is the client's end of the connection.
	Remote string
	// Wrote is how many bytes of an answer's body were written.
	Wrote int
}

// Vendor is a messaging vendor on a loopback socket. It is safe for
// concurrent use and prints nothing. POST to any path sends; the default
// shape of a look-up is GET /v1/messages/{key}; and GET /deliveries/{key}
// tells the ledger: {"key":"...","deliveries":1,"calls":2}.
type Vendor struct {
	// URL is the base URL, "http://127.0.0.1:1234".
	URL string

	opts      Options
	readFirst bool // the key may be in the body
	server    *http.Server
	done      chan struct{} // closed by Close: hanging calls end
	served    chan struct{} // closed when the server has stopped
	busy      sync.WaitGroup

	mu     sync.Mutex
	keys   []string
	ledger map[string]*account
	calls  []*Call
	nextID int
	closed bool
}

// NewVendor starts a vendor. Close it.
func NewVendor(o Options) (*Vendor, error) {
	if o.Addr == "" {
		o.Addr = "127.0.0.1:0"
	}
	readFirst := o.Key != nil
	if o.Key == nil {
		o.Key = headerKey
	}
	o.Shape = o.Shape.withDefaults()
	l, err := net.Listen("tcp", o.Addr) //nolint:noctx // a listener on the loopback is there at once
	if err != nil {
		return nil, err
	}
	v := &Vendor{
		URL: "http://" + l.Addr().String(), opts: o, readFirst: readFirst, ledger: map[string]*account{},
		done: make(chan struct{}), served: make(chan struct{}),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", v.serve)
	mux.HandleFunc("GET /deliveries/{key}", v.report)
	v.server = &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	go func() {
		defer close(v.served)
		if err := v.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			_ = l.Close() // the listener broke: clients see it refuse
		}
	}()
	return v, nil
}

// Close ends hanging calls, cuts every connection and waits for all of it.
func (v *Vendor) Close() {
	v.mu.Lock()
	if !v.closed {
		v.closed = true
		close(v.done)
	}
	v.mu.Unlock()
	_ = v.server.Close() // it closes all it can
	<-v.served
	v.busy.Wait()
}

// enter counts a call in, under the lock that Close takes: none begins when
// it waits.
func (v *Vendor) enter() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.closed {
		v.busy.Add(1)
	}
	return !v.closed
}

// Deliveries is how many messages went out under key: more than one is a
// double send.
func (v *Vendor) Deliveries(key string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	if a := v.ledger[key]; a != nil {
		return a.deliveries
	}
	return 0
}

// Calls are the calls under key, in order.
func (v *Vendor) Calls(key string) []Call {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []Call
	for _, c := range v.calls {
		if c.Key == key {
			out = append(out, *c)
		}
	}
	return out
}

// AllCalls are the calls under every key, in order.
func (v *Vendor) AllCalls() []Call {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := make([]Call, 0, len(v.calls))
	for _, c := range v.calls {
		out = append(out, *c)
	}
	return out
}

// Keys are the keys that were seen, in order.
func (v *Vendor) Keys() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.keys)
}

// SetFault changes what goes wrong, from the next call on; nil means nothing.
func (v *Vendor) SetFault(f func(Call) Fault) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.opts.Fault = f
}

// SetLookupFault changes what goes wrong with look-ups.
func (v *Vendor) SetLookupFault(f func(key string) Fault) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.opts.LookupFault = f
}

// Script returns an Options.Fault that gives the faults to the calls, in
// order of arrival, and nothing after them.
func Script(faults ...Fault) func(Call) Fault {
	return func(Call) Fault {
		if len(faults) == 0 {
			return Fault{}
		}
		f := faults[0]
		faults = faults[1:]
		return f
	}
}
