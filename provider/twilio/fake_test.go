package twilio_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/twilio"
)

const (
	accountSID = "AC00000000000000000000000000000001"
	apiKey     = "SK00000000000000000000000000000001"
	serviceSID = "MG00000000000000000000000000000001"
	authToken  = "hunter2hunter2hunter2hunter2hunt"
	listPath   = "/2010-04-01/Accounts/" + accountSID + "/Messages.json"
)

// fault is what goes wrong with a create.
type fault int

const (
	none        fault = iota
	lostAnswer        // the message is taken, the connection ends without an answer
	lostRequest       // the connection ends, and nothing was taken
)

// fakeOptions are how a fakeTwilio behaves.
type fakeOptions struct {
	test  bool          // test credentials: magic numbers, nothing is stored
	lag   time.Duration // how long a message is missing from the list
	smart bool          // smart encoding is on
	limit int           // most messages of one page, whatever is asked for
	fault func(n int, form url.Values) fault
	taken func(m stored) // called before the answer leaves
}

// stored is a message as Twilio keeps it.
type stored struct {
	sid, to, from, service, body, status, direction string
	code                                            int
	callback                                        string
	created, sent                                   time.Time // sent is zero while it is queued
	form                                            url.Values
}

// fakeTwilio is the Messages resource in its own wire format: create, list with
// pages and filters, status callbacks. No part of it is kinder than the vendor.
type fakeTwilio struct {
	*httptest.Server
	opts fakeOptions

	mu    sync.Mutex
	posts int
	lists []string // queries, in order
	all   []stored
}

func newFake(t *testing.T, opts fakeOptions) *fakeTwilio {
	t.Helper()
	v := &fakeTwilio{opts: opts}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+listPath, v.create)
	mux.HandleFunc("GET "+listPath, v.list)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, 404, 20404, "The requested resource "+r.URL.Path+" was not found")
	})
	v.Server = httptest.NewServer(mux)
	t.Cleanup(v.Close)
	return v
}

// refuse writes an error as Twilio does. Its words quote what was sent.
func refuse(w http.ResponseWriter, status, code int, words string) {
	reply(w, status, map[string]any{
		"code": code, "message": words, "more_info": "https://www.twilio.com/docs/errors/" + strconv.Itoa(code), "status": status,
	})
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client left: nobody to tell
}

func (v *fakeTwilio) authorized(w http.ResponseWriter, r *http.Request) bool {
	user, password, _ := r.BasicAuth()
	if (user == accountSID || user == apiKey) && password == authToken {
		return true
	}
	refuse(w, 401, 20003, "Authenticate")
	return false
}

func (v *fakeTwilio) create(w http.ResponseWriter, r *http.Request) {
	if !v.authorized(w, r) {
		return
	}
	if err := r.ParseForm(); err != nil || r.Header.Get("Content-Type") != "application/x-www-form-urlencoded" {
		refuse(w, 400, 20001, "form can't be read")
		return
	}
	form := r.PostForm
	v.mu.Lock()
	v.posts++
	f := none
	if v.opts.fault != nil {
		f = v.opts.fault(v.posts, form)
	}
	v.mu.Unlock()
	if f == lostRequest {
		panic(http.ErrAbortHandler)
	}
	if code, words := v.fault(form); code != 0 {
		refuse(w, 400, code, words)
		return
	}
	m := v.store(form)
	if v.opts.taken != nil {
		v.opts.taken(m)
	}
	if f == lostAnswer {
		panic(http.ErrAbortHandler)
	}
	reply(w, 201, m.document())
}

// fault is the code that a form is refused with, 0 for none.
func (v *fakeTwilio) fault(form url.Values) (code int, words string) {
	to, from, service := form.Get("To"), form.Get("From"), form.Get("MessagingServiceSid")
	number := strings.HasPrefix(to, "+") && len(to) >= 8 && len(to) <= 16
	validity, err := strconv.Atoi(cmp.Or(form.Get("ValidityPeriod"), "36000"))
	switch {
	case to == "":
		return 21604, "A 'To' phone number is required."
	case from == "" && service == "":
		return 21603, "A 'From' phone number is required."
	case form.Get("Body") == "":
		return 21602, "Message body is required."
	case len([]rune(form.Get("Body"))) > 1600:
		return 21617, "The concatenated message body exceeds the 1600 character limit"
	case err != nil || validity < 1 || validity > 36000:
		return 21624, "The Validity Period is not valid"
	case !callable(form.Get("StatusCallback")):
		return 21609, "The StatusCallback URL is not a valid URL."
	}
	if v.opts.test {
		if code := map[string]int{"+15005550001": 21212, "+15005550007": 21606, "+15005550008": 21611}[from]; code != 0 {
			return code, "magic From " + from
		}
		if from != "+15005550006" {
			return 21606, "magic From " + from
		}
		if code := map[string]int{
			"+15005550001": 21211, "+15005550002": 21612, "+15005550003": 21408, "+15005550004": 21610, "+15005550009": 21614,
		}[to]; code != 0 {
			return code, "magic To " + to
		}
	}
	if !number {
		return 21211, "The 'To' number " + to + " is not a valid phone number."
	}
	return 0, ""
}

func callable(s string) bool {
	u, err := url.Parse(s)
	return s == "" || err == nil && u.IsAbs() && u.Host != "" && !strings.Contains(u.Host, "_") && len(s) <= 4000
}

func (v *fakeTwilio) store(form url.Values) stored {
	m := stored{
		to: form.Get("To"), from: form.Get("From"), service: form.Get("MessagingServiceSid"), body: form.Get("Body"),
		status: "queued", direction: "outbound-api", callback: form.Get("StatusCallback"), form: form,
	}
	if m.service != "" {
		m.status = "accepted"
	}
	if v.opts.smart {
		m.body = smart(m.body)
	}
	if v.opts.test {
		m.sid = fmt.Sprintf("SM%032x", 1)
		return m
	}
	return v.put(m)
}

// put adds a message to the list, from whatever source.
func (v *fakeTwilio) put(m stored) stored {
	v.mu.Lock()
	defer v.mu.Unlock()
	if m.created.IsZero() {
		m.created = time.Now()
	}
	m.sid = fmt.Sprintf("SM%032x", len(v.all)+1)
	v.all = append(v.all, m)
	return m
}

// smart replaces a text as a whole or not at all: only where nothing outside
// GSM-7 is left of it.
func smart(body string) string {
	to := strings.NewReplacer("’", "'", "“", `"`, "”", `"`, "–", "-", "…", "...", "\t", "       ", "\u00a0", "  ", "１", "1", "½", "1/2", "`", "'").Replace(body)
	if dispatch.Segments(to).Encoding == dispatch.GSM7 {
		return to
	}
	return body
}

func (m stored) document() map[string]any {
	null := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	date := func(t time.Time) any {
		if t.IsZero() {
			return nil
		}
		return t.UTC().Format(time.RFC1123Z)
	}
	doc := map[string]any{
		"account_sid": accountSID, "api_version": "2010-04-01", "body": m.body, "date_created": date(m.created), "date_sent": date(m.sent),
		"date_updated": date(m.created), "direction": m.direction, "error_code": nil, "error_message": nil, "from": null(m.from),
		"messaging_service_sid": null(m.service), "num_media": "0", "num_segments": "1", "price": nil, "price_unit": "USD", "sid": m.sid,
		"status": m.status, "to": m.to, "uri": strings.TrimSuffix(listPath, ".json") + "/" + m.sid + ".json",
	}
	if m.code != 0 {
		doc["error_code"] = m.code
	}
	return doc
}

// messages are all that was taken, in order.
func (v *fakeTwilio) messages() []stored {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]stored(nil), v.all...)
}

// deliveries counts what was taken by its text.
func (v *fakeTwilio) deliveries() map[string]int {
	n := map[string]int{}
	for _, m := range v.messages() {
		n[m.form.Get("Body")]++
	}
	return n
}

// provider makes a provider for the fake.
func (v *fakeTwilio) provider(t *testing.T, change func(*twilio.Config)) *twilio.Provider {
	t.Helper()
	cfg := twilio.Config{AccountSID: accountSID, AuthToken: authToken, BaseURL: v.URL, From: "+15005550006"}
	if change != nil {
		change(&cfg)
	}
	p, err := twilio.New(cfg)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}
