package mailgun

import (
	"encoding/hex"
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

// FoundForTest is found for an answer that came whole.
func FoundForTest(status int, body []byte, id string, sure bool) (dispatch.Found, error) {
	return found(answer(status, nil, body), id, sure)
}

// SignForTest is sign, in hex.
func SignForTest(key, at, token string) string { return hex.EncodeToString(sign(key, at, token)) }
