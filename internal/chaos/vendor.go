package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// vendor is a fake of one contract kind on a real socket. Its counters are the
// truth of a run: what went out, when, and for which attempt.
type vendor struct {
	kind    kind
	seed    uint64
	ledger  *journal
	post    *postman // nil: no receipts
	server  *http.Server
	address string
	served  chan struct{}

	mu       sync.Mutex
	accounts map[string]*account
	trouble  trouble
}

// account is what a vendor remembers of a key.
type account struct {
	calls int
	id    string
	first time.Time
	body  string
}

// trouble is what the schedule does to a vendor's answers, until its end.
type trouble struct {
	kind  string // storm, outage or ""
	wait  int    // of a storm: the Retry-After, in seconds
	until time.Time
}

func newVendor(k kind, seed uint64, ledger *journal, post *postman) (*vendor, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a listener on the loopback is there at once
	if err != nil {
		return nil, err
	}
	v := &vendor{
		kind: k, seed: seed, ledger: ledger, address: l.Addr().String(), accounts: map[string]*account{}, served: make(chan struct{}),
	}
	if k.echo {
		v.post = post
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /send", v.send)
	mux.HandleFunc("GET /messages/{key}", v.lookup)
	v.server = &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	go func() {
		defer close(v.served)
		if err := v.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			panic(err) // nothing that a run could do without it
		}
	}()
	return v, nil
}

func (v *vendor) close() {
	_ = v.server.Close() // connections of killed workers
	<-v.served
}

func (v *vendor) disturb(t trouble) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.trouble = t
}

// reply is how a call ends.
type reply struct {
	verdict string
	status  int
	body    answer
	wait    int // Retry-After
	// lose closes the connection instead of an answer, half breaks it off in
	// the middle, slow puts it off beyond the client's patience.
	lose, half, slow bool
}

func (v *vendor) send(w http.ResponseWriter, r *http.Request) {
	c := call{Vendor: v.kind.name, Begin: time.Now()}
	var ok bool
	if c.Key, c.Attempt, ok = credentials(r); !ok {
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		panic(http.ErrAbortHandler) // half a request is none
	}
	p := v.decide(&c, r.Header.Get("Idempotency-Key"), string(body))
	if p.verdict == delivered && v.post != nil {
		v.post.deliver(c.Key, p.body.ID)
	}
	answerWith(w, r, p)
}

// decide takes the message or doesn't, and notes which, under one lock: the
// order of the ledger is the order in which it happened.
func (v *vendor) decide(c *call, key, body string) reply {
	v.mu.Lock()
	defer v.mu.Unlock()
	a := v.accounts[c.Key]
	if a == nil {
		a = &account{}
		v.accounts[c.Key] = a
	}
	a.calls++
	c.At = time.Now()
	p := v.judge(a, *c, key, body)
	c.Verdict = p.verdict
	v.ledger.note(c)
	return p
}

func (v *vendor) judge(a *account, c call, key, body string) reply {
	t := v.trouble
	bad := t.until.After(c.At)
	// Chance belongs to the message and the number of its call, so that a seed
	// means the same trouble whatever the machine's speed.
	chance := v.chance(c.Key, a.calls)
	switch {
	case bad && t.kind == storm:
		return reply{verdict: throttled, status: http.StatusTooManyRequests, body: answer{Code: "slow_down"}, wait: t.wait}
	case bad && t.kind == outage && chance%3 > 0:
		return reply{verdict: refused, status: http.StatusServiceUnavailable}
	case chance < 4:
		return reply{verdict: refused, status: http.StatusInternalServerError}
	}
	p := v.accept(a, c, key, body)
	switch {
	case bad: // an outage behind the vendor's own doors: taken, and then
		p.status, p.body = http.StatusServiceUnavailable, answer{}
	case chance < 14:
		p.lose = true
	case chance < 20:
		p.half = true
	case chance < 26:
		p.status, p.body = http.StatusBadGateway, answer{}
	case chance < 32:
		p.slow = true
	}
	return p
}

func (v *vendor) accept(a *account, c call, key, body string) reply {
	id := fmt.Sprintf("%s-%s-%d", v.kind.name, c.Key, a.calls)
	if v.kind.window > 0 && key != "" && a.id != "" && c.At.Sub(a.first) < v.kind.window {
		if a.body != body {
			return reply{verdict: refused, status: http.StatusUnprocessableEntity, body: answer{Code: "idempotency_key_reused"}}
		}
		return reply{verdict: replayed, status: http.StatusAccepted, body: answer{ID: a.id}}
	}
	if strings.Contains(body, unwanted) {
		return reply{verdict: refused, status: http.StatusBadRequest, body: answer{Code: "unwanted"}}
	}
	a.id, a.first, a.body = id, c.At, body
	return reply{verdict: delivered, status: http.StatusAccepted, body: answer{ID: id}}
}

// chance is a number below 1000.
func (v *vendor) chance(key string, n int) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d %s %s %d", v.seed, v.kind.name, key, n) // never fails
	return h.Sum64() >> 16 % 1000
}

func (v *vendor) lookup(w http.ResponseWriter, r *http.Request) {
	c := call{Vendor: v.kind.name, Key: r.PathValue("key"), Begin: time.Now()}
	v.mu.Lock()
	c.At = time.Now()
	p := reply{verdict: absent, status: http.StatusNotFound, body: answer{Code: "not_found"}}
	a := v.accounts[c.Key]
	switch {
	case v.trouble.until.After(c.At):
		p = reply{verdict: silent, status: http.StatusServiceUnavailable}
	case a != nil && a.id != "" && c.At.Sub(a.first) >= lag:
		p = reply{verdict: present, status: http.StatusOK, body: answer{ID: a.id}}
	}
	c.Verdict = p.verdict
	v.ledger.note(c)
	v.mu.Unlock()
	answerWith(w, r, p)
}

// credentials are the key and the attempt that an adapter sends beside the
// message.
func credentials(r *http.Request) (key string, n int64, ok bool) {
	text, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Chaos ")
	if !ok {
		return "", 0, false
	}
	key, number, ok := strings.Cut(text, "/")
	n, err := strconv.ParseInt(number, 10, 64)
	return key, n, ok && err == nil
}

func answerWith(w http.ResponseWriter, r *http.Request, p reply) {
	if p.lose {
		panic(http.ErrAbortHandler)
	}
	if p.slow {
		t := time.NewTimer(2 * attemptTime)
		defer t.Stop()
		select {
		case <-t.C:
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
	text, err := json.Marshal(p.body)
	if err != nil {
		panic(err) // two strings
	}
	w.Header().Set("Content-Type", "application/json")
	if p.wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(p.wait))
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(p.status)
	if p.half {
		_, _ = w.Write(text[:len(text)/2]) // the client left: nobody to tell
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(text) // as above
}
