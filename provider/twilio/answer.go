package twilio

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
)

// The longest texts that are kept, in bytes.
const (
	maxWord  = 100
	maxWords = 300
)

// judge turns an answer into what Send returns. A success status is the
// verdict, also where the body is cut or can't be read; only a body that says
// that the message failed already takes it back.
func judge(a exchange.Answer) (dispatch.Accepted, error) {
	ev := a.Evidence
	var doc map[string]any
	if a.Whole() {
		doc = decode(a.Body)
	}
	if a.Status < 200 || a.Status > 299 {
		return dispatch.Accepted{}, refused(ev, doc)
	}
	status := strings.ToLower(text(doc["status"], maxWord))
	switch status {
	case "failed", "undelivered", "canceled":
		ev.Code, ev.OwnBody, ev.Reason = text(doc["error_code"], maxWord), true, words(doc["error_message"])
		return dispatch.Accepted{}, &dispatch.Fault{Evidence: ev, Verdict: failed(ev)}
	}
	id := sid(doc["sid"])
	return dispatch.Accepted{ID: id, NoID: id == "", Status: status, Evidence: ev}, nil
}

// refused is the fault of an answer without a success status: by the code of
// Twilio's own body, else by the status.
func refused(ev dispatch.Evidence, doc map[string]any) *dispatch.Fault {
	ev.Code, ev.Reason = text(doc["code"], maxWord), words(doc["message"])
	_, number := doc["code"].(json.Number)
	_, status := doc["status"].(json.Number)
	ev.OwnBody = number || status || ev.Code != "" && ev.Reason != ""
	return &dispatch.Fault{Evidence: ev, Verdict: codes.Classify(ev)}
}

// failed is the verdict on a message that was created and failed at once: it
// will not be sent, so it may be refused by its code. A code that isn't listed
// is final, and goes to a person with its message.
func failed(ev dispatch.Evidence) dispatch.Verdict {
	v, ok := codes[ev.Code]
	if !ok || ev.Code == "" {
		v = dispatch.Verdict{Outcome: dispatch.Rejected, Scope: dispatch.Message, Reason: "failed at once, code not listed"}
	}
	v.Floor = max(v.Floor, ev.RetryAfter)
	return v
}

// decode reads a JSON object, a byte order mark in front of it allowed, and
// returns nil for anything else. Numbers stay as they were written.
func decode(b []byte) map[string]any {
	d := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))))
	d.UseNumber()
	var doc map[string]any
	if d.Decode(&doc) != nil || d.More() {
		return nil
	}
	return doc
}

// text is a string or a number, digit for digit, "" for anything else and for
// what can't be a code or a word.
func text(v any, limit int) string {
	var s string
	switch v := v.(type) {
	case string:
		s = v
	case json.Number:
		s = v.String()
	}
	if len(s) > limit || strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f || c == utf8.RuneError }) {
		return ""
	}
	return s
}

// words are the vendor's, for authorized eyes.
func words(v any) string {
	s, _ := v.(string)
	s = strings.ReplaceAll(strings.ToValidUTF8(s, ""), "\x00", "")
	if len(s) <= maxWords {
		return s
	}
	n := maxWords
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// sid is an id of a message, "" for what can't be one.
func sid(v any) string {
	s := text(v, 64)
	if strings.ContainsFunc(s, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && c != '-' && c != '_'
	}) {
		return ""
	}
	return s
}
