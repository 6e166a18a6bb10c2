package postmark_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailtest"
)

const (
	token    = mailtest.Secret + "-token"
	user     = "dispatch"
	password = mailtest.Secret + "-hook"
)

// letter is what Postmark is asked to send.
type letter struct {
	From    string `json:"From"`
	To      string `json:"To"`
	CC      string `json:"Cc"`
	BCC     string `json:"Bcc"`
	ReplyTo string `json:"ReplyTo"`
	Subject string `json:"Subject"`
	Text    string `json:"TextBody"`
	HTML    string `json:"HtmlBody"`
	Tag     string `json:"Tag"`
	Headers []struct {
		Name  string `json:"Name"`
		Value string `json:"Value"`
	} `json:"Headers"`
	Attachments []struct {
		Name    string `json:"Name"`
		Type    string `json:"ContentType"`
		ID      string `json:"ContentID"`
		Content []byte `json:"Content"`
	} `json:"Attachments"`
	Metadata map[string]string `json:"Metadata"`
	Stream   string            `json:"MessageStream"`
	Template int64             `json:"TemplateId"`
	Alias    string            `json:"TemplateAlias"`
	Model    map[string]any    `json:"TemplateModel"`
}

// fake is Postmark on the loopback, as strict as its documents, with a search
// that lags.
type fake struct {
	mailtest.Ledger
	URL string
	Lag time.Duration // how long a mail is missing in the search
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /email", f.send)
	mux.HandleFunc("POST /email/withTemplate", f.send)
	mux.HandleFunc("GET /messages/outbound", f.search)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	f.URL = s.URL
	return f
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func refuse(w http.ResponseWriter, status, code int, message string) {
	reply(w, status, map[string]any{"ErrorCode": code, "Message": message})
}

func (f *fake) send(w http.ResponseWriter, r *http.Request) {
	n := f.Call()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	var m letter
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()

	switch templated := strings.HasSuffix(r.URL.Path, "withTemplate"); {
	case r.Header.Get("X-Postmark-Server-Token") != token:
		refuse(w, http.StatusUnauthorized, 10, "bad token")
	case r.Header.Get("Accept") != "application/json":
		refuse(w, http.StatusUnsupportedMediaType, 409, "JSON required")
	case d.Decode(&m) != nil:
		refuse(w, http.StatusUnprocessableEntity, 403, "not understood")
	case m.Stream != "outbound":
		refuse(w, http.StatusUnprocessableEntity, 1235, "no such stream")
	case strings.HasPrefix(m.To, "inactive@"):
		refuse(w, http.StatusUnprocessableEntity, 406, "inactive: "+m.To)
	case templated != (m.Template != 0 || m.Alias != ""), !templated && m.Text == "" && m.HTML == "", len(m.Metadata) > 10:
		refuse(w, http.StatusUnprocessableEntity, 300, "no body")
	default:
		if _, err := mail.ParseAddressList(m.To); err != nil {
			refuse(w, http.StatusUnprocessableEntity, 300, "Error parsing 'To'")
			return
		}
		taken := f.Take(m.Metadata["dispatch_key"], body, func(n int) string { return fmt.Sprintf("0a129aee-e1cd-480d-b08d-%012d", n) })
		f.Finish(n)
		reply(w, http.StatusOK, map[string]any{"To": m.To, "SubmittedAt": taken.At, "MessageID": strings.ToUpper(taken.ID), "ErrorCode": 0, "Message": "OK"})
	}
}

func (f *fake) search(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if r.Header.Get("X-Postmark-Server-Token") != token || q.Get("count") == "" || q.Get("offset") == "" {
		refuse(w, http.StatusUnauthorized, 10, "bad token")
		return
	}
	messages := []any{}
	for _, m := range f.Of(q.Get("metadata_dispatch_key")) {
		if time.Since(m.At) >= f.Lag && q.Get("messagestream") == "outbound" {
			messages = append(messages, map[string]any{"MessageID": m.ID, "Status": "Sent", "Metadata": map[string]string{"dispatch_key": m.Key}})
		}
	}
	reply(w, http.StatusOK, map[string]any{"TotalCount": len(messages), "Messages": messages})
}

// call is a webhook call as Postmark makes it.
func call(body string) *http.Request {
	r := mailtest.Post(body)
	r.SetBasicAuth(user, password)
	r.Header.Set("X-Hook", password)
	return r
}

func event(m mailtest.Taken, record string) string {
	at := m.At.UTC().Format(time.RFC3339Nano)
	v := map[string]any{"RecordType": record, "MessageID": m.ID, "MessageStream": "outbound", "Metadata": map[string]string{"dispatch_key": m.Key}}
	switch record {
	case "Bounce":
		v["Email"], v["BouncedAt"], v["Type"], v["Inactive"] = "ada@example.com", at, "HardBounce", true
	default:
		v["Recipient"], v["DeliveredAt"] = "ada@example.com", at
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func readFile(tb testing.TB, name string) string {
	tb.Helper()
	b, err := os.ReadFile("testdata/" + name)
	require.NoError(tb, err)
	return strings.TrimSpace(string(b))
}

func evidence(status int) dispatch.Evidence {
	return dispatch.Evidence{Stage: dispatch.Answered, Status: status}
}

// partial is a vendor that takes each mail for some recipients only.
func partial(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, readFile(t, "partial.json"))
	}))
	t.Cleanup(s.Close)
	return s.URL
}
