package vonage_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/providertest"
	"github.com/seed-8098fbb7/dispatch/provider/vonage"
)

// suite is the conformance suite in Vonage's wire format. In both APIs the
// verdict is in the body: without one, a 2xx is unknown.
func suite(api vonage.API, shape providertest.Shape, key func(*http.Request, []byte) string) providertest.Suite {
	s := providertest.Suite{
		New: func(baseURL string) (dispatch.Provider, error) {
			cfg := config()
			cfg.API, cfg.BaseURL = api, baseURL
			return vonage.New(cfg)
		},
		Options: providertest.Options{Key: key, Shape: shape},
		From:    "Shop",
		Secrets: []string{apiSecret, secret},
		Want:    map[string]providertest.Want{},
	}
	for _, name := range []string{
		"body cut after acceptance", "body stalls after acceptance", "endless body after acceptance", "unreadable body after acceptance",
	} {
		s.Want[name] = providertest.Want{Stage: dispatch.Answered}
	}
	return s
}

func refusal(r providertest.Refusal) providertest.Answer {
	a := providertest.JSON(r.Status, map[string]string{
		"type": "https://developer.vonage.com/api-errors/messages#" + r.Code, "title": "Refused", "detail": r.Message, "instance": "1",
	})
	a.Header.Set("Content-Type", "application/problem+json")
	return a
}

func TestMessagesSuite(t *testing.T) {
	providertest.Run(t, suite(vonage.Messages, providertest.Shape{
		Accepted: func(id string, _ bool) providertest.Answer {
			return providertest.JSON(http.StatusAccepted, map[string]string{"message_uuid": id})
		},
		Refused: refusal,
	}, func(_ *http.Request, body []byte) string {
		var m struct {
			Ref string `json:"client_ref"`
		}
		_ = json.Unmarshal(body, &m) // no reference: no key
		return m.Ref
	}))
}

func TestSMSSuite(t *testing.T) {
	providertest.Run(t, suite(vonage.SMS, providertest.Shape{
		Accepted: func(id string, _ bool) providertest.Answer {
			return providertest.JSON(http.StatusOK, map[string]any{
				"message-count": "1", "messages": []any{map[string]string{"to": "15555550123", "message-id": id, "status": "0"}},
			})
		},
		Refused: func(r providertest.Refusal) providertest.Answer {
			if r.Status != http.StatusBadRequest {
				return refusal(r) // not from the API, which says 200 to everything
			}
			return providertest.JSON(http.StatusOK, map[string]any{
				"message-count": "1", "messages": []any{map[string]string{"status": "6", "error-text": r.Message}},
			})
		},
	}, func(_ *http.Request, body []byte) string {
		form, _ := url.ParseQuery(string(body)) // no reference: no key
		return form.Get("client-ref")
	}))
}
