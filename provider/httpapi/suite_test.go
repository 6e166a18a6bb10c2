package httpapi_test

import (
	"testing"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/httpapi"
	"github.com/seed-8098fbb7/dispatch/provider/providertest"
)

func suite(change func(*httpapi.Config)) providertest.Suite {
	return providertest.Suite{
		Secrets: []string{"hunter2"},
		New: func(baseURL string) (dispatch.Provider, error) {
			cfg := httpapi.Config{Name: "acme", BaseURL: baseURL, Token: "hunter2"}
			change(&cfg)
			return httpapi.New(cfg)
		},
	}
}

// The suite for an API that dedupes and can be asked, and for one that can't.
func TestSuite(t *testing.T) {
	t.Run("dedupes", func(t *testing.T) {
		providertest.Run(t, suite(func(c *httpapi.Config) {
			c.Window, c.LookupPath, c.QuoteKey = time.Hour, "/v1/messages/{key}", true
		}))
	})
	t.Run("plain", func(t *testing.T) {
		providertest.Run(t, suite(func(*httpapi.Config) {}))
	})
	t.Run("verdict in the body", func(t *testing.T) {
		s := suite(func(c *httpapi.Config) { c.BodyDecides, c.SendKey = true, true })
		s.Want = map[string]providertest.Want{}
		for _, name := range []string{
			"body cut after acceptance", "body stalls after acceptance", "endless body after acceptance", "unreadable body after acceptance",
		} {
			s.Want[name] = providertest.Want{Stage: dispatch.Answered}
		}
		providertest.Run(t, s)
	})
}
