package twilio_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/providertest"
	"github.com/seed-8098fbb7/dispatch/provider/twilio"
)

func refusingDial(dialed *string) func(context.Context, string, string) (net.Conn, error) {
	return func(_ context.Context, _, addr string) (net.Conn, error) {
		*dialed = addr
		return nil, errors.New("refused")
	}
}

func noProxy(*http.Request) (*url.URL, error) { return nil, nil } //nolint:nilnil // no proxy, no error

// shape is Twilio's wire format over the suite's vendor. Its look-up isn't by
// key: it means the message that was sent last.
func shape() providertest.Options {
	var mu sync.Mutex
	last := "none"
	text := dispatch.SMS{To: "+15555550123", Body: "Your code is 482901"}
	document := func(id string) map[string]any {
		return stored{
			sid: "SM" + strings.Repeat("0", 26) + strings.TrimPrefix(id, "msg-"), to: text.To, from: "+15555550100", body: text.Body,
			status: "queued", direction: "outbound-api", created: time.Now(),
		}.document()
	}
	list := func(messages ...any) providertest.Answer {
		return providertest.JSON(200, map[string]any{"messages": append([]any{}, messages...), "next_page_uri": nil})
	}
	return providertest.Options{
		Key: func(_ *http.Request, body []byte) string {
			form, _ := url.ParseQuery(string(body)) // what can't be read has no key
			u, _ := url.Parse(form.Get("StatusCallback"))
			mu.Lock()
			defer mu.Unlock()
			if u != nil {
				last = u.Query().Get("dispatch_key")
			}
			return last
		},
		Shape: providertest.Shape{
			Accepted: func(id string, _ bool) providertest.Answer { return providertest.JSON(201, document(id)) },
			Refused: func(r providertest.Refusal) providertest.Answer {
				code, _ := strconv.Atoi(r.Code) // 0 is no code of Twilio's
				return providertest.JSON(r.Status, map[string]any{
					"code": code, "message": r.Message + " " + text.To, "more_info": "", "status": r.Status,
				})
			},
			LookupKey: func(r *http.Request) string {
				if r.Method != http.MethodGet || r.URL.Path != listPath {
					return ""
				}
				mu.Lock()
				defer mu.Unlock()
				return last
			},
			Found:   func(id string) providertest.Answer { return list(document(id)) },
			Missing: func() providertest.Answer { return list() },
		},
	}
}

func TestSuite(t *testing.T) {
	refused := func(s dispatch.Scope) providertest.Want {
		return providertest.Want{Outcome: dispatch.Rejected, Scope: s, Stage: dispatch.Answered}
	}
	s := providertest.Suite{
		Options: shape(), From: "+15555550100", Secrets: []string{authToken},
		New: func(baseURL string) (dispatch.Provider, error) {
			return twilio.New(twilio.Config{
				AccountSID: accountSID, AuthToken: authToken, BaseURL: baseURL, DistinctTexts: true, StatusCallback: "https://h.example.com/cb",
			})
		},
	}
	for code, w := range map[int]providertest.Want{
		20429: refused(dispatch.Moment), 21211: refused(dispatch.Message), 21606: refused(dispatch.Sender), 20003: refused(dispatch.Account),
		20500: {Stage: dispatch.Answered}, 29999: refused(dispatch.Message),
	} {
		s.More = append(s.More, providertest.Misbehaviour{
			Name: fmt.Sprint("code ", code), Want: w, Fault: providertest.Fault{Refuse: true, Code: strconv.Itoa(code)},
		})
	}
	s.More = append(s.More, providertest.Misbehaviour{ // B015
		Name: "failed in a 201", Want: refused(dispatch.Message),
		Fault: providertest.Fault{Refuse: true, Status: 201, Body: `{"sid":"SM1","status":"failed","error_code":39999}`},
	})
	providertest.Run(t, s)
}
