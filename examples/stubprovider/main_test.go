package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The program takes messages, loses every second answer after taking the
// message, tells the ledger, and ends when it is told to.
func TestRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, in, "127.0.0.1:0", 0, 0, 2)
		_ = in.Close()
	}()
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	url, ok := strings.CutPrefix(lines.Text(), "listening on ")
	require.True(t, ok)
	last := make(chan string, 1)
	go func() {
		var line string
		for lines.Scan() {
			line = lines.Text()
		}
		last <- line
	}()

	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for _, lost := range []bool{false, true} {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/messages", strings.NewReader("{}"))
		require.NoError(t, err)
		req.GetBody = nil // or net/http sends it again by itself
		req.Header.Set("Idempotency-Key", "k")
		resp, err := client.Do(req)
		require.Equal(t, lost, err != nil)
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
	require.JSONEq(t, `{"key":"k","deliveries":2,"calls":2}`, string(b))

	cancel()
	require.NoError(t, <-done)
	require.Equal(t, "1 keys, 2 calls", <-last)
	require.ErrorContains(t, run(t.Context(), io.Discard, "", 0, 0, -1), "-lose")
}
