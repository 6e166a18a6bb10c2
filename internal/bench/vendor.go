package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// vendor is a messaging API in this process that accepts everything after a
// while, and counts keys.
type vendor struct {
	url    string
	delay  time.Duration
	server *http.Server
	ended  chan error

	mu   sync.Mutex
	keys map[string]int
	ids  int
}

func newVendor(ctx context.Context, delay time.Duration) (*vendor, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	v := &vendor{url: "http://" + l.Addr().String(), delay: delay, keys: map[string]int{}, ended: make(chan error, 1)}
	v.server = &http.Server{Handler: http.HandlerFunc(v.accept), ReadHeaderTimeout: time.Minute}
	go func() { v.ended <- v.server.Serve(l) }()
	return v, nil
}

func (v *vendor) close() error {
	err := v.server.Close()
	if e := <-v.ended; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}

func (v *vendor) accept(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<16))
	if err != nil || key == "" || len(body) < payload || r.Method != http.MethodPost || r.URL.Path != path {
		http.Error(w, "{}", http.StatusBadRequest)
		return
	}
	v.mu.Lock()
	v.keys[key]++
	v.ids++
	id := strconv.Itoa(v.ids)
	v.mu.Unlock()
	if v.delay > 0 {
		t := time.NewTimer(v.delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-r.Context().Done():
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"id":"` + id + `","status":"queued"}`)) // a broken connection shows at the client
}

// check returns an error unless n keys came once each.
func (v *vendor) check(n int) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, times := range v.keys {
		if times != 1 {
			return fmt.Errorf("vendor got a key %d times", times)
		}
	}
	if len(v.keys) != n {
		return fmt.Errorf("vendor got %d keys, want %d", len(v.keys), n)
	}
	return nil
}

const path = "/v1/messages"

// client is what a careful user of a job queue would write: one transport with
// a connection for every slot, and an answer that is read and checked.
func (v *vendor) client(slots int) (post func(ctx context.Context, key, text string) error, closeIdle func()) {
	t := &http.Transport{MaxIdleConns: slots, MaxIdleConnsPerHost: slots, MaxConnsPerHost: slots}
	c := &http.Client{Transport: t, Timeout: 30 * time.Second}
	return func(ctx context.Context, key, text string) error {
		body, err := json.Marshal(smsArgs{To: recipient, Body: text})
		if err != nil {
			return err
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, v.url+path, bytes.NewReader(body))
		if err != nil {
			return err
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", key)
		answer, err := c.Do(r)
		if err != nil {
			return err
		}
		defer func() { _ = answer.Body.Close() }()
		b, err := io.ReadAll(io.LimitReader(answer.Body, 1<<16))
		if err != nil {
			return err
		}
		var got struct {
			ID string `json:"id"`
		}
		if err := json.Unmarshal(b, &got); err != nil {
			return err
		}
		if answer.StatusCode != http.StatusOK || got.ID == "" {
			return fmt.Errorf("vendor answered %d", answer.StatusCode)
		}
		return nil
	}, t.CloseIdleConnections
}
