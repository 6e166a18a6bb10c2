package dispatch_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
)

// shown is everything that a log or a print could make of v.
func shown(t *testing.T, v any) string {
	t.Helper()
	var b bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
		fmt.Fprintf(&b, verb+"\n", v)
		fmt.Fprintf(&b, verb+"\n", []any{v, &v})
		fmt.Fprintf(&b, verb+"\n", struct{ In any }{v})
	}
	for _, h := range []slog.Handler{slog.NewTextHandler(&b, nil), slog.NewJSONHandler(&b, nil)} {
		slog.New(h).LogAttrs(t.Context(), slog.LevelInfo, "x", slog.Any("v", v), slog.Group("g", slog.Any("v", v)))
	}
	return b.String()
}

// B162: neither recipients nor texts, metadata, vendor's words or credentials
// come out of anything that is printed or logged.
func TestNothingPersonalIsShown(t *testing.T) {
	message := dispatch.SMS{To: secretNumber, Sender: "otp", Body: secretBody}
	letter := dispatch.Email{
		Sender: "receipts", Subject: "secret subject", Text: secretBody, HTML: "<p>secret</p>",
		To: []dispatch.Address{{Name: "Ada Secret", Email: secretMail}}, BCC: []dispatch.Address{{Email: "secret@example.com"}},
		Headers: []dispatch.Header{{Name: "X-Secret", Value: "secret"}}, Tags: []string{"secret"},
		Attachments: []dispatch.Attachment{{Name: "secret.pdf", Type: "application/pdf", Data: []byte("secret")}},
		Template:    dispatch.ProviderTemplate{ID: "t", Unpinned: true, Data: []byte(`{"code":"482901"}`)},
	}
	intent := dispatch.Intent{Key: dispatch.NewKey(), Route: "sms", Content: message, Metadata: map[string]string{"secret": "482901"}}
	pointer := intent
	pointer.Content = &message
	evidence := answered(400)
	evidence.Code, evidence.Reason = "21211", "The 'To' number +15555550100 is not valid"
	cause := errors.New("post https://user:secret@example.com/+15555550100: EOF")
	f := &dispatch.Fault{Evidence: evidence, Verdict: dispatch.Classify(evidence), Err: cause}
	i := sms()
	v := newVendor(t, dispatch.Contract{}, fails(evidence))
	_, failed := dispatch.Do(t.Context(), v, tick(1), i)
	var sendError *dispatch.SendError
	require.ErrorAs(t, failed, &sendError)
	bad := intent
	bad.Content = dispatch.SMS{To: secretNumber, Body: secretBody + "\x00"}
	_, fieldError := bad.Normalize()
	require.Error(t, fieldError)

	for name, c := range map[string]struct {
		v    any
		want string // what must be there, so that an empty print is no success
	}{
		"intent":            {intent, intent.Key.String()},
		"pointer content":   {pointer, intent.Key.String()},
		"no content":        {dispatch.Intent{Key: intent.Key}, intent.Key.String()},
		"mail intent":       {dispatch.Intent{Key: intent.Key, Content: letter}, "recipients=2"},
		"SMS":               {message, "bytes=19"},
		"SMS pointer":       {&message, "bytes=19"},
		"email":             {letter, "attachments=1"},
		"envelope":          {dispatch.Envelope{Key: intent.Key, Route: "sms", Content: message, From: "secret", Metadata: intent.Metadata, Attempt: 3}, "attempt=3"},
		"query":             {dispatch.Query{Key: intent.Key, Content: letter, From: "secret", Since: time.Unix(0, 0)}, intent.Key.String()},
		"evidence":          {evidence, "21211"},
		"accepted":          {dispatch.Accepted{ID: "SM1", Evidence: evidence}, "SM1"},
		"receipt":           {dispatch.Receipt{Key: intent.Key, Kind: dispatch.Bounced, Recipient: secretMail}, "bounced"},
		"fault":             {fmt.Errorf("twilio: %w", f), "21211"},
		"send error":        {failed, sendError.Key.String()},
		"wrapped":           {fmt.Errorf("login: %w", failed), sendError.Key.String()},
		"field error":       {fieldError, "Content.Body"},
		"conflict":          {&dispatch.ConflictError{Key: intent.Key}, intent.Key.String()},
		"a list of intents": {[]dispatch.Intent{intent, pointer}, intent.Key.String()},
	} {
		t.Run(name, func(t *testing.T) {
			out := shown(t, c.v)
			if name == "a list of intents" { // a JSON handler marshals a slice as the data it is: log its length
				out = fmt.Sprintf("%v %+v %#v", c.v, c.v, c.v)
			}
			assert.Contains(t, out, c.want)
			for _, s := range []string{"5555550100", "482901", "Your code", "ada@", "Ada", "ecret", fmt.Sprintf("%x", "482901"), "To' number"} {
				assert.NotContains(t, out, s)
			}
		})
	}
	assert.ErrorIs(t, failed, dispatch.ErrRejected)
	assert.Equal(t, "send "+sendError.Key.String()+": rejected after 1 attempts: refused", failed.Error())
}

// A nil pointer as content must not take a logger down.
func TestLogValueOfNilContent(t *testing.T) {
	i := dispatch.Intent{Key: dispatch.NewKey(), Content: (*dispatch.Email)(nil)}
	assert.NotPanics(t, func() { assert.Contains(t, shown(t, i), i.Key.String()) })
}
