package dispatch

import (
	"log/slog"
	"time"
)

// Intent is one logical message that the application decided to send. Key,
// content, route and everything else in it are frozen when it is enqueued.
type Intent struct {
	// Key names the message. It is required and never minted for the caller.
	Key Key
	// Route is the name of the route to take. It may be empty where the box
	// has only one.
	Route string
	// Content is the message: an SMS or an Email.
	Content Content

	// ValidFor is how long the message makes sense, counted from the enqueue
	// by the database's clock. Zero means the policy's default, Never no end.
	// Nothing is sent after it.
	ValidFor time.Duration
	// Deadline is the same as an instant. Setting both is an error.
	Deadline time.Time
	// NotBefore is the earliest moment to send; zero means at once.
	NotBefore time.Time
	// Priority orders the messages of all routes; zero means the route's.
	Priority Priority
	// Provider pins the message to one provider of its route, for a drill.
	// Empty means the route decides.
	Provider string
	// OnUnknown says what happens when it can't be found out whether the
	// message was accepted; zero means the policy's.
	OnUnknown OnUnknown
	// Notify says which events the application's hook wants to hear of; zero
	// means none.
	Notify Notify
	// Template is the evidence of what the content was rendered from.
	Template Template
	// Metadata is kept beside the message and handed to the adapter. At most
	// MaxMetadata bytes in all.
	Metadata map[string]string
	// TraceParent carries the W3C trace context from the enqueue to the send.
	TraceParent string
	// Linked is an older message that this one repeats or corrects, as
	// evidence; zero means none.
	Linked Key
}

// LogValue keeps recipient, text and metadata out of logs.
func (i Intent) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("key", i.Key.String()), slog.String("route", i.Route)}
	if i.Content != nil {
		attrs = append(attrs, slog.Any("content", i.Content))
	}
	return slog.GroupValue(attrs...)
}

// Never as a ValidFor writes down that a message has no deadline.
const Never time.Duration = -1

// Priority orders claims between messages. It is not a number to tune: a
// login code is High, a newsletter Low.
type Priority int8

// The priorities. The zero value is the route's, and for a route Normal. Their
// numbers are stored.
const (
	High   Priority = 1
	Normal Priority = 2
	Low    Priority = 3
)

func (p Priority) String() string {
	switch p {
	case 0:
		return "default"
	case High:
		return "high"
	case Normal:
		return "normal"
	case Low:
		return "low"
	}
	return "unknown priority"
}

// Notify is a set of events that the application's hook is told of.
type Notify int16

// The events.
const (
	NotifySent Notify = 1 << iota
	NotifyDead
	NotifyHeld
	NotifyCancelled
	NotifyUndelivered
	NotifyDelivered

	notifyAll = NotifySent | NotifyDead | NotifyHeld | NotifyCancelled | NotifyUndelivered | NotifyDelivered
)

// Template names the revision of the application's own template that the
// content was rendered from. It is evidence; nothing is rendered again.
type Template struct{ Name, Revision string }

// OnUnknown says what happens to a message whose acceptance can't be found
// out in the time in which it could have been.
type OnUnknown struct {
	// Action is what happens; zero means the policy's.
	Action UnknownAction
	// After, where set, comes earlier than the end of that time: for codes
	// that are worthless in a minute. Counted from the send that made the
	// message uncertain.
	After time.Duration
}

// UnknownAction is a choice for a message that may or may not have been
// accepted.
type UnknownAction int8

// The actions. Resend and Failover may deliver a message twice: choosing one
// accepts that, and is recorded with the message. Their numbers are stored.
const (
	// UnknownHold keeps the message visibly for a person. The default of all
	// policies.
	UnknownHold UnknownAction = 1
	// UnknownResend sends it again, through any provider of the route.
	UnknownResend UnknownAction = 2
	// UnknownFailover sends it through another provider of the route.
	UnknownFailover UnknownAction = 3
	// UnknownDead ends it as dead, unresolved.
	UnknownDead UnknownAction = 4
)

func (a UnknownAction) String() string {
	switch a {
	case 0:
		return "default"
	case UnknownHold:
		return "hold"
	case UnknownResend:
		return "resend"
	case UnknownFailover:
		return "failover"
	case UnknownDead:
		return "dead"
	}
	return "unknown action"
}
