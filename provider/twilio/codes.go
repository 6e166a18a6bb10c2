package twilio

import (
	"time"

	"github.com/seed-8098fbb7/dispatch"
)

// codes are the verdicts on Twilio's error codes, in an answer to a send: a
// refusal, or a message that failed at once. Codes are added without notice
// (OpenAPI document), so what isn't listed goes by the status: a 400 is final, a
// 5xx unknown.
//
// Unless a row says otherwise, what stands beside it is the code's title in
// Twilio's error dictionary (twilio.com/docs/api/errors), cut to its point.
var codes = dispatch.Codes{
	// Not processed; later or elsewhere it may be.
	"20429": moment("too many requests", 0),              // page 20429: never processed, always safe to repeat
	"21611": moment("the sender's queue is full", 0),     // page 21611: more than 10 h of messages wait at this sender
	"14107": moment("too many replies", 30*time.Second),  // 15 replies between two numbers in 30 s
	"63018": moment("channel's rate limit", 0),           //
	"35125": moment("too many scheduled messages", 0),    //
	"30001": moment("queue overflow", 0),                 // page 30001; also as a 400, google/exposure-notifications-verification-server#1568
	"30017": moment("carrier network congestion", 0),     //
	"30022": moment("10DLC campaign's rate exceeded", 0), //
	"20500": unknown("internal error"),                   // may have happened after the message was stored
	"20503": unknown("service unavailable"),              // the same
	"30410": unknown("provider time-out"),                // page 30410: Twilio doesn't repeat it, the handset may have it
	"10001": account("account is not active"),            //
	"10002": account("trial account lacks the feature"),  //
	"20003": account("authentication failed"),            // page 20003: also suspended, closed, or a key of another region
	"20005": account("account is not active"),            // page 20005: often out of funds
	"20006": account("access denied"),                    //
	"20008": account("test credentials"),                 // resource not accessible with them
	"20403": account("forbidden"),                        //
	"20404": account("not found"),                        // of a create: no such account under this URL
	"20426": account("upgrade required"),                 //
	"21609": account("status callback is no valid URL"),  // ours comes from the configuration: every message has it
	"30002": account("account suspended"),                //
	"63038": account("account's daily message limit"),    // until the next day
	"21212": sender("no valid sender"),                   //
	"21601": sender("sender can't send text messages"),   //
	"21603": sender("no sender given"),                   //
	"21606": sender("sender is not the account's"),       // or can't send messages
	"21607": sender("sender can't send here"),            //
	"21616": sender("sender matches several numbers"),    //
	"21657": sender("sender id is not valid"),            //
	"21701": sender("messaging service does not exist"),  //
	"21702": sender("messaging service not available"),   //
	"21703": sender("no number of the service fits"),     // none of its senders can reach this country or channel
	"21704": sender("messaging service has no numbers"),  //
	"21705": sender("messaging service is not valid"),    //
	"21709": sender("sender name is not authorized"),     //
	"35118": sender("scheduling needs a service"),        //
	"63007": sender("channel has no such sender"),        //
	"30018": sender("sender name needs registration"),    //
	"30023": sender("carrier's daily cap reached"),       // of the sender's brand, until midnight US Pacific
	"30024": sender("sender id is not provisioned"),      //
	"30027": sender("carrier's daily cap reached"),       // the same, of T-Mobile
	"30032": sender("toll-free number is not verified"),  //
	"30033": sender("10DLC campaign suspended"),          //
	"30034": sender("number without 10DLC registration"), //
	"30035": sender("number is still being configured"),  //
	"21408": sender("region is not enabled"),             // permission of this account; another provider may have it
	"21608": sender("trial account, unverified number"),  // the same
	"21612": sender("no way from this sender to there"),  // a pair; another sender may reach it
	"21211": message("no valid number"),                  //
	"21214": message("number can't be reached"),          //
	"21217": message("number does not look valid"),       //
	"21604": message("no number given"),                  //
	"21610": message("recipient opted out"),              // STOP: holds for the sender's other messages to it too
	"21614": message("no mobile number"),                 //
	"21635": message("landline"),                         // page 21635: outside US, CA and UK
	"21602": message("no text"),                          //
	"21605": message("text too long"),                    //
	"21617": message("text too long"),                    // above 1,600 characters
	"21618": message("text filtered by all carriers"),    //
	"21619": message("no text"),                          // nor media
	"21620": message("media URL is not valid"),           //
	"21621": message("media not possible"),               //
	"21622": message("media not possible"),               //
	"21623": message("too many media"),                   //
	"21624": message("validity period is not valid"),     //
	"21653": message("text is not valid"),                //
	"21654": message("content template not found"),       //
	"21655": message("content template is not valid"),    //
	"21656": message("content variables are not valid"),  //
	"21658": message("parameter too long"),               //
	"30409": message("can't be canceled"),                //
	"35111": message("time to send is not valid"),        //
	"35114": message("time to send is not valid"),        //
	"35115": message("time to send is not valid"),        //
	"35117": message("time to send is not valid"),        //
	"30003": message("handset unreachable"),              // 300xx here: it was created and failed; a repeat is the caller's choice
	"30004": message("blocked"),                          //
	"30005": message("unknown handset"),                  //
	"30006": message("landline or unreachable carrier"),  //
	"30007": message("filtered"),                         //
	"30008": message("failed for an unknown reason"),     //
	"30011": message("media not supported"),              //
	"30019": message("content too large"),                //
	"30036": message("validity period expired"),          //
	"30450": message("blocked as SMS pumping"),           //
	"30610": message("blocked by quiet hours"),           // Compliance Toolkit
	"30640": message("blocked, known litigator"),         // Compliance Toolkit
}

// lasting are the codes of a receipt that will be the same for every later
// message to this recipient, from this sender or with this text. A code that
// isn't listed is not known to last.
var lasting = map[string]bool{
	"21610": true, // opted out; comes with a receipt too, twilio/twilio-python#478
	"21211": true, "21614": true, "21635": true,
	"30004": true, // message blocked
	"30005": true, // unknown destination handset
	"30006": true, // landline or unreachable carrier
	"30007": true, // filtered
	"30011": true, // MMS not supported
	"30018": true, // sender id needs registration
	"30019": true, // content too large
	"30024": true, // sender id not provisioned
	"30032": true, // toll-free number not verified
	"30033": true, // campaign suspended
	"30034": true, // unregistered 10DLC number
	"30640": true, // known litigator
}

func moment(reason string, floor time.Duration) dispatch.Verdict {
	return dispatch.Verdict{Outcome: dispatch.Rejected, Scope: dispatch.Moment, Floor: floor, Reason: reason}
}

func account(reason string) dispatch.Verdict {
	return dispatch.Verdict{Outcome: dispatch.Rejected, Scope: dispatch.Account, Reason: reason}
}

func sender(reason string) dispatch.Verdict {
	return dispatch.Verdict{Outcome: dispatch.Rejected, Scope: dispatch.Sender, Reason: reason}
}

func message(reason string) dispatch.Verdict {
	return dispatch.Verdict{Outcome: dispatch.Rejected, Scope: dispatch.Message, Reason: reason}
}

func unknown(reason string) dispatch.Verdict {
	return dispatch.Verdict{Outcome: dispatch.Unknown, Reason: reason}
}
