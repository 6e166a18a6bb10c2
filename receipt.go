package dispatch

import (
	"context"
	"log/slog"
	"strings"
	"time"
)

// Receipt is what a provider tells of a message after it was sent: one normal
// form for all vendors. It is a fact, not a command: a failed delivery never
// sends a message again.
type Receipt struct {
	// Provider and Account say whose word it is.
	Provider, Account string
	// EventKey makes the receipt unique at its provider, so that a repeat
	// changes nothing. Where a vendor varies its event ids, the adapter
	// computes it from message, kind and time.
	EventKey string
	// Key is our reference where the receipt carries it. ProviderID is the
	// provider's id of the message. At least one is needed.
	Key        Key
	ProviderID string
	// Kind is what happened.
	Kind ReceiptKind
	// Code is the vendor's code; Permanent tells that it will stay so.
	Code      string
	Permanent bool
	// At is when it happened by the vendor's clock, zero where it doesn't say.
	At time.Time
	// Recipient is whom it concerns in a message with several. It is stored,
	// and kept out of logs.
	Recipient string
}

// LogValue keeps the recipient out of logs.
func (r Receipt) LogValue() slog.Value {
	id := r.ProviderID
	if r.Recipient != "" && strings.Contains(id, strings.TrimPrefix(r.Recipient, "+")) {
		id = "names the recipient"
	}
	return slog.GroupValue(slog.String("provider", r.Provider), slog.String("key", r.Key.String()), slog.String("id", id),
		slog.String("kind", r.Kind.String()), slog.String("code", codeWord(r.Code)))
}

// ReceiptKind is what happened to a message after it was accepted. The numbers
// are stored.
type ReceiptKind int8

// The kinds. The zero value is Noted: a receipt of a kind that the adapter
// doesn't know still proves that the provider has the message.
const (
	Noted        ReceiptKind = 0
	Queued       ReceiptKind = 1 // the provider has it
	Passed       ReceiptKind = 2 // handed on to a carrier or mail server
	Deferred     ReceiptKind = 3 // the carrier or mail server put it off
	Delivered    ReceiptKind = 4 // handset or mailbox confirmed it
	Undelivered  ReceiptKind = 5 // it did not arrive
	Failed       ReceiptKind = 6 // the provider gave up on it
	Bounced      ReceiptKind = 7 // the mail server refused it
	Complained   ReceiptKind = 8 // the reader called it spam
	Unsubscribed ReceiptKind = 9
	Opened       ReceiptKind = 10
	Clicked      ReceiptKind = 11
)

var receiptKinds = [...]string{
	"noted", "queued", "passed", "deferred", "delivered", "undelivered", "failed", "bounced", "complained", "unsubscribed", "opened", "clicked",
}

func (k ReceiptKind) String() string {
	if k < 0 || int(k) >= len(receiptKinds) {
		return "unknown kind"
	}
	return receiptKinds[k]
}

// ReceiptSink takes receipts. A nil error means that all of them are stored
// and will not be needed again; on an error the vendor must repeat, so a
// webhook answers 503. An outbox.Box is one.
type ReceiptSink interface {
	Receive(ctx context.Context, receipts []Receipt) error
}
