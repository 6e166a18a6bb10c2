package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The program takes messages, loses every second answer after taking the
// message, tells of each call and the ledger, and ends when it is told to.
func TestRun(t *testing.T) {
	for dedupe, want := range map[time.Duration]struct {
		ledger string
		lines  []string
	}{
		0:         {`{"key":"k","deliveries":2,"calls":2}`, []string{"call 1: key k, delivered", "call 2: key k, delivered, answer lost", "call 3: no key, delivered"}},
		time.Hour: {`{"key":"k","deliveries":1,"calls":2}`, []string{"call 1: key k, delivered", "call 2: key k, known, not delivered again, answer lost", "call 3: no key, delivered"}},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		out, in := io.Pipe()
		done := make(chan error, 1)
		go func() {
			done <- run(ctx, in, "127.0.0.1:0", dedupe, 0, 2)
			_ = in.Close()
		}()
		lines := bufio.NewScanner(out)
		require.True(t, lines.Scan())
		url, ok := strings.CutPrefix(lines.Text(), "listening on ")
		require.True(t, ok)
		told := make(chan []string, 1)
		go func() {
			var all []string
			for lines.Scan() {
				all = append(all, lines.Text())
			}
			told <- all
		}()

		client := &http.Client{Transport: &http.Transport{}}
		for n, key := range []string{"k", "k", ""} {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/messages", strings.NewReader(`{"to":"+15555550123"}`))
			require.NoError(t, err)
			req.GetBody = nil // or net/http sends it again by itself
			if key != "" {
				req.Header.Set("Idempotency-Key", key)
			}
			resp, err := client.Do(req)
			require.Equal(t, n == 1, err != nil)
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/deliveries/k", http.NoBody)
		require.NoError(t, err)
		resp, err := client.Do(req)
		require.NoError(t, err)
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		_ = resp.Body.Close()
		client.CloseIdleConnections()
		require.JSONEq(t, want.ledger, string(b))

		cancel()
		require.NoError(t, <-done)
		all := <-told
		require.Equal(t, append(want.lines, "1 keys, 3 calls"), all[2:], "nothing of the message")
	}
	require.ErrorContains(t, run(t.Context(), io.Discard, "", 0, 0, -1), "-lose")
}
