package smtp

import (
	"strconv"
	"strings"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

// step is where in the dialogue an answer came. Steps are a set in a rule.
type step int

const (
	atGreeting step = 1 << iota
	atHello
	atStartTLS
	atAuth
	atReset
	atMail
	atRcpt
	atData
	atBody // before the final dot
	atDot

	atEnvelope = atMail | atRcpt
	atMailing  = atReset | atMail | atRcpt | atData | atBody | atDot
	atAny      = atGreeting | atHello | atStartTLS | atAuth | atMailing
)

// rule is what a refusal means. The first one that fits counts: code is the
// answer's code or the beginning of it, detail subject and detail of its
// enhanced code, or a subject with its dot; empty fits each.
type rule struct {
	at      step
	code    string
	detail  string
	verdict dispatch.Verdict
}

// rules are what refusals mean. By the first digit a 4yz is the moment's and a
// 5yz the mail's; enhanced codes only tell whose fault a 5yz is, and words
// nothing (B077). Without one before the dot, or with any after it, nothing
// was accepted (RFC 5321 section 4.2.1: "the requested action did not occur").
var rules = []rule{
	{atHello, "450", "", mailapi.Account("EHLO name refused")},          // B087: a mailbox's code, for a name like "localhost"
	{atHello, "4", "7.", mailapi.Account("EHLO name refused")},          // RFC 3463 3.8: policy
	{atAuth, "454", "", mailapi.Moment("log-in can't be checked now")},  // RFC 4954 section 6
	{atAny, "421", "", mailapi.Moment("server closes the connection")},  // RFC 5321 section 3.8
	{atAuth, "", "", mailapi.Account("log-in refused")},                 // RFC 4954 section 6; vendors' 451 for spent credit
	{atAny, "4", "", mailapi.Moment("refused for now")},                 // RFC 5321 section 4.2.1
	{atGreeting, "5", "", mailapi.Account("server takes no mail here")}, // RFC 5321 section 3.1: 554
	{atHello, "5", "", mailapi.Account("EHLO refused")},                 // RFC 5321 section 4.1.1.1
	{atStartTLS, "5", "", mailapi.Account("STARTTLS refused")},          // RFC 3207 section 4

	{atMailing, "530", "", mailapi.Account("log-in or TLS required")},           // RFC 4954 section 6, RFC 3207 section 4
	{atMailing, "534", "", mailapi.Account("log-in refused")},                   // RFC 4954 section 6
	{atMailing, "535", "", mailapi.Account("log-in refused")},                   // RFC 4954 section 6
	{atMailing, "538", "", mailapi.Account("log-in needs TLS")},                 // RFC 4954 section 6
	{atMailing, "5", "7.8", mailapi.Account("log-in refused")},                  // RFC 4954 section 6
	{atMailing, "5", "7.9", mailapi.Account("log-in refused")},                  // RFC 4954 section 6
	{atMailing, "5", "7.10", mailapi.Account("encryption needed")},              // RFC 5248
	{atMailing, "5", "7.11", mailapi.Account("encryption needed")},              // RFC 4954 section 6
	{atMailing, "5", "7.13", mailapi.Account("account disabled")},               // RFC 5248
	{atMailing, "5", "7.25", mailapi.Account("reverse DNS check failed")},       // RFC 7372 section 3.3
	{atMailing, "5", "7.20", mailapi.Sender("no passing DKIM signature")},       // RFC 7372 section 3.1
	{atMailing, "5", "7.21", mailapi.Sender("no acceptable DKIM signature")},    // RFC 7372 section 3.1
	{atMailing, "5", "7.22", mailapi.Sender("no DKIM signature of the sender")}, // RFC 7372 section 3.1
	{atMailing, "5", "7.23", mailapi.Sender("SPF check failed")},                // RFC 7372 section 3.2
	{atMailing, "5", "7.24", mailapi.Sender("SPF check failed")},                // RFC 7372 section 3.2
	{atMailing, "5", "7.26", mailapi.Sender("authentication checks failed")},    // RFC 7372 section 3.4
	{atMailing, "5", "7.27", mailapi.Sender("sender's domain takes no mail")},   // RFC 7505 section 4.2
	{atMailing, "5", "1.7", mailapi.Sender("sender's address refused")},         // RFC 3463 section 3.2
	{atMailing, "5", "1.8", mailapi.Sender("sender's domain refused")},          // RFC 3463 section 3.2
	{atEnvelope, "5", "7.1", mailapi.Sender("sender may not send there")},       // RFC 3463 section 3.8; after the dot it is about the mail
	{atMailing, "500", "", mailapi.Account("command not understood")},           // RFC 5321 section 4.2.2
	{atMailing, "502", "", mailapi.Account("command not understood")},           // RFC 5321 section 4.2.2
	{atMailing, "503", "", mailapi.Account("command out of order")},             // RFC 5321 section 4.2.2; many for "log in first"
	{atMailing, "504", "", mailapi.Account("parameter not understood")},         // RFC 5321 section 4.2.2
	{atMailing, "555", "", mailapi.Account("parameter not understood")},         // RFC 5321 section 4.1.1.11
	{atMail, "550", "", mailapi.Sender("sender refused")},                       // RFC 5321 section 3.3
	{atMail, "553", "", mailapi.Sender("sender refused")},                       // RFC 5321 section 3.3
	{atRcpt, "552", "2.", mailapi.Message("recipient's mailbox refused")},       // RFC 3463 section 3.3: full, for one
	{atRcpt, "552", "", mailapi.Moment("too many recipients")},                  // RFC 5321 section 4.5.3.1.10
	{atRcpt, "5", "5.3", mailapi.Moment("too many recipients")},                 // RFC 3463 section 3.6
	{atRcpt, "5", "", mailapi.Message("recipient refused")},                     // RFC 5321 section 4.2.1
	{atMailing, "5", "3.4", mailapi.Message("mail is too large")},               // RFC 3463 section 3.4
	{atMailing, "5", "", mailapi.Message("mail refused")},                       // RFC 5321 section 4.2.1
}

// judge is the verdict on a 4yz or 5yz. No other answer comes here.
func judge(at step, r reply) dispatch.Verdict {
	code := strconv.Itoa(r.code)
	_, detail, _ := strings.Cut(r.enhanced, ".")
	for _, rule := range rules {
		subject := strings.HasSuffix(rule.detail, ".") && strings.HasPrefix(detail, rule.detail)
		if rule.at&at != 0 && strings.HasPrefix(code, rule.code) && (rule.detail == "" || rule.detail == detail || subject) {
			return rule.verdict
		}
	}
	return mailapi.Unknown("answer proves nothing")
}
