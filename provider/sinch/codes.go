package sinch

import "github.com/seed-8098fbb7/dispatch"

func refused(s dispatch.Scope, why string) dispatch.Verdict {
	return dispatch.Verdict{Outcome: dispatch.Rejected, Scope: s, Reason: why}
}

// codes are the error codes of the batches API. Source: the API reference's
// error codes (and those of its predecessor, CLX, for the three of 403). What
// isn't listed goes by the status: 400 is the message's, 401, 402 and 403 the
// account's, 429 a moment's, 5xx unknown.
var codes = dispatch.Codes{
	"syntax_invalid_json":             refused(dispatch.Account, "request is not JSON"), // our encoding, not the message
	"syntax_invalid_parameter_format": refused(dispatch.Message, "a parameter's format is invalid"),
	"syntax_constraint_violation":     refused(dispatch.Message, "a parameter breaks a rule"),
	"unknown_group":                   refused(dispatch.Message, "recipient is no number"),
	"unknown_campaign":                refused(dispatch.Account, "campaign is not known"),
	"missing_callback_url":            refused(dispatch.Account, "callback URL is missing"),
	"too-many-requests":               refused(dispatch.Moment, "throttled"),
}

// kinds are the statuses of delivery reports. Source: SDK sinch-sdk-java and
// the page "Delivery reports". "Unknown" and others are Noted.
var kinds = map[string]dispatch.ReceiptKind{
	"Queued":     dispatch.Queued,
	"Dispatched": dispatch.Passed, // to the carrier; it may be left out
	"Delivered":  dispatch.Delivered,
	"Failed":     dispatch.Undelivered, // by the carrier or on the handset
	"Expired":    dispatch.Undelivered,
	"Rejected":   dispatch.Failed, // by Sinch or the carrier
	"Aborted":    dispatch.Failed,
	"Cancelled":  dispatch.Failed,
	"Deleted":    dispatch.Failed,
}

// temporary are report codes of failures that may pass: a new message may
// arrive. Source: sinch-sdk-java and the page "Delivery report error codes".
// 403 internal error, 404 temporary failure, 406 expired, 413 account blocked.
var temporary = map[string]bool{"403": true, "404": true, "406": true, "413": true}

// unclear are codes that don't say whether a failure stays: none, delivered,
// queued, dispatched.
var unclear = map[string]bool{"": true, "0": true, "400": true, "401": true}

func permanent(code string) bool { return !temporary[code] && !unclear[code] }
