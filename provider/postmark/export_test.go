package postmark

import (
	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
)

// JudgeForTest is judge for an answer that came whole.
func JudgeForTest(e dispatch.Evidence, body []byte, c dispatch.Content) (dispatch.Accepted, []string, error) {
	return judge(exchange.Answer{Status: e.Status, Body: body, Evidence: e}, c)
}

// FoundForTest is found for an answer that came whole.
func FoundForTest(e dispatch.Evidence, body []byte, key dispatch.Key, kept bool) (dispatch.Found, error) {
	return found(exchange.Answer{Status: e.Status, Body: body, Evidence: e}, key, kept)
}
