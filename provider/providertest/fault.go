package providertest

import (
	"bytes"
	"compress/gzip"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"time"
)

// Wire is how an answer travels.
type Wire int8

// The ways. The zero value is Reply.
const (
	Reply      Wire = iota // the whole answer
	Drop                   // the connection is closed without an answer
	DropUnread             // the same before the body is read (unless Options.Key needs it); nothing is taken
	Reset                  // the connection is reset without an answer
	Hang                   // no answer until the client leaves
	HalfHeader             // closed in the middle of the header
	HalfBody               // closed in the middle of the body
	Stall                  // silence from the middle of the body on
	Flood                  // the body never ends; a client that reads 64 MiB of it is let go
	Bomb                   // a body of gzip, a KiB for each MiB that it unpacks to, 8 of them
)

// Fault is what goes wrong with a call. The zero Fault is nothing: the
// message is taken and answered.
type Fault struct {
	// Refuse doesn't take the message. Without it the message is delivered,
	// whatever the answer says.
	Refuse bool
	// Wire is how the answer travels.
	Wire Wire
	// Delay is the time before the answer.
	Delay time.Duration
	// Status, Code, Header and Body replace those of the answer. A refusal
	// without a status is a 400 with code "refused".
	Status int
	Code   string
	Header http.Header
	Body   string
}

// HTML503 is a gateway's error page. The message may have been taken: set
// Refuse where it wasn't.
func HTML503(retryAfter string) Fault {
	h := http.Header{"Content-Type": {"text/html"}}
	if retryAfter != "" {
		h.Set("Retry-After", retryAfter)
	}
	return Fault{Status: http.StatusServiceUnavailable, Header: h, Body: "<html><h1>Service Unavailable</h1></html>"}
}

// TooMany is a 429 with a Retry-After field, any text of it.
func TooMany(retryAfter string) Fault {
	return Fault{Refuse: true, Status: http.StatusTooManyRequests, Code: "rate_limited", Header: http.Header{"Retry-After": {retryAfter}}}
}

// Redirect sends the client elsewhere.
func Redirect(status int, location string) Fault {
	return Fault{Refuse: true, Status: status, Header: http.Header{"Location": {location}}}
}

func (f Fault) refusal() Refusal {
	r := Refusal{Status: f.Status, Code: f.Code, Message: "refused"}
	if r.Status == 0 {
		r.Status = http.StatusBadRequest
	}
	if r.Code == "" {
		r.Code = "refused"
	}
	return r
}

// answer puts the fault's fields over those of a.
func (f Fault) answer(a Answer) Answer {
	if f.Status != 0 {
		a.Status = f.Status
	}
	if f.Body != "" {
		a.Body = []byte(f.Body)
	}
	a.Header = a.Header.Clone()
	if a.Header == nil {
		a.Header = http.Header{}
	}
	maps.Copy(a.Header, f.Header)
	return a
}

func (v *Vendor) serve(w http.ResponseWriter, r *http.Request) {
	if !v.enter() {
		panic(http.ErrAbortHandler)
	}
	defer v.busy.Done()
	now := time.Now()
	if key := v.opts.Shape.LookupKey(r); key != "" {
		a, f := v.lookup(key)
		v.wait(r, f.Delay)
		v.send(w, r, f.Wire, a)
		if f.Wire != Reply && f.Wire != Bomb {
			panic(http.ErrAbortHandler)
		}
		return
	}
	var body []byte
	known := false
	if v.readFirst { // the key may be in the body
		body, known = readAll(r), true
	}
	c, f := v.note(r, body, now)
	if f.Wire == DropUnread {
		panic(http.ErrAbortHandler)
	}
	if !known {
		body = readAll(r)
	}
	a := v.decide(c, f, body)
	v.wait(r, f.Delay)
	wrote := v.send(w, r, f.Wire, a)
	v.mu.Lock()
	c.Wrote = wrote
	v.mu.Unlock()
	if f.Wire != Reply && f.Wire != Bomb {
		panic(http.ErrAbortHandler) // closes the connection
	}
}

// readAll reads the body, or aborts where the client left in the middle: what
// was not whole is not taken.
func readAll(r *http.Request) []byte {
	b, err := io.ReadAll(io.LimitReader(r.Body, 64<<20))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return b
}

// wait waits for d, and aborts where the client or the vendor leaves first.
func (v *Vendor) wait(r *http.Request, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	case <-v.done:
		panic(http.ErrAbortHandler)
	}
}

func reply(w http.ResponseWriter, a Answer) int {
	maps.Copy(w.Header(), a.Header)
	w.WriteHeader(a.Status)
	n, _ := w.Write(a.Body) // the client left: nobody to tell
	return n
}

// send lets the answer travel and tells how much of its body did.
func (v *Vendor) send(w http.ResponseWriter, r *http.Request, wire Wire, a Answer) int {
	switch wire {
	case Reply:
		return reply(w, a)
	case Hang:
		v.wait(r, time.Hour)
	case HalfBody, Stall:
		w.Header().Set("Content-Length", strconv.Itoa(2*len(a.Body)+2))
		n := reply(w, a)
		_ = http.NewResponseController(w).Flush() // the client left: nobody to tell
		if wire == Stall {
			v.wait(r, time.Hour)
		}
		return n
	case Flood:
		n := reply(w, a)
		for block := bytes.Repeat([]byte(" "), 32<<10); n < 64<<20; {
			m, err := w.Write(block)
			if n += m; err != nil {
				break
			}
		}
		return n
	case Bomb:
		a.Header.Set("Content-Encoding", "gzip")
		a.Body = bytes.Repeat(mebibyte(), 8)
		return reply(w, a)
	case HalfHeader, Reset:
		half(w, a, wire)
	case Drop, DropUnread:
	}
	return 0
}

// half takes the connection over, to write half a header or to reset it.
func half(w http.ResponseWriter, a Answer, wire Wire) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	if wire == HalfHeader {
		_, _ = io.WriteString(c, "HTTP/1.1 "+strconv.Itoa(a.Status)+" Half\r\nContent-Ty") // see above
	} else if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // then it closes politely
	}
	_ = c.Close() // see above
}

// mebibyte is a MiB of blanks, packed.
func mebibyte() []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(bytes.Repeat([]byte(" "), 1<<20)) // a buffer takes all
	_ = z.Close()
	return b.Bytes()
}
