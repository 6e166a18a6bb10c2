package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-8098fbb7/dispatch"
)

// A key is minted once, outside whatever may be repeated. Where the message
// has a name of its own, the key comes from it, and a repeated request
// enqueues the same message.
func ExampleNamespace_Key() {
	ids, err := dispatch.NewNamespace("shop-production")
	if err != nil {
		panic(err)
	}
	first := ids.Key("order-123/shipped")
	repeated := ids.Key("order-123/shipped")
	fmt.Println(first, first == repeated)
	// Output: fc2968a3-7bb8-5625-ae9c-a27eaf832830 true
}

func ExampleNewKey() {
	key := dispatch.NewKey() // a UUIDv7; store it before the first attempt
	again, err := dispatch.ParseKey(key.String())
	fmt.Println(again == key, err)
	// Output: true <nil>
}

// busy is a provider that is rate limited twice and then accepts.
type busy struct {
	dispatch.NoLookup

	attempts int
}

func (*busy) Contract() dispatch.Contract { return dispatch.Contract{Name: "busy", Account: "AC1"} }

func (b *busy) Send(_ context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
	b.attempts++
	if b.attempts < 3 {
		seen := dispatch.Evidence{Stage: dispatch.Answered, Status: 429}
		return dispatch.Accepted{}, &dispatch.Fault{Evidence: seen, Verdict: dispatch.Classify(seen)}
	}
	return dispatch.Accepted{ID: "SM" + e.Key.String()[:8]}, nil
}

// Do sends without a database. What its error proves is told by errors.Is.
func ExampleDo() {
	ids, err := dispatch.NewNamespace("shop-production")
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	taken, err := dispatch.Do(ctx, &busy{}, dispatch.Route{
		Policy: dispatch.Policy{Backoff: dispatch.Backoff{Base: time.Millisecond, Cap: 10 * time.Millisecond}, Attempts: 5},
	}, dispatch.Intent{
		Key:      ids.Key("login/9f3c"),
		Content:  dispatch.SMS{To: "+15555550123", Body: "Your code is 482901"},
		ValidFor: 5 * time.Minute,
	})
	switch {
	case err == nil:
		fmt.Println("accepted as", taken.ID)
	case errors.Is(err, dispatch.ErrUnknown):
		fmt.Println("may have been accepted: don't send it under another key")
	case errors.Is(err, dispatch.ErrDeferred):
		fmt.Println("not accepted: the same key may be tried again later")
	default:
		fmt.Println("not accepted:", err)
	}
	// Output: accepted as SM716ebdc0
}

// An adapter states what it saw, and the table says what follows. A server
// error proves nothing: the message may have been accepted before it.
func ExampleClassify() {
	for _, seen := range []dispatch.Evidence{
		{Stage: dispatch.Answered, Status: 202},
		{Stage: dispatch.Answered, Status: 429, RetryAfter: 30 * time.Second},
		{Stage: dispatch.Answered, Status: 422},
		{Stage: dispatch.Answered, Status: 503},
		{Stage: dispatch.NotSent, Cause: dispatch.CauseDial},
		{Stage: dispatch.MaybeSent, Cause: dispatch.CauseDeadline},
	} {
		v := dispatch.Classify(seen)
		fmt.Println(v.Outcome, v.Scope, v.Floor, v.Reason)
	}
	// Output:
	// ok moment 0s accepted
	// rejected moment 30s rate limited
	// rejected message 0s refused
	// unknown moment 0s status proves nothing
	// rejected moment 0s not sent: dial
	// unknown moment 0s deadline
}

// A vendor's own codes say more than its statuses. What its table doesn't list
// is judged by the status.
func ExampleCodes() {
	table := dispatch.Codes{
		"21211": {Outcome: dispatch.Rejected, Scope: dispatch.Message, Reason: "not a valid number"},
		"21606": {Outcome: dispatch.Rejected, Scope: dispatch.Sender, Reason: "sender can't send text"},
		"30001": {Outcome: dispatch.Rejected, Scope: dispatch.Moment, Reason: "queue overflow"},
	}
	for _, code := range []string{"21211", "21606", "30001", "12345"} {
		v := table.Classify(dispatch.Evidence{Stage: dispatch.Answered, Status: 400, Code: code})
		fmt.Println(code, v.Outcome, v.Scope, v.Reason)
	}
	// Output:
	// 21211 rejected message not a valid number
	// 21606 rejected sender sender can't send text
	// 30001 rejected moment queue overflow
	// 12345 rejected message refused
}

// What a caller's own deadline must hold for the budget to be spent in it.
func ExamplePolicy_WorstCase() {
	mail := dispatch.EmailPolicy()
	fmt.Println("waits alone:", mail.WorstCase(0))
	fmt.Println("with attempts of 30 s:", mail.WorstCase(30*time.Second))
	// Output:
	// waits alone: 30s
	// with attempts of 30 s: 3m0s
}
