package vonage

import (
	"encoding/json"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
	"github.com/seed-8098fbb7/dispatch/provider/internal/loosejson"
)

// The longest texts that are kept, in bytes.
const (
	maxID    = 200
	maxCode  = 60
	maxWords = 300
)

// encodeMessages builds the body for the Messages API. Its fields stand in a
// fixed order: the same message gives the same bytes.
func (p *Provider) encodeMessages(key dispatch.Key, from string, m dispatch.SMS) ([]byte, error) {
	if len(utf16.Encode([]rune(m.Body))) > maxText {
		return nil, errors.New("text is longer than 1000 characters")
	}
	type options struct {
		Encoding string `json:"encoding_type"`
		Entity   string `json:"entity_id,omitempty"`
		Content  string `json:"content_id,omitempty"`
	}
	body := struct {
		Type    string  `json:"message_type"`
		Channel string  `json:"channel"`
		To      string  `json:"to"`
		From    string  `json:"from"`
		Text    string  `json:"text"`
		Ref     string  `json:"client_ref"`
		TTL     int     `json:"ttl,omitempty"` // seconds
		Webhook string  `json:"webhook_url,omitempty"`
		Version string  `json:"webhook_version,omitempty"`
		SMS     options `json:"sms"`
	}{
		"text", "sms", strings.TrimPrefix(m.To, "+"), from, m.Body, key.String(), int(p.cfg.TTL.Seconds()),
		p.cfg.CallbackURL, "",
		options{"auto", p.cfg.EntityID, p.cfg.ContentID},
	}
	if body.Webhook != "" {
		body.Version = "v1"
	}
	return json.Marshal(body)
}

// encodeSMS builds the form for the SMS API, in the order of its names.
func (p *Provider) encodeSMS(key dispatch.Key, from string, m dispatch.SMS) []byte {
	form := url.Values{"to": {strings.TrimPrefix(m.To, "+")}, "from": {from}, "text": {m.Body}, "client-ref": {key.String()}, "type": {"text"}}
	if unicode(m.Body) {
		form.Set("type", "unicode")
	}
	if p.cfg.TTL > 0 {
		form.Set("ttl", strconv.FormatInt(p.cfg.TTL.Milliseconds(), 10))
	}
	for name, value := range map[string]string{"callback": p.cfg.CallbackURL, "entity-id": p.cfg.EntityID, "content-id": p.cfg.ContentID} {
		if value != "" {
			form.Set(name, value)
		}
	}
	return []byte(form.Encode())
}

// problem is an error of the Messages API, RFC 7807: its code is the fragment
// of type.
type problem struct {
	Type   loosejson.Text `json:"type"`
	Title  loosejson.Text `json:"title"`
	Detail loosejson.Text `json:"detail"`
}

// own reports whether it is Vonage's, and not that of something in between.
func (p problem) own() bool { return strings.Contains(string(p.Type), "/api-errors") }

func (p problem) code() string {
	if !p.own() {
		return ""
	}
	_, code, _ := strings.Cut(p.Type.Word(300), "#")
	if title := p.Title.Word(maxCode); code == "" && strings.Trim(title, "0123456789") == "" {
		code = title // some examples have the number there alone
	}
	return loosejson.Text(code).Word(maxCode)
}

// judgeMessages turns an answer of the Messages API into what Send returns. A
// 202 has the message's id in its body; one without an id, or with a body that
// can't be read, may be from something in between and is unknown.
func judgeMessages(a exchange.Answer) (dispatch.Accepted, error) {
	var doc struct {
		problem
		ID loosejson.Text `json:"message_uuid"`
	}
	e := a.Evidence
	read := a.Whole() && loosejson.Decode(a.Body, &doc) == nil
	if read {
		e.Code, e.OwnBody = doc.code(), doc.own()
		e.Reason = doc.Detail.Cut(maxWords)
	}
	if a.Status < 200 || a.Status > 299 {
		return dispatch.Accepted{}, &dispatch.Fault{Evidence: e, Verdict: messagesCodes.Classify(e)}
	}
	id := doc.ID.Word(maxID)
	switch {
	case read && e.OwnBody:
		return dispatch.Accepted{}, &dispatch.Fault{Evidence: e, Verdict: contradiction(messagesCodes.Classify(e))}
	case !read || id == "":
		e.Cause = dispatch.CauseBody
		return dispatch.Accepted{}, &dispatch.Fault{Evidence: e, Verdict: unknown("no id in the answer")}
	}
	return dispatch.Accepted{ID: id, Evidence: e}, nil
}

// contradiction is the verdict on an error under a success status: the code's
// where the table has it, and never ok.
func contradiction(v dispatch.Verdict) dispatch.Verdict {
	if v.Outcome == dispatch.OK {
		return dispatch.Verdict{Floor: v.Floor, Reason: "error under a success status"}
	}
	return v
}

// part is the verdict on one part of a message in the SMS API.
type part struct {
	ID     loosejson.Text `json:"message-id"`
	Status loosejson.Text `json:"status"`
	Words  loosejson.Text `json:"error-text"`
}

// judgeSMS turns an answer of the SMS API into what Send returns. Its status
// is 200 whatever happened. One part with status 0 means that Vonage took the
// message, or a part of it: it is never sent again.
func judgeSMS(a exchange.Answer) (dispatch.Accepted, error) {
	var doc struct {
		Count loosejson.Text `json:"message-count"`
		Parts []part         `json:"messages"`
	}
	e := a.Evidence
	read := a.Whole() && loosejson.Decode(a.Body, &doc) == nil && len(doc.Parts) > 0
	if a.Status < 200 || a.Status > 299 {
		return dispatch.Accepted{}, &dispatch.Fault{Evidence: e, Verdict: dispatch.Classify(e)}
	}
	if !read {
		e.Cause = dispatch.CauseBody
		return dispatch.Accepted{}, &dispatch.Fault{Evidence: e, Verdict: unknown("no verdict in the answer")}
	}
	for _, p := range doc.Parts {
		if p.Status.Word(maxCode) == "0" {
			id := p.ID.Word(maxID)
			return dispatch.Accepted{ID: id, NoID: id == "", Evidence: e}, nil
		}
	}
	e.OwnBody = true
	count := doc.Count.Word(maxCode)
	if count != "" && count != strconv.Itoa(len(doc.Parts)) {
		return dispatch.Accepted{}, &dispatch.Fault{Evidence: e, Verdict: unknown("a part without a verdict")}
	}
	return dispatch.Accepted{}, refused(e, doc.Parts)
}

// refused is the fault of a message none of whose parts was taken. One part
// whose code proves nothing makes it unknown; else the widest refusal counts.
func refused(e dispatch.Evidence, parts []part) error {
	var f *dispatch.Fault
	for _, p := range parts {
		mine := e
		mine.Code, mine.Reason = p.Status.Word(maxCode), p.Words.Cut(maxWords)
		v := contradiction(smsCodes.Classify(mine))
		if v.Outcome == dispatch.Unknown {
			return &dispatch.Fault{Evidence: mine, Verdict: v}
		}
		if f == nil || v.Scope > f.Verdict.Scope {
			f = &dispatch.Fault{Evidence: mine, Verdict: v}
		}
	}
	return f
}
