package exchange_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

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

// wire is a format of one's own: the key stands in the body, a look-up asks by
// it, and the id has another name.
var wire = providertest.Options{
	Key: func(_ *http.Request, body []byte) string {
		var doc struct {
			Reference string `json:"reference"`
		}
		_ = json.Unmarshal(body, &doc) // what can't be read has no key
		return doc.Reference
	},
	Shape: providertest.Shape{
		Accepted: func(id string, _ bool) providertest.Answer {
			return providertest.JSON(http.StatusOK, map[string]string{"message_id": id})
		},
		LookupKey: func(r *http.Request) string { return r.URL.Query().Get("reference") }, // "" for any other request
	},
}

// What the guide says of Options holds: the ledger, the answer and the look-up
// are in the vendor's own format.
func TestExampleWire(t *testing.T) {
	v, err := providertest.NewVendor(wire)
	require.NoError(t, err)
	defer v.Close()
	client, err := exchange.New(exchange.Config{})
	require.NoError(t, err)
	defer client.Close()
	answer, err := client.Do(t.Context(), exchange.Request{URL: v.URL + "/send", Body: []byte(`{"reference":"k"}`)})
	require.NoError(t, err)
	require.JSONEq(t, `{"message_id":"msg-000001"}`, string(answer.Body))
	require.Equal(t, 1, v.Deliveries("k"))
	answer, err = client.Do(t.Context(), exchange.Request{Method: http.MethodGet, URL: v.URL + "/status?reference=k"})
	require.NoError(t, err)
	require.JSONEq(t, `{"id":"msg-000001","status":"sent"}`, string(answer.Body))
}
