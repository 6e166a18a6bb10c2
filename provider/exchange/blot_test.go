package exchange_test

import (
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch/provider/exchange"
)

// A vendor that answers with our credentials brings them nowhere.
func TestAnswersDoNotQuoteCredentials(t *testing.T) {
	const token = "sk/sentinel-0123"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		w.Header().Set("X-Message-Id", r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write(append(sent, []byte(" sk\\/sentinel-0123 "+token+" "+r.Header.Get("Authorization")+" "+r.Header.Get("X-Api-Key")+" AC123 short "+r.Header.Get("Key"))...))
	}))
	defer server.Close()
	client, err := exchange.New(exchange.Config{})
	require.NoError(t, err)
	defer client.Close()
	basic := base64.StdEncoding.EncodeToString([]byte("AC123:" + token))
	for auth, want := range map[string]string{
		"Bearer " + token: "body [credential] [credential] Bearer [credential] [credential] AC123 short the-key-of-it",
		"Basic " + basic:  "body [credential] [credential] Basic [credential] [credential] AC123 short the-key-of-it",
		token:             "body [credential] [credential] [credential] [credential] AC123 short the-key-of-it",
	} {
		a, err := client.Do(t.Context(), exchange.Request{
			URL: server.URL, Body: []byte("body"), KeyHeader: "Key", Key: "the-key-of-it",
			Header: http.Header{"X-Api-Key": {"header-secret"}, "Content-Type": {"text/plain"}},
			Auth:   http.Header{"Authorization": {auth}, "X-Short": {"short"}, "Date": {"Mon, 30 Nov 2026 07:00:00 GMT"}},
		})
		require.NoError(t, err)
		assert.Equal(t, want, string(a.Body))
		assert.NotContains(t, a.Header.Get("X-Message-Id"), "sentinel")
		assert.Equal(t, http.StatusUnauthorized, a.Status)
	}
}
