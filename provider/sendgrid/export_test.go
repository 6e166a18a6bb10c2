package sendgrid

import (
	"net/http"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
)

func answer(status int, h http.Header, body []byte) exchange.Answer {
	return exchange.Answer{Status: status, Header: h, Body: body, Evidence: dispatch.Evidence{Stage: dispatch.Answered, Status: status}}
}

// JudgeForTest is judge for an answer that came whole.
func JudgeForTest(status int, h http.Header, body []byte) (dispatch.Accepted, error) {
	return judge(answer(status, h, body))
}

// DetailForTest is detail for an answer that came whole.
func DetailForTest(body []byte, key dispatch.Key) dispatch.Found {
	return detail(answer(http.StatusOK, nil, body), key)
}

// SignedForTest checks a signature without its time.
func SignedForTest(key, at string, body, signature []byte) bool {
	k, err := publicKey(key)
	return err == nil && signed(k, at, body, signature)
}
