package infobip

import "github.com/seed-8098fbb7/dispatch"

func refused(s dispatch.Scope, why string) dispatch.Verdict {
	return dispatch.Verdict{Outcome: dispatch.Rejected, Scope: s, Reason: why}
}

func unknown(why string) dispatch.Verdict { return dispatch.Verdict{Reason: why} }

// The groups of statuses. Source: Infobip's registry of statuses, July 2026.
const (
	groupPending       = "1"
	groupUndeliverable = "2"
	groupDelivered     = "3"
	groupExpired       = "4"
	groupRejected      = "5"
)

// duplicate is the status of a message whose id was used before. It says that
// Infobip knows the id, not what became of the first message with it.
const duplicate = "23"

// codes are the status ids of group 5, which stand in the body of a 200.
// Source: Infobip's registry of statuses, July 2026. What isn't listed is
// unknown: a person sees it.
var codes = dispatch.Codes{
	"6":       refused(dispatch.Sender, "network is not covered"), // for this account: another provider may
	"8":       refused(dispatch.Message, "number has no country prefix"),
	"10":      refused(dispatch.Message, "recipient is on a do-not-disturb list"),
	"11":      refused(dispatch.Sender, "sender is not registered"),
	"12":      refused(dispatch.Account, "no credit"),
	"13":      refused(dispatch.Sender, "sender is blocked"),
	"14":      refused(dispatch.Message, "number is blocked"),
	"17":      refused(dispatch.Account, "prepaid package expired"),
	"18":      refused(dispatch.Account, "demo account"),
	"19":      refused(dispatch.Account, "account has no route"),
	"20":      refused(dispatch.Moment, "flooding filter"), // so many to the number in an hour
	"21":      unknown("system error"),                     // nothing says that the message was not taken
	duplicate: unknown("message id was used before"),
	"24":      refused(dispatch.Message, "user data header is invalid"),
	"25":      refused(dispatch.Message, "too long"),
	"51":      refused(dispatch.Message, "recipient is missing"),
	"52":      refused(dispatch.Message, "recipient is invalid"),
	"87":      refused(dispatch.Message, "blocked as fraud"),
	"100":     unknown("platform is unavailable"),
}

// kindOf is what a status tells, by group and id. Source: the same registry.
func kindOf(group, id string) dispatch.ReceiptKind {
	switch group {
	case groupPending:
		if id == "26" { // ACCEPTED
			return dispatch.Queued
		}
		return dispatch.Passed // 7 ENROUTE, 3 WAITING_DELIVERY
	case groupDelivered:
		if id == "2" { // to the operator; no handset confirmed it
			return dispatch.Passed
		}
		return dispatch.Delivered
	case groupUndeliverable, groupExpired:
		return dispatch.Undelivered
	case groupRejected:
		return dispatch.Failed
	}
	return dispatch.Noted
}
