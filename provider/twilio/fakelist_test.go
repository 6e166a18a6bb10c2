package twilio_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// list answers GET Messages.json: newest first, with To, From and DateSent as
// filters, in pages. A filter by DateSent hides what has no date yet, and knows
// whole days in GMT only.
func (v *fakeTwilio) list(w http.ResponseWriter, r *http.Request) {
	if !v.authorized(w, r) {
		return
	}
	q := r.URL.Query()
	var found []any
	v.mu.Lock()
	v.lists = append(v.lists, r.URL.RawQuery)
	for _, m := range slices.Backward(v.all) {
		if time.Since(m.created) >= v.opts.lag && matches(m, q) {
			found = append(found, m.document())
		}
	}
	v.mu.Unlock()
	size, err := strconv.Atoi(q.Get("PageSize"))
	if err != nil || size < 1 || size > 1000 {
		size = 50
	}
	if v.opts.limit > 0 {
		size = min(size, v.opts.limit)
	}
	page, _ := strconv.Atoi(q.Get("Page")) // the first where it isn't there
	doc := map[string]any{
		"page": page, "page_size": size, "uri": listPath + "?" + r.URL.RawQuery, "first_page_uri": listPath + "?Page=0", "next_page_uri": nil,
		"messages": found[min(page*size, len(found)):min((page+1)*size, len(found))],
	}
	if len(found) == 0 {
		doc["messages"] = []any{}
	}
	if len(found) > (page+1)*size {
		q.Set("Page", strconv.Itoa(page+1))
		q.Set("PageToken", "PASM"+strconv.Itoa(page))
		doc["next_page_uri"] = listPath + "?" + q.Encode()
	}
	reply(w, 200, doc)
}

func matches(m stored, q url.Values) bool {
	day := func(t time.Time) string { return t.UTC().Format(time.DateOnly) }
	for name, want := range q {
		ok := true
		switch name {
		case "To":
			ok = m.to == want[0]
		case "From":
			ok = m.from == want[0]
		case "DateSent":
			ok = !m.sent.IsZero() && day(m.sent) == want[0][:10]
		case "DateSent>":
			ok = !m.sent.IsZero() && day(m.sent) >= want[0][:10]
		case "DateSent<":
			ok = !m.sent.IsZero() && day(m.sent) <= want[0][:10]
		}
		if !ok {
			return false
		}
	}
	return true
}

// callbackForm is a status callback's body.
func callbackForm(m stored, status, code string) url.Values {
	form := url.Values{
		"MessageSid": {m.sid}, "SmsSid": {m.sid}, "MessageStatus": {status}, "SmsStatus": {status}, "To": {m.to}, "From": {m.from},
		"AccountSid": {accountSID}, "ApiVersion": {"2010-04-01"},
	}
	if code != "" {
		form.Set("ErrorCode", code)
	}
	return form
}

// signature is written apart from the package's own.
func signature(token, address string, form url.Values) string {
	var names []string
	for name := range form {
		names = append(names, name)
	}
	slices.Sort(names)
	h := hmac.New(sha1.New, []byte(token))
	_, _ = io.WriteString(h, address)
	for _, name := range names {
		_, _ = io.WriteString(h, name)
		_, _ = io.WriteString(h, form.Get(name))
	}
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}

// call makes a status callback and returns the answer's status.
func call(ctx context.Context, m stored, status, code string) (int, error) {
	address, _, _ := strings.Cut(m.callback, "#")
	form := callbackForm(m, status, code)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(form.Encode()))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=UTF-8")
	req.Header.Set("X-Twilio-Signature", signature(authToken, address, form))
	req.Header.Set("I-Twilio-Idempotency-Token", m.sid+status)
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	return res.StatusCode, res.Body.Close()
}
