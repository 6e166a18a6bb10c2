package dispatch

import (
	"context"
	"errors"
	"strings"

	"github.com/seed-8098fbb7/dispatch/internal/canon"
)

// Fault is the error of an attempt: what is known and what follows from it.
// It proves what its verdict says: Rejected that this attempt was not
// accepted, Unknown nothing.
type Fault struct { //nolint:errname // it is evidence first; "fault" is the word of the verdict table
	Evidence Evidence
	Verdict  Verdict
	// Err is the cause for errors.Is and errors.As. Its text is not shown,
	// since it may quote an address or a URL.
	Err error
}

// Error shows outcome, reason, status and code, never the vendor's words.
func (f *Fault) Error() string {
	if f == nil {
		return Unknown.String()
	}
	s := f.Verdict.Outcome.String() + ": " + clean(f.Verdict.Reason, maxReason)
	if f.Evidence.Status != 0 {
		s += ", status " + itoa(f.Evidence.Status)
	}
	if f.Evidence.Code != "" {
		s += ", code " + codeWord(f.Evidence.Code)
	}
	return s
}

func (f *Fault) Unwrap() error {
	if f == nil {
		return nil
	}
	return f.Err
}

// Judge turns what Send returned into evidence and verdict. A nil error
// without an id and without NoID is Unknown, and so is every error that is no
// *Fault, a nil *Fault, and a Fault that claims OK. What an adapter made up
// beyond the documented values is read as the zero value, and its texts are
// cut to what can be stored.
func Judge(a Accepted, err error) (Evidence, Verdict) {
	if err == nil {
		e := a.Evidence.bounded()
		e.Stage = Answered
		if a.ID == "" && !a.NoID {
			return e, Verdict{Outcome: Unknown, Reason: "accepted without an id"}
		}
		return e, Verdict{Outcome: OK, Reason: "accepted"}
	}
	var f *Fault
	if errors.As(err, &f) && f != nil {
		e, v := f.Evidence.bounded(), f.Verdict.bounded()
		if v.Outcome == OK {
			v.Outcome = Unknown
		}
		v.Floor = max(v.Floor, e.RetryAfter)
		return e, v
	}
	e := Evidence{Stage: MaybeSent}
	reason := "error without evidence"
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		e.Cause, reason = CauseDeadline, CauseDeadline.String()
	}
	return e, Verdict{Outcome: Unknown, Reason: reason}
}

// How long the texts of an attempt may be, in bytes.
const (
	maxReason = 200 // a verdict's, fixed texts of ours
	maxCode   = 100 // a vendor's code or status word, and half of an id
	maxWords  = 500 // a vendor's own words
)

// bounded keeps what can be stored. A text that Postgres refuses would lose
// the outcome of an attempt that was made.
func (e Evidence) bounded() Evidence {
	if e.Stage < 0 || e.Stage > Answered {
		e.Stage = MaybeSent
	}
	if e.Cause < 0 || int(e.Cause) >= len(causes) {
		e.Cause = CauseNone
	}
	if e.Key < 0 || e.Key > KeyReused {
		e.Key = KeyFine
	}
	if e.Status < 0 || e.Status > 999 {
		e.Status = 0
	}
	if !canon.IsCode(e.Code) { // words, or worse: those are not shown
		e.Code, e.Reason = "", strings.TrimSuffix(e.Code+" "+e.Reason, " ")
	}
	e.Code, e.Reason = clean(e.Code, maxCode), clean(e.Reason, maxWords)
	e.RetryAfter = floor(e.RetryAfter)
	return e
}

// codeWord is a vendor's code as it may be shown: a vendor that answers with
// the recipient instead of a code must not bring it into a log.
func codeWord(code string) string {
	if !canon.IsCode(code) {
		return "not shown"
	}
	return clean(code, 40)
}

func (v Verdict) bounded() Verdict {
	if v.Outcome != OK && v.Outcome != Rejected {
		v.Outcome = Unknown
	}
	if v.Outcome != Rejected || v.Scope < 0 || v.Scope > Message {
		v.Scope = Moment
	}
	v.Floor, v.Reason = floor(v.Floor), clean(v.Reason, maxReason)
	return v
}

func (a Accepted) bounded() Accepted {
	a.ID, a.Status = clean(a.ID, 2*maxCode), clean(a.Status, maxCode)
	a.Evidence = a.Evidence.bounded()
	return a
}
