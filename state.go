package dispatch

// State is where a message stands. The numbers are stored.
type State int8

// The states. Pending, Sending and InDoubt are in motion; Held and Dead are
// parked for a person to look at; Sent, Cancelled and Dead are final, though
// late truth may still turn any of them into Sent.
const (
	// Pending waits for its next send, and nothing of it may have been accepted
	// except what was knowingly waived.
	Pending State = 1
	// Sending is claimed by a worker.
	Sending State = 2
	// InDoubt ("unknown") may have been accepted and is being reconciled.
	InDoubt State = 3
	// Held may have been accepted, and only a person can say.
	Held State = 4
	// Dead ended without acceptance that is known of; its Reason says why.
	Dead State = 5
	// Sent was accepted by a provider, which is not delivery.
	Sent State = 6
	// Cancelled was never accepted and never will be sent.
	Cancelled State = 7
)

func (s State) String() string {
	switch s {
	case Pending:
		return "pending"
	case Sending:
		return "sending"
	case InDoubt:
		return "unknown"
	case Held:
		return "held"
	case Dead:
		return "dead"
	case Sent:
		return "sent"
	case Cancelled:
		return "cancelled"
	}
	return "no state"
}

// Reason is why a message is dead or held. The numbers are stored.
type Reason int8

// The reasons. The zero value is for states that need none.
const (
	NoReason Reason = 0
	// ReasonRejected: the provider refused the message, or every sender.
	ReasonRejected Reason = 1
	// ReasonBudget: its attempts are spent and nothing was accepted.
	ReasonBudget Reason = 2
	// ReasonDeadline: it stopped making sense before it could be sent.
	ReasonDeadline Reason = 3
	// ReasonUnresolved: it may have been accepted.
	ReasonUnresolved Reason = 4
	// ReasonSuperseded: another message took its place, and it may have been
	// accepted.
	ReasonSuperseded Reason = 5
	// ReasonDropped: the application's Before hook dropped it.
	ReasonDropped Reason = 6
	// ReasonChanged: a repeat would have been other bytes than the attempt
	// that may have been accepted, or the provider says that it was.
	ReasonChanged Reason = 7
)

func (r Reason) String() string {
	switch r {
	case NoReason:
		return ""
	case ReasonRejected:
		return "rejected"
	case ReasonBudget:
		return "budget"
	case ReasonDeadline:
		return "deadline"
	case ReasonUnresolved:
		return "unresolved"
	case ReasonSuperseded:
		return "superseded"
	case ReasonDropped:
		return "dropped"
	case ReasonChanged:
		return "changed"
	}
	return "unknown reason"
}
