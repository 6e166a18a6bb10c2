package vonage

import "github.com/seed-8098fbb7/dispatch"

// Verdicts, in short.
func moment(why string) dispatch.Verdict {
	return dispatch.Verdict{Outcome: dispatch.Rejected, Scope: dispatch.Moment, Reason: why}
}

func sender(why string) dispatch.Verdict {
	return dispatch.Verdict{Outcome: dispatch.Rejected, Scope: dispatch.Sender, Reason: why}
}

func account(why string) dispatch.Verdict {
	return dispatch.Verdict{Outcome: dispatch.Rejected, Scope: dispatch.Account, Reason: why}
}

func message(why string) dispatch.Verdict {
	return dispatch.Verdict{Outcome: dispatch.Rejected, Scope: dispatch.Message, Reason: why}
}

func unknown(why string) dispatch.Verdict { return dispatch.Verdict{Reason: why} }

// smsCodes are the statuses of the SMS API, which stand in the body of a 200,
// one for each part. Source: SMS API 1.5.1, x-errors; the same list is at
// https://developer.vonage.com/en/api-errors/sms. Not listed: 0, which is
// acceptance, and what Vonage may add, which is unknown.
var smsCodes = dispatch.Codes{
	"1":  moment("throttled"),
	"2":  message("a parameter is missing"),
	"3":  message("a parameter is invalid"),
	"4":  account("credentials refused"),
	"5":  unknown("internal error"), // nothing says that the message was not taken
	"6":  message("message can't be processed"),
	"7":  message("number is barred"),
	"8":  account("account is barred"),
	"9":  account("no credit"),
	"10": moment("too many connections"),
	"11": account("account is not enabled for HTTP"),
	"12": message("too long"),
	"14": account("signature refused"),
	"15": sender("sender is not allowed"),
	"17": message("blocked by the provider"),
	"22": message("network code is invalid"),
	"23": account("callback URL is invalid"),             // it is the same for every message
	"29": message("destination is not on the demo list"), // of an account in demo mode, by number
	"32": account("signature and secret both given"),
	"33": message("number is deactivated"),
}

// messagesCodes are the codes of the Messages API: the fragment of an error's
// type. Source of the numbers: Messages API 1.20.0, x-errors; of the words:
// the same document's 401 and 429 examples, and for low-balance Vonage's own
// SDK tests. The same codes come in status calls, where they say why a
// message that was accepted did not arrive.
var messagesCodes = dispatch.Codes{
	"unauthorized": account("credentials refused"),
	"low-balance":  account("no credit"),
	"throttled":    moment("throttled"),
	"invalid-json": account("request is not JSON"), // our encoding, not the message

	"1000": moment("throttled"),
	"1010": message("a parameter is missing"),
	"1020": message("a parameter is invalid"),
	"1021": message("tag is invalid"),
	"1022": message("template is invalid"),
	"1030": unknown("internal error"), // nothing says that the message was not taken
	"1040": message("message can't be processed"),
	"1050": message("number is barred"),
	"1060": account("account is barred"),
	"1070": account("quota exceeded"),
	"1080": account("account is not enabled for HTTP"),
	"1090": message("too long"),
	"1100": moment("not submitted, communication failed"), // "was not submitted"
	"1120": sender("sender is not allowed here"),
	"1130": account("ttl is invalid"), // it is the same for every message
	"1140": account("facility is not enabled"),
	"1150": message("a parameter is invalid"), // the table says message class, the examples params
	"1160": message("destination is not on the demo list"),
	"1170": message("recipient is invalid"),
	"1180": moment("destination temporarily unavailable"),
	"1240": message("recipient has opted out"),
	"1241": moment("too many sends to the number"),
	"1242": sender("number pool is not configured"),
	"1250": message("no route to the number"),
	"1251": message("no route to the network"),
	"1260": message("destination unreachable"),
	"1282": message("blocked by the provider"),
	"1320": unknown("sent before, says the provider"),
	"1330": unknown("delivery failed"),                 // an end of the delivery: it was taken
	"1331": unknown("provider is not responding"),      // so nobody says what it has
	"1360": unknown("expired before it was delivered"), // the same as 1330
	"1400": account("channel is not supported"),
	"1410": message("channel's parameters are invalid"),
	"1420": sender("sender is invalid"),
	"1430": message("recipient is invalid"),
	"1431": message("several recipients"),
	"1440": message("message type is not supported"),
	"1450": account("client reference is invalid"), // ours always has the same form
	"1460": moment("daily limit exceeded"),
	"1461": moment("provider limits the recipient's messages"),
	"1470": message("fraud rule"),
	"1472": moment("burst protection"),
	"1473": message("fraud protection"),
	"1474": message("country is blocked"),
	"1475": message("network is blocked"),
	"1476": sender("sender is on a do-not-originate list"),
	"1480": sender("entity id is missing or wrong"),
	"1481": sender("header id is missing or wrong"),
	"1482": sender("content id is missing or wrong"),
	"1483": sender("consent is missing"),
	"1484": sender("sender failed a regulatory check"),
	"2001": message("fraud protection"),
}

// temporary are codes of failed deliveries that may pass: a new message may
// arrive. Source: Messages API 1.20.0, x-errors; delivery receipts' error
// codes in Vonage's SMS guide, state of 2021. Every other code is taken as
// permanent, but for unclear ones.
var temporary = map[string]bool{
	"1100": true, "1180": true, "1220": true, "1230": true, "1290": true, "1331": true, "1360": true, "1472": true,
	"1460": true, "1461": true, "1241": true, "1000": true,
	"2": true, "7": true, "8": true, // absent, busy, network
}

// unclear are codes that don't say whether a failure stays: unknown and
// general errors, and a segment whose receipt never came.
var unclear = map[string]bool{"": true, "0": true, "1": true, "99": true, "1030": true, "1330": true, "1490": true}

func permanent(code string) bool { return !temporary[code] && !unclear[code] }
