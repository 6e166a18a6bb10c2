package twilio

import (
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/seed-8098fbb7/dispatch"
)

// How long Twilio may keep a message in its own queue, in seconds: the bounds
// of ValidityPeriod in the OpenAPI document, and the least that makes sense for
// a clock that is not quite right.
const (
	minValidity = 30
	maxValidity = 36000
)

// encode makes the form of one message, its fields in alphabetical order. The
// same envelope gives the same bytes but for ValidityPeriod, which is the time
// that is left: it is there only for messages with a deadline below ten hours.
// As Twilio doesn't dedupe, no attempt ever repeats an open one; one that was
// asked to (Envelope.Replay) is refused by the exchange if its bytes differ.
//
// An error is a *dispatch.Fault: nothing was sent.
func (p *Provider) encode(e dispatch.Envelope) ([]byte, error) {
	sms, ok := e.Content.(dispatch.SMS)
	if !ok {
		return nil, local(dispatch.Account, "not a text message", nil)
	}
	form := url.Values{"To": {sms.To}, "Body": {sms.Body}}
	from := p.from(e.From)
	if from == "" {
		return nil, local(dispatch.Sender, "no sender", nil)
	}
	if err := validFrom(from); err != nil {
		return nil, local(dispatch.Sender, "sender can't be one", err)
	}
	if serviceSID.MatchString(from) {
		form.Set("MessagingServiceSid", from)
	} else {
		form.Set("From", from)
	}
	if p.callback != nil {
		form.Set("StatusCallback", p.callback.of(e.Key))
	}
	if s := validity(e.Deadline, p.now()); s > 0 {
		form.Set("ValidityPeriod", strconv.Itoa(s))
	}
	return []byte(form.Encode()), nil
}

func (p *Provider) from(envelope string) string {
	if envelope != "" {
		return envelope
	}
	return p.cfg.From
}

// validity is the ValidityPeriod in seconds, 0 where Twilio's default (ten
// hours) is as good. The deadline is the database's, the clock ours: one that
// is ahead must not make a message expire at once.
func validity(deadline, now time.Time) int {
	if deadline.IsZero() {
		return 0
	}
	s := int(min(deadline.Sub(now)/time.Second, maxValidity))
	if s == maxValidity {
		return 0
	}
	return max(s, minValidity)
}

// local is the fault of a message that is not sent for reasons of our own.
func local(scope dispatch.Scope, reason string, err error) *dispatch.Fault {
	return &dispatch.Fault{
		Evidence: dispatch.Evidence{Stage: dispatch.NotSent, Cause: dispatch.CauseLocal},
		Verdict:  dispatch.Verdict{Outcome: dispatch.Rejected, Scope: scope, Reason: reason},
		Err:      err,
	}
}

// callback is the StatusCallback of the configuration, taken apart.
type callback struct {
	before   string // scheme, host, path and query, up to the key
	fragment string
	bases    []string // scheme, host and path, in the spellings that Twilio may have signed
}

func newCallback(s string) (*callback, error) {
	u, err := url.Parse(s)
	if err != nil {
		return nil, errors.New("is no URL")
	}
	c := &callback{fragment: u.EscapedFragment()}
	if c.fragment == "" {
		c.fragment = retries
	}
	u.Fragment, u.RawFragment = "", ""
	if u.Path == "" {
		u.Path = "/" // what it is called with in any case
	}
	c.before = u.String()
	switch {
	case u.RawQuery != "":
		c.before += "&"
	case !u.ForceQuery:
		c.before += "?"
	}
	u.RawQuery, u.ForceQuery = "", false
	c.bases = spellings(u)
	return c, nil
}

// spellings are a URL as it stands, and with the port taken away, or the
// scheme's own added: Twilio's signatures are known with and without it.
func spellings(u *url.URL) []string {
	list := []string{u.String()}
	other := *u
	if port := u.Port(); port != "" {
		other.Host = strings.TrimSuffix(u.Host, ":"+port)
	} else if u.Scheme == "https" {
		other.Host += ":443"
	} else {
		other.Host += ":80"
	}
	return append(list, other.String())
}

// of is the URL that Twilio calls for one message.
func (c *callback) of(key dispatch.Key) string {
	return c.before + keyParam + "=" + key.String() + "#" + c.fragment
}
