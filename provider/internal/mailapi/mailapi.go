// Package mailapi is what the adapters for HTTP mail vendors share: verdicts
// in short, names and addresses as they are written, JSON that is the same
// each time, sizes as vendors count them, and receipts that can be stored.
package mailapi

import (
	"errors"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
	"github.com/seed-8098fbb7/dispatch/provider/internal/loosejson"
)

// KeyName is the name under which our key travels as a vendor's tag, metadata
// field, custom argument or variable, and comes back in events.
const KeyName = "dispatch_key"

// The longest texts that are kept, in bytes.
const (
	MaxID    = 200
	MaxCode  = 60
	MaxWords = 300
)

// Moment is the verdict of a refusal that may pass.
func Moment(why string) dispatch.Verdict { return rejected(dispatch.Moment, why) }

// Sender is the verdict of a refusal that concerns this sender at this vendor.
func Sender(why string) dispatch.Verdict { return rejected(dispatch.Sender, why) }

// Account is the verdict of a refusal that concerns every message.
func Account(why string) dispatch.Verdict { return rejected(dispatch.Account, why) }

// Message is the verdict of a refusal that is final.
func Message(why string) dispatch.Verdict { return rejected(dispatch.Message, why) }

// Unknown is the verdict of an answer that proves nothing.
func Unknown(why string) dispatch.Verdict { return dispatch.Verdict{Reason: why} }

func rejected(s dispatch.Scope, why string) dispatch.Verdict {
	return dispatch.Verdict{Outcome: dispatch.Rejected, Scope: s, Reason: why}
}

// Refuse is the fault of a message that was refused here: nothing was sent.
func Refuse(v dispatch.Verdict, err error) error {
	return &dispatch.Fault{Evidence: dispatch.Evidence{Stage: dispatch.NotSent, Cause: dispatch.CauseLocal}, Verdict: v, Err: err}
}

// Unfit is Refuse for a mail that this vendor can't carry and another might:
// too large for it, or with a part that it has no field for. Its scope is the
// sender's, since that is the one that goes on to the route's next provider
// and parks the message where there is none. The reason names the field.
func Unfit(err error) error {
	why := "can't be sent here"
	var field *dispatch.FieldError
	if errors.As(err, &field) {
		why += ": " + field.Field + " " + field.Reason
	}
	return Refuse(Sender(why), err)
}

// Field is the error of a field of the mail.
func Field(name, reason string) error { return &dispatch.FieldError{Field: name, Reason: reason} }

// Email is the content as a mail. Its error is that of a field.
func Email(c dispatch.Content) (dispatch.Email, error) {
	m, ok := c.(dispatch.Email)
	if !ok {
		return m, Field("Content", "is no mail, which is all that this provider sends")
	}
	return m, nil
}

// Mail is the envelope's mail. Its error is a fault.
func Mail(e dispatch.Envelope) (dispatch.Email, error) {
	m, ok := e.Content.(dispatch.Email)
	if !ok {
		return m, Refuse(Account("not a mail"), errors.New("content is no mail"))
	}
	return m, nil
}

// Read decodes an answer that came whole into v.
func Read(a exchange.Answer, v any) bool { return a.Whole() && loosejson.Decode(a.Body, v) == nil }

// Fault is the fault of an answer.
func Fault(e dispatch.Evidence, v dispatch.Verdict) error {
	return &dispatch.Fault{Evidence: e, Verdict: v}
}

// Under is a table's verdict on an answer with a success status. One that says
// "accepted" for an error in the body is none.
func Under(v dispatch.Verdict) dispatch.Verdict {
	if v.Outcome == dispatch.OK {
		return dispatch.Verdict{Floor: v.Floor, Reason: "error under a success status"}
	}
	return v
}

// Exchange is cfg with the defaults for mail: 30 s to write a request, since
// it may carry attachments, and answers of up to 256 KiB.
func Exchange(cfg exchange.Config) (*exchange.Client, error) {
	if cfg.Write == 0 {
		cfg.Write = 30 * time.Second
	}
	if cfg.MaxBody == 0 {
		cfg.MaxBody = 256 << 10
	}
	return exchange.New(cfg)
}
