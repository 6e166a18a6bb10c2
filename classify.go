package dispatch

import (
	"net/http"
	"time"
)

// Outcome is what one attempt came to.
type Outcome int8

// The outcomes. The zero value is Unknown: whoever says nothing has proven
// nothing. Their numbers are stored.
const (
	// Unknown: the message may or may not have been accepted.
	Unknown Outcome = 0
	// OK: the provider accepted the message. It says nothing of delivery.
	OK Outcome = 1
	// Rejected: the provider certainly did not accept this attempt.
	Rejected Outcome = 2
)

func (o Outcome) String() string {
	switch o {
	case Unknown:
		return "unknown"
	case OK:
		return "ok"
	case Rejected:
		return "rejected"
	}
	return "unknown outcome"
}

// Scope is whose fault a rejection is, and so whom it stops.
type Scope int8

// The scopes. The zero value is Moment. Their numbers are stored.
const (
	// Moment: it may work later, or elsewhere.
	Moment Scope = 0
	// Sender: this sender can't send at this provider; its other senders can.
	Sender Scope = 1
	// Account: nothing can be sent with this account until a person mends it.
	Account Scope = 2
	// Message: this message will be refused everywhere; final.
	Message Scope = 3
)

func (s Scope) String() string {
	switch s {
	case Moment:
		return "moment"
	case Sender:
		return "sender"
	case Account:
		return "account"
	case Message:
		return "message"
	}
	return "unknown scope"
}

// Stage is how far an attempt got. Only what is proven counts: the zero value
// is MaybeSent.
type Stage int8

// The stages.
const (
	// MaybeSent: no answer, and bytes may have left.
	MaybeSent Stage = 0
	// NotSent: it is proven that no byte of the request left this process, or
	// that the end did not without which it is none (SMTP's final dot).
	NotSent Stage = 1
	// Answered: a status was read.
	Answered Stage = 2
)

func (s Stage) String() string {
	switch s {
	case MaybeSent:
		return "maybe sent"
	case NotSent:
		return "not sent"
	case Answered:
		return "answered"
	}
	return "unknown stage"
}

// Cause is what ended an attempt that has no answer.
type Cause int8

// The causes. The zero value is CauseNone, for attempts with an answer.
const (
	CauseNone        Cause = iota
	CauseDial              // DNS, refused, unreachable, TLS handshake
	CauseCertificate       // the server's certificate was refused
	CauseProxy             // the forward proxy refused; Status is its answer
	CauseProxyAuth         // the forward proxy wants credentials
	CauseLocal             // the request could not be built or was refused here
	CauseChanged           // the bytes differ from the open attempt's: not sent
	CausePool              // no connection came free in time
	CauseDeadline          // the attempt's time was over
	CauseConn              // the connection broke
	CauseBody              // the answer broke off where its body is the verdict
	CausePanic             // the adapter panicked
	CauseSwept             // the worker that sent it was not heard of again
)

var causes = [...]string{"", "dial", "certificate", "proxy", "proxy auth", "local", "bytes changed", "pool", "deadline", "connection", "body", "panic", "swept"}

func (c Cause) String() string {
	if c < 0 || int(c) >= len(causes) {
		return "unknown cause"
	}
	return causes[c]
}

// KeyFault is what a provider said about our idempotency key.
type KeyFault int8

// The faults of a key. The zero value means that the provider said nothing.
const (
	KeyFine     KeyFault = 0
	KeyInFlight KeyFault = 1 // an earlier request with this key is not done
	KeyReused   KeyFault = 2 // the key was used with another payload
)

// Evidence is what is known of one attempt: facts, no judgement.
type Evidence struct {
	// Stage is how far the attempt got.
	Stage Stage
	// Cause is what ended it where there is no answer.
	Cause Cause
	// Status is the HTTP or SMTP status, 0 without an answer.
	Status int
	// Code is the vendor's own code, "" where it gave none. What has not the form
	// of a code (64 letters, digits, "_", ".", ":", "/" and "-", no more than five
	// digits in a row) is taken for the vendor's words. On a success status
	// Classify takes it for a failure inside the body that no table lists.
	Code string
	// Reason is the vendor's own words, cut short. It may quote a recipient:
	// it is stored for authorized operators and never logged.
	Reason string
	// OwnBody tells that the body has the vendor's own form, so that the
	// status is the vendor's and not that of something in between.
	OwnBody bool
	// EdgeUnreached tells that the vendor's edge says that it could not reach
	// the origin (Cloudflare's 521, 522 and 523).
	EdgeUnreached bool
	// Key is what the vendor said about the key.
	Key KeyFault
	// RetryAfter is the floor that the answer named, 0 for none.
	RetryAfter time.Duration
	// Request is the digest of the request's bytes, nil where none was made.
	Request []byte
}

// Verdict is what follows from evidence.
type Verdict struct {
	Outcome Outcome
	// Scope is whose fault a rejection is.
	Scope Scope
	// Floor is the least wait before the provider may be called again.
	Floor time.Duration
	// Hold asks for a person at once: a repeat can't help.
	Hold bool
	// Reason is a short, fixed text without personal data.
	Reason string
}

// Classify is the default table from evidence to verdict, as every vendor's
// own table falls back to it. What it doesn't know is Unknown.
func Classify(e Evidence) Verdict {
	v := judge(e)
	v.Floor = floor(e.RetryAfter)
	return v
}

func judge(e Evidence) Verdict {
	switch e.Stage {
	case NotSent:
		return judgeUnsent(e)
	case MaybeSent:
		reason := "no answer"
		if e.Cause != CauseNone {
			reason = e.Cause.String()
		}
		return Verdict{Outcome: Unknown, Reason: reason}
	case Answered:
		return judgeStatus(e)
	}
	return Verdict{Outcome: Unknown, Reason: "unknown stage"}
}

func judgeUnsent(e Evidence) Verdict {
	v := Verdict{Outcome: Rejected, Scope: Moment, Reason: "not sent: " + e.Cause.String()}
	switch e.Cause {
	case CauseCertificate, CauseProxyAuth, CauseLocal:
		v.Scope = Account
	case CauseChanged:
		v.Hold = true
	case CauseNone, CauseDial, CauseProxy, CausePool, CauseDeadline, CauseConn, CauseBody, CausePanic, CauseSwept:
	}
	return v
}

func judgeStatus(e Evidence) Verdict {
	switch e.Key {
	case KeyInFlight:
		return Verdict{Outcome: Unknown, Reason: "key in flight"}
	case KeyReused:
		return Verdict{Outcome: Unknown, Hold: true, Reason: "key used with another payload"}
	case KeyFine:
	}
	switch s := e.Status; {
	case s >= 200 && s <= 299 && e.Code != "": // a failure inside a success, or a code nobody has listed
		return Verdict{Outcome: Unknown, Reason: "success status with an unlisted code"}
	case s >= 200 && s <= 299:
		return Verdict{Outcome: OK, Reason: "accepted"}
	case s >= 300 && s <= 399:
		return Verdict{Outcome: Rejected, Scope: Account, Reason: "redirect"}
	case e.EdgeUnreached && (s == 521 || s == 522 || s == 523):
		return Verdict{Outcome: Rejected, Scope: Moment, Reason: "edge could not reach the provider"}
	}
	switch e.Status {
	case http.StatusTooManyRequests:
		return Verdict{Outcome: Rejected, Scope: Moment, Reason: "rate limited"}
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden:
		return Verdict{Outcome: Rejected, Scope: Account, Reason: "account refused"}
	case http.StatusProxyAuthRequired:
		return Verdict{Outcome: Rejected, Scope: Account, Reason: "proxy wants credentials"}
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusUnsupportedMediaType:
		if !e.OwnBody {
			return Verdict{Outcome: Rejected, Scope: Account, Reason: "not the provider's API"}
		}
		return Verdict{Outcome: Rejected, Scope: Message, Reason: "refused"}
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return Verdict{Outcome: Rejected, Scope: Message, Reason: "refused"}
	case http.StatusConflict:
		return Verdict{Outcome: Unknown, Reason: "conflict"}
	}
	return Verdict{Outcome: Unknown, Reason: "status proves nothing"}
}

// Codes is a vendor's table from its own codes to verdicts. What it doesn't
// list falls back to [Classify].
type Codes map[string]Verdict

// Classify looks the evidence's code up. The floor is the evidence's or the
// table's, whichever is longer.
func (c Codes) Classify(e Evidence) Verdict {
	if v, ok := c[e.Code]; ok && e.Code != "" && e.Stage == Answered && e.Key == KeyFine {
		v.Floor = max(floor(v.Floor), floor(e.RetryAfter))
		return v
	}
	return Classify(e)
}

// Conservative is a Route.Classify for those who would rather look twice:
// only an explicit 429 is tried again by itself, failures of the transport go
// to reconciliation, and every other refusal goes to a person.
func Conservative(e Evidence, v Verdict) Verdict {
	if v.Outcome != Rejected || v.Hold {
		return v
	}
	switch {
	case e.Stage != Answered:
		v.Outcome, v.Scope, v.Reason = Unknown, Moment, "conservative: "+v.Reason
	case e.Status != http.StatusTooManyRequests:
		v.Scope, v.Reason = Message, "conservative: "+v.Reason
	}
	return v
}
