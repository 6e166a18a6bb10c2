package infobip_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	apiKey = "hunter2-api-key"
	secret = "hunter2-webhook-secret"
)

// sent is a message that the fake took.
type sent struct {
	ID, To, From, Text, Hook string
	At                       time.Time
}

// fake is Infobip on the loopback, as strict as its documents: logs with a
// lag, and duplicates that are answered like the first and rejected later.
type fake struct {
	URL    string
	Lag    time.Duration
	Dedupe bool             // a repeated message id is rejected while it is processed
	Lose   func(n int) bool // loses the answer of the nth call, from 1
	Drop   func(n int) bool // loses the nth call itself
	Early  func(m sent)     // is called before the answer

	mu         sync.Mutex
	calls      int
	taken      []sent
	duplicates []sent
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /sms/3/messages", f.send)
	mux.HandleFunc("GET /sms/3/logs", f.logs)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	f.URL = s.URL
	return f
}

func (f *fake) messagesTaken() []sent {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.taken)
}

func (f *fake) repeats() []sent {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.duplicates)
}

var msisdn = regexp.MustCompile(`^[1-9]\d{6,14}$`)

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

func refuse(w http.ResponseWriter, code int) {
	answer(w, code, map[string]any{"errorCode": "E" + strconv.Itoa(code), "description": "Request cannot be processed.", "violations": []any{}})
}

func statusOf(group, id int, name string) map[string]any {
	return map[string]any{"groupId": group, "id": id, "name": name, "description": name}
}

func (f *fake) send(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "App "+apiKey {
		answer(w, http.StatusUnauthorized, map[string]any{"requestError": map[string]any{"serviceException": map[string]string{"messageId": "UNAUTHORIZED", "text": "Invalid login details"}}})
		return
	}
	var body struct {
		Messages []struct {
			Sender       string `json:"sender"`
			Destinations []struct {
				To string `json:"to"`
				ID string `json:"messageId"`
			} `json:"destinations"`
			Content struct {
				Text string `json:"text"`
			} `json:"content"`
			Options struct {
				Validity struct {
					Amount int    `json:"amount"`
					Unit   string `json:"timeUnit"`
				} `json:"validityPeriod"`
			} `json:"options"`
			Webhooks struct {
				Delivery struct {
					URL          string `json:"url"`
					Intermediate bool   `json:"intermediateReport"`
				} `json:"delivery"`
				Type string `json:"contentType"`
			} `json:"webhooks"`
		} `json:"messages"`
		Options struct {
			Tracking struct {
				Shorten *bool `json:"shortenUrl"`
			} `json:"tracking"`
		} `json:"options"`
	}
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&body); err != nil || len(body.Messages) != 1 || len(body.Messages[0].Destinations) != 1 ||
		body.Options.Tracking.Shorten == nil || *body.Options.Tracking.Shorten || len(body.Messages[0].Destinations[0].ID) > 200 {
		refuse(w, http.StatusBadRequest)
		return
	}
	in := body.Messages[0]
	m := sent{ID: in.Destinations[0].ID, To: in.Destinations[0].To, From: in.Sender, Text: in.Content.Text, Hook: in.Webhooks.Delivery.URL, At: time.Now()}
	says := statusOf(1, 26, "PENDING_ACCEPTED")
	if !msisdn.MatchString(m.To) || strings.HasPrefix(m.To, "999") { // a country that there is none of
		says = statusOf(5, 52, "REJECTED_DESTINATION")
	} else {
		f.take(m)
	}
	answer(w, http.StatusOK, map[string]any{"bulkId": "1", "messages": []any{map[string]any{"messageId": m.ID, "status": says, "destination": m.To}}})
}

func (f *fake) take(m sent) {
	f.mu.Lock()
	f.calls++
	n := f.calls
	if f.Drop != nil && f.Drop(n) {
		f.mu.Unlock()
		panic(http.ErrAbortHandler)
	}
	again := f.Dedupe && slices.ContainsFunc(f.taken, func(t sent) bool { return t.ID == m.ID })
	if again {
		f.duplicates = append(f.duplicates, m)
	} else {
		f.taken = append(f.taken, m)
	}
	f.mu.Unlock()
	if f.Early != nil && !again {
		f.Early(m)
	}
	if f.Lose != nil && f.Lose(n) {
		panic(http.ErrAbortHandler)
	}
}

func (f *fake) logs(w http.ResponseWriter, r *http.Request) {
	all := []any{}
	for _, m := range f.messagesTaken() {
		if m.ID == r.URL.Query().Get("messageId") && time.Since(m.At) >= f.Lag {
			all = append(all, map[string]any{"messageId": m.ID, "destination": m.To, "status": statusOf(1, 26, "PENDING_ACCEPTED")})
		}
	}
	answer(w, http.StatusOK, map[string]any{"results": all})
}

// report is one result of a delivery report.
func report(m sent, group, id int) map[string]any {
	return map[string]any{
		"bulkId": "1", "messageId": m.ID, "to": m.To, "sentAt": m.At.UTC().Format("2006-01-02T15:04:05.000-0700"),
		"doneAt": m.At.UTC().Format("2006-01-02T15:04:05.000-0700"), "messageCount": 1, "status": statusOf(group, id, "X"),
		"error": map[string]any{"groupId": 0, "id": 0, "name": "NO_ERROR", "permanent": false},
	}
}

// call is a delivery report with the secret in the URL.
func call(url string, results ...any) *http.Request {
	b, err := json.Marshal(map[string]any{"results": results})
	if err != nil {
		panic(err)
	}
	return post(url+"?token="+secret, string(b))
}

func post(url, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, url, strings.NewReader(body))
	r.RequestURI = ""
	r.Header.Set("Content-Type", "application/json")
	return r
}
