package exchange_test

import (
	"testing"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
	"github.com/seed-8098fbb7/dispatch/provider/providertest"
)

// The adapter of the example keeps every rule.
func TestExampleAdapter(t *testing.T) {
	providertest.Run(t, providertest.Suite{
		Secrets: []string{"hunter2"},
		New: func(baseURL string) (dispatch.Provider, error) {
			client, err := exchange.New(exchange.Config{})
			return &closing{&acme{client: client, url: baseURL + "/messages", token: "hunter2"}}, err
		},
	})
}

type closing struct{ *acme }

func (c *closing) Close() { c.client.Close() }
