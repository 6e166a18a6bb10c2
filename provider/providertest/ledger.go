package providertest

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// account is what the ledger holds of one key.
type account struct {
	calls      int
	deliveries int
	id         string    // of the latest delivery
	first      time.Time // when id was accepted: the start of the window
	body       [sha256.Size]byte
}

func headerKey(r *http.Request, _ []byte) string {
	return strings.Trim(r.Header.Get("Idempotency-Key"), `"`)
}

// note writes a call down and asks what goes wrong with it.
func (v *Vendor) note(r *http.Request, body []byte, now time.Time) (*Call, Fault) {
	v.mu.Lock()
	defer v.mu.Unlock()
	c := &Call{
		Key: v.opts.Key(r, body), Total: len(v.calls) + 1, Time: now,
		Method: r.Method, Path: r.URL.Path, Header: r.Header.Clone(), Remote: r.RemoteAddr,
	}
	a := v.ledger[c.Key]
	if a == nil {
		a = &account{}
		v.ledger[c.Key] = a
		v.keys = append(v.keys, c.Key)
	}
	a.calls++
	c.N = a.calls
	v.calls = append(v.calls, c)
	if v.opts.Fault == nil {
		return c, Fault{}
	}
	return c, v.opts.Fault(*c)
}

// decide takes the message or doesn't, and says so.
func (v *Vendor) decide(c *Call, f Fault, body []byte) Answer {
	v.mu.Lock()
	defer v.mu.Unlock()
	c.Body = body
	shape := v.opts.Shape
	if f.Refuse || c.Method != http.MethodPost {
		return f.answer(shape.Refused(f.refusal()))
	}
	a, sum := v.ledger[c.Key], sha256.Sum256(body)
	if c.Key != "" && a.id != "" && time.Since(a.first) < v.opts.Dedupe {
		if v.opts.BindsBody && a.body != sum {
			return shape.Refused(Refusal{Status: http.StatusUnprocessableEntity, Code: "idempotency_key_reused", Message: "key came with another body"})
		}
		return f.answer(shape.Accepted(a.id, true))
	}
	v.nextID++
	a.deliveries++
	a.id, a.first, a.body = fmt.Sprintf("msg-%06d", v.nextID), time.Now(), sum
	return f.answer(shape.Accepted(a.id, false))
}

// lookup answers a look-up and says how the answer travels.
func (v *Vendor) lookup(key string) (Answer, Fault) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var f Fault
	if v.opts.LookupFault != nil {
		f = v.opts.LookupFault(key)
	}
	if a := v.ledger[key]; a != nil && a.id != "" && time.Since(a.first) >= v.opts.Lag {
		return f.answer(v.opts.Shape.Found(a.id)), f
	}
	return f.answer(v.opts.Shape.Missing()), f
}

func (v *Vendor) report(w http.ResponseWriter, r *http.Request) {
	key := r.PathValue("key")
	v.mu.Lock()
	out := struct {
		Key        string `json:"key"`
		Deliveries int    `json:"deliveries"`
		Calls      int    `json:"calls"`
	}{Key: key}
	if a := v.ledger[key]; a != nil {
		out.Deliveries, out.Calls = a.deliveries, a.calls
	}
	v.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // the client left: nobody to tell
}
