package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
	"github.com/seed-8098fbb7/dispatch/provider/httpapi"
	"github.com/seed-8098fbb7/dispatch/provider/providertest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// proxied returns a Toxiproxy in front of the vendor and its URL.
func proxied(t *testing.T, v *providertest.Vendor) (*toxiproxy.Proxy, string) {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := toxiproxy.NewProxy(server, "vendor", "127.0.0.1:0", v.URL[len("http://"):])
	require.NoError(t, p.Start())
	t.Cleanup(p.Stop)
	return p, "http://" + p.Listen
}

// swallow is the mission's toxic: timeout with timeout=0 on the way back. The
// vendor gets every request and nothing ever comes back.
func swallow(t *testing.T, p *toxiproxy.Proxy) {
	t.Helper()
	_, err := p.Toxics.AddToxicJson(bytes.NewReader([]byte(
		`{"name":"silence","type":"timeout","stream":"downstream","toxicity":1.0,"attributes":{"timeout":0}}`)))
	require.NoError(t, err)
}

func clear(t *testing.T, p *toxiproxy.Proxy) {
	t.Helper()
	require.NoError(t, p.Toxics.RemoveToxic(context.Background(), "silence"))
}

// One logical send through the silence: the vendor delivers once, the row ends
// as sent, and it took more than one attempt. With keep-alive the client's own
// read deadline fires; where the vendor closes after each answer, the same
// toxic shows as an end of the connection. Both are unknown.
func TestSilenceAfterAccept(t *testing.T) {
	for name, header := range map[string]http.Header{"keep-alive": nil, "closed after each answer": {"Connection": {"close"}}} {
		t.Run(name, func(t *testing.T) {
			v, err := providertest.NewVendor(providertest.Options{
				Dedupe: time.Hour,
				Fault:  func(providertest.Call) providertest.Fault { return providertest.Fault{Header: header} },
			})
			require.NoError(t, err)
			t.Cleanup(v.Close)
			proxy, url := proxied(t, v)

			pool, schema := pgtest.Pool(t)
			policy := dispatch.SMSPolicy()
			policy.Backoff = dispatch.Backoff{Base: 20 * time.Millisecond, Cap: 200 * time.Millisecond}
			box, err := outbox.New(pool, outbox.Config{
				Schema: schema, Routes: []dispatch.Route{{Name: "sms", Providers: []string{"stub"}, Policy: policy}},
			})
			require.NoError(t, err)
			require.NoError(t, box.Migrate(t.Context()))
			stub, err := httpapi.New(httpapi.Config{
				Name: "stub", BaseURL: url, Window: time.Hour, Exchange: exchange.Config{Answer: 300 * time.Millisecond},
			})
			require.NoError(t, err)
			t.Cleanup(stub.Close)
			worker, err := outbox.NewWorker(box, outbox.WorkerConfig{
				Providers: []dispatch.Provider{stub},
			})
			require.NoError(t, err)
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- worker.Run(ctx) }()

			swallow(t, proxy)
			key := dispatch.NewKey()
			require.NoError(t, box.InTx(t.Context(), func(tx pgx.Tx) error {
				_, err := box.Enqueue(t.Context(), tx, dispatch.Intent{
					Key: key, Content: dispatch.SMS{To: "+15555550123", Body: "Your code is 482901"},
				})
				return err
			}))
			require.Eventually(t, func() bool { return len(v.Calls(key.String())) >= 2 }, 20*time.Second, 5*time.Millisecond)
			require.Equal(t, 1, v.Deliveries(key.String()))
			clear(t, proxy)

			var h outbox.History
			require.Eventually(t, func() bool {
				h, err = box.History(t.Context(), key)
				require.NoError(t, err)
				return h.State == dispatch.Sent
			}, 20*time.Second, 5*time.Millisecond)
			require.Equal(t, 1, v.Deliveries(key.String()), "%s", h)
			require.Greater(t, h.Attempts, 1)
			require.Equal(t, dispatch.Unknown, h.Events[0].Outcome)
			t.Log(h)
			stop()
			require.NoError(t, <-done)
		})
	}
}

// The counter-proof: the loop that takes silence for a failure moves the
// counter on every try.
func TestNaiveLoopMovesTheCounter(t *testing.T) {
	v, err := providertest.NewVendor(providertest.Options{Dedupe: time.Hour})
	require.NoError(t, err)
	t.Cleanup(v.Close)
	proxy, url := proxied(t, v)
	swallow(t, proxy)
	client := &http.Client{Timeout: 200 * time.Millisecond}
	for range 4 {
		res, err := client.Post(url+"/v1/messages", "application/json", bytes.NewReader([]byte(`{"to":"+15555550123","body":"x"}`)))
		if err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
		require.Error(t, err)
	}
	require.Equal(t, 4, v.Deliveries(""))
}
