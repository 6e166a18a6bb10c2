package ses_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/seed-8098fbb7/dispatch/provider/internal/mailtest"
)

const (
	region = "eu-west-1"
	topic  = "arn:aws:sns:eu-west-1:123456789012:mail-events"
)

var keys = aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: mailtest.Secret + "-key", SessionToken: mailtest.Secret + "-session"}

type (
	// letter is what SES is asked to send.
	letter struct {
		Set         string   `json:"ConfigurationSetName"`
		From        string   `json:"FromEmailAddress"`
		ReplyTo     []string `json:"ReplyToAddresses"`
		Destination struct {
			To  []string `json:"ToAddresses"`
			CC  []string `json:"CcAddresses"`
			BCC []string `json:"BccAddresses"`
		} `json:"Destination"`
		Tags    []pair `json:"EmailTags"`
		Content struct {
			Simple *struct {
				Subject     content `json:"Subject"`
				Headers     []pair  `json:"Headers"`
				Attachments []file  `json:"Attachments"`
				Body        struct {
					Text *content `json:"Text"`
					HTML *content `json:"Html"`
				} `json:"Body"`
			} `json:"Simple"`
			Template *struct {
				Name        string `json:"TemplateName"`
				Data        string `json:"TemplateData"`
				Headers     []pair `json:"Headers"`
				Attachments []file `json:"Attachments"`
			} `json:"Template"`
		} `json:"Content"`
	}
	content struct {
		Data    string `json:"Data"`
		Charset string `json:"Charset"`
	}
	pair struct {
		Name  string `json:"Name"`
		Value string `json:"Value"`
	}
	file struct {
		Name        string `json:"FileName"`
		Type        string `json:"ContentType"`
		Disposition string `json:"ContentDisposition"`
		Encoding    string `json:"ContentTransferEncoding"`
		ID          string `json:"ContentId"`
		Data        []byte `json:"RawContent"`
	}
)

// key is our reference in a letter.
func (m *letter) key() string {
	for _, tag := range m.Tags {
		if tag.Name == "dispatch_key" {
			return tag.Value
		}
	}
	return ""
}

// fake is SES on the loopback, as strict as its documents.
type fake struct {
	mailtest.Ledger
	URL string
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v2/email/outbound-emails", f.send)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	f.URL = s.URL
	return f
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Amzn-Errortype", code)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"message": message})
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
	switch {
	case !authentic(r, body):
		refuse(w, http.StatusForbidden, "SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided.")
	case r.Header.Get("Content-Type") != "application/json" || d.Decode(&m) != nil:
		refuse(w, http.StatusBadRequest, "SerializationException", "")
	case m.Set != "mail":
		refuse(w, http.StatusNotFound, "NotFoundException", "Configuration set <"+m.Set+"> does not exist.")
	case strings.Contains(m.From, "unverified@"):
		refuse(w, http.StatusBadRequest, "MessageRejected", "Email address is not verified. The following identities failed the check in region EU-WEST-1: "+m.From)
	case !fits(&m):
		refuse(w, http.StatusBadRequest, "BadRequestException", "Invalid request")
	default:
		taken := f.Take(m.key(), body, func(n int) string { return fmt.Sprintf("0102018f%08d-5d2b5a0e-5b8e-000000", n) })
		f.Finish(n)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]string{"MessageId": taken.ID})
	}
}

// fits are the rules that the API reference states.
func fits(m *letter) bool {
	for _, to := range append(append(append([]string{m.From}, m.Destination.To...), m.Destination.CC...), m.Destination.BCC...) {
		if _, err := mail.ParseAddress(to); err != nil || strings.ContainsFunc(to, func(c rune) bool { return c > '~' }) {
			return false
		}
	}
	for _, tag := range m.Tags {
		if tag.Name == "" || tag.Value == "" || strings.ContainsAny(tag.Name+tag.Value, " .@:/") {
			return false
		}
	}
	simple, template := m.Content.Simple, m.Content.Template
	if (simple == nil) == (template == nil) {
		return false
	}
	return template == nil || json.Valid([]byte(template.Data)) && template.Name != ""
}

// authentic signs the request once more, as Signature Version 4 has it.
func authentic(r *http.Request, body []byte) bool {
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil || time.Since(at).Abs() > 5*time.Minute {
		return false
	}
	again := r.Clone(r.Context())
	again.URL.Scheme, again.URL.Host, again.ContentLength = "http", r.Host, int64(len(body))
	_, list, _ := strings.Cut(r.Header.Get("Authorization"), "SignedHeaders=")
	list, _, _ = strings.Cut(list, ",")
	for name := range again.Header {
		if !strings.Contains(";"+list+";", ";"+strings.ToLower(name)+";") {
			again.Header.Del(name)
		}
	}
	again.Header.Del("X-Amz-Security-Token")
	sum := sha256.Sum256(body)
	if v4.NewSigner().SignHTTP(r.Context(), keys, again, hex.EncodeToString(sum[:]), "ses", region, at) != nil {
		return false
	}
	return again.Header.Get("Authorization") == r.Header.Get("Authorization")
}

// event is what SES publishes of a mail.
func event(m mailtest.Taken, kind string) string {
	at := m.At.UTC().Format("2006-01-02T15:04:05.000Z")
	v := map[string]any{"eventType": kind, "mail": map[string]any{
		"timestamp": at, "messageId": m.ID, "source": "no-reply@shop.example", "sendingAccountId": "123456789012", "destination": []string{"ada@example.com"},
		"tags": map[string]any{"dispatch_key": []string{m.Key}, "ses:configuration-set": []string{"mail"}},
	}}
	person := []any{map[string]any{"emailAddress": "ada@example.com"}}
	switch kind {
	case "Send":
		v["send"] = map[string]any{}
	case "Bounce":
		v["bounce"] = map[string]any{"bounceType": "Permanent", "bounceSubType": "General", "bouncedRecipients": person, "timestamp": at}
	case "Delivery":
		v["delivery"] = map[string]any{"timestamp": at, "recipients": []string{"ada@example.com"}}
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}
