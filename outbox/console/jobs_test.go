package console_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
)

// dead leaves n dead messages.
func (d *desk) dead(n int) {
	d.t.Helper()
	bodies := make([]string, n)
	for i := range bodies {
		bodies[i] = "refused"
	}
	work(d.t, d.box, dispatch.Dead, enqueue(d.t, d.box, bodies...)...)
}

func (d *desk) count(state dispatch.State) int {
	d.t.Helper()
	s, err := d.box.Stats(context.WithoutCancel(d.t.Context()))
	require.NoError(d.t, err)
	return int(s.Total(state).Count)
}

func (d *desk) start(form url.Values) (path string) {
	d.t.Helper()
	got := d.post("jobs", form)
	require.Equal(d.t, http.StatusSeeOther, got.status, got.body)
	return strings.TrimPrefix(got.header.Get("Location"), "./")
}

// A bulk action goes through all that its filter means, tells how far it is, and
// at the end what became of them.
func TestJobTellsHowFarItIs(t *testing.T) {
	d := newDesk(t, nil)
	d.dead(30)
	path := d.start(url.Values{"verb": {"retry"}, "state": {"dead"}, "reason": {"rejected"}, "route": {"sms"}, "why": {"<mended>"}})
	var page answer
	require.Eventually(t, func() bool {
		page = d.get(path)
		require.Equal(t, http.StatusOK, page.status)
		running := strings.Contains(page.body, `http-equiv="refresh"`)
		require.Equal(t, running, strings.Contains(page.body, "Stop</button>"))
		return !running
	}, time.Minute, 5*time.Millisecond)
	require.Contains(t, page.body, "done: 30 of 30 messages")
	require.Contains(t, page.body, "&lt;mended&gt;")
	require.Equal(t, 0, d.count(dispatch.Dead))
	require.Equal(t, 30, d.count(dispatch.Pending))
	require.Contains(t, d.get("jobs").body, "done, 30 messages")
}

// What is held is resolved as the provider's word has it, all at once.
func TestJobResolves(t *testing.T) {
	d := newDesk(t, nil)
	for verb, want := range map[string]dispatch.State{"accepted": dispatch.Sent, "not-accepted": dispatch.Pending} {
		keys := enqueue(t, d.box, "lost 1", "lost 2", "lost 3")
		work(t, d.box, dispatch.Held, keys...)
		require.Contains(t, d.get("messages?state=held").body, `value="`+verb+`"`)
		path := d.start(url.Values{"verb": {verb}, "state": {"held"}, "why": {"by their list"}})
		require.Eventually(t, func() bool { return strings.Contains(d.get(path).body, "done: 3 of 3 messages") }, time.Minute, 5*time.Millisecond)
		for _, key := range keys {
			h := stateOf(t, d.box, key)
			require.Equal(t, want, h.State)
			last := h.Events[len(h.Events)-1]
			require.Equal(t, []string{"ada", "by their list"}, []string{last.By, last.Why})
		}
		require.Equal(t, http.StatusBadRequest, d.post("jobs", url.Values{"verb": {verb}, "state": {"dead"}, "why": {"x"}}).status)
	}
}

// A bulk action that waits for a lock is stopped: it ends, says by whom, and
// what it didn't get to stays as it was. A closed console starts none.
func TestJobIsStopped(t *testing.T) {
	d := newDesk(t, nil)
	d.dead(12)
	unlock := d.lock()
	form := func() url.Values { return url.Values{"verb": {"retry"}, "state": {"dead"}, "why": {"mended"}} }
	path := d.start(form())
	require.Contains(t, d.get(path).body, "running: 0 of 12 messages")
	got := d.post(path, url.Values{})
	require.Equal(t, "../"+path, got.header.Get("Location"))
	require.Eventually(t, func() bool { return strings.Contains(d.get(path).body, "stopped by ada: 0 of 12 messages") }, time.Minute, 5*time.Millisecond)
	require.Equal(t, 12, d.count(dispatch.Dead))
	require.Equal(t, http.StatusNotFound, d.post("jobs/other", url.Values{}).status)

	for range 2 {
		path = d.start(form())
	}
	got = d.post("jobs", form())
	require.Equal(t, http.StatusConflict, got.status)
	require.Contains(t, got.body, "Several bulk actions run already")

	closed := make(chan error, 1)
	go func() { closed <- d.console.Close() }()
	select {
	case err := <-closed:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		t.Fatal("close waits for ever")
	}
	require.Contains(t, d.get(path).body, "the process is shutting down")
	got = d.post("jobs", form())
	require.Equal(t, http.StatusServiceUnavailable, got.status)
	unlock()
	require.Equal(t, 12, d.count(dispatch.Dead))
}

// lock holds all messages, so that no verb can be done.
func (d *desk) lock() (unlock func()) {
	d.t.Helper()
	tx, err := d.pool.Begin(d.t.Context())
	require.NoError(d.t, err)
	_, err = tx.Exec(d.t.Context(), "select from "+pgx.Identifier{d.schema}.Sanitize()+".message for update")
	require.NoError(d.t, err)
	done := false
	unlock = func() {
		if !done {
			done = true
			_ = tx.Rollback(context.WithoutCancel(d.t.Context()))
		}
	}
	d.t.Cleanup(unlock)
	return unlock
}
