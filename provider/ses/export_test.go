package ses

import (
	"net/http"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
)

// JudgeForTest is judge for an answer that came whole.
func JudgeForTest(status int, h http.Header, body []byte) (dispatch.Accepted, error) {
	e := dispatch.Evidence{Stage: dispatch.Answered, Status: status}
	return judge(exchange.Answer{Status: status, Header: h, Body: body, Evidence: e})
}

// ReadForTest reads the message of a call that was proven to be SNS's.
func (p *Provider) ReadForTest(message string) ([]dispatch.Receipt, error) {
	return p.read(&envelope{Type: notification, Message: message})
}
