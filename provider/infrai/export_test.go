package infrai

import (
	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
)

func answer(status int, body []byte) exchange.Answer {
	return exchange.Answer{Status: status, Body: body, Evidence: dispatch.Evidence{Stage: dispatch.Answered, Status: status}}
}

// JudgeForTest is judge for an answer that came whole.
func JudgeForTest(status int, body []byte) (dispatch.Accepted, error) {
	return judge(answer(status, body))
}

// ReadForTest is read for an answer that came whole.
func (p *Provider) ReadForTest(status int, body []byte) ([]dispatch.Receipt, string, error) {
	return p.read(answer(status, body))
}
