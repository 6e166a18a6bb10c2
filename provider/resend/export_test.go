package resend

import (
	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
)

// JudgeForTest is judge for an answer that came whole.
func JudgeForTest(status int, body []byte) (dispatch.Accepted, error) {
	return judge(exchange.Answer{Status: status, Body: body, Evidence: dispatch.Evidence{Stage: dispatch.Answered, Status: status}})
}
