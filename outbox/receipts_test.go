package outbox_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxtest"
)

func receipt(key dispatch.Key, id string, kind dispatch.ReceiptKind) dispatch.Receipt {
	return dispatch.Receipt{Provider: "test", Account: "account", EventKey: fmt.Sprint(key, id, kind), Key: key, ProviderID: id, Kind: kind}
}

func echoing() dispatch.Contract {
	return dispatch.Contract{Timeout: time.Second, Echo: dispatch.Echo{Reference: true, Grace: time.Hour}}
}

// A provider with receipts only: the answer is lost, a receipt settles it; one
// that never comes leaves the message unknown until the grace is over.
func TestReceiptSettlesUnknown(t *testing.T) {
	box, _, _ := newBox(t)
	p := &outboxtest.Provider{Promise: echoing()}
	p.Respond = func(_ context.Context, _ dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		accept()
		return dispatch.Accepted{}, context.DeadlineExceeded
	}
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}})
	settled, waits := sms("a receipt comes"), sms("none comes")
	enqueue(t, box, settled, waits)
	reaches(t, box, settled.Key, dispatch.InDoubt)
	// Even a failed delivery proves that it was accepted: B161, no resend.
	require.NoError(t, box.Receive(t.Context(), []dispatch.Receipt{receipt(settled.Key, "SM1", dispatch.Undelivered)}))
	h := reaches(t, box, settled.Key, dispatch.Sent)
	require.Equal(t, "SM1", h.Reference)
	require.Equal(t, "receipt", h.Events[len(h.Events)-1].Kind)
	require.Equal(t, 38, h.Events[len(h.Events)-1].Rule)
	require.Equal(t, dispatch.InDoubt, reaches(t, box, waits.Key, dispatch.InDoubt).State)
	require.Len(t, p.Sends(), 2)
}

// B147: the receipt comes before the send's own answer, while it is sent; and
// by the provider's id alone, before that id is stored.
func TestReceiptBeforeTheAnswer(t *testing.T) {
	box, pool, schema := newBox(t)
	p := &outboxtest.Provider{Promise: echoing()}
	p.Respond = func(ctx context.Context, e dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		a := accept()
		r := receipt(e.Key, a.ID, dispatch.Delivered)
		if e.Content.(dispatch.SMS).Body == "by its id" {
			r.Key = dispatch.Key{}
		}
		return a, box.Receive(ctx, []dispatch.Receipt{r})
	}
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}})
	byKey, byID := sms("by key"), sms("by its id")
	enqueue(t, box, byKey, byID)
	for _, i := range []dispatch.Intent{byKey, byID} {
		require.Eventually(t, func() bool {
			h := stateOf(t, box, i.Key)
			kinds := map[string]int{}
			for _, e := range h.Events {
				kinds[e.Kind]++
			}
			return h.State == dispatch.Sent && kinds["receipt"] == 1 && h.Attempts == 1
		}, 20*time.Second, 20*time.Millisecond, "%s", stateOf(t, box, i.Key))
		require.Equal(t, 1, p.Deliveries(i.Key))
	}
	require.Zero(t, count(t, pool, schema, "queue"))
}

// B145, B150: repeated, in any order, in parallel: each event is kept once and
// the state stays.
func TestReceiptsRepeatedAndOutOfOrder(t *testing.T) {
	box, pool, schema := newBox(t)
	p := &outboxtest.Provider{Promise: echoing()}
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}})
	intents := many(20, nil)
	enqueueMany(t, box, intents)
	require.Eventually(t, func() bool { return count(t, pool, schema, "queue") == 0 }, 10*time.Second, 5*time.Millisecond)
	var all []dispatch.Receipt
	for n, e := range p.Accepted() {
		for _, k := range []dispatch.ReceiptKind{dispatch.Queued, dispatch.Passed, dispatch.Delivered, dispatch.Bounced} {
			r := receipt(e.Key, fmt.Sprintf("id-%d", n+1), k)
			all = append(all, r, r)
		}
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var group sync.WaitGroup
	for part := range 4 {
		group.Go(func() {
			for n := part; n < len(all); n += 4 {
				if err := box.Receive(t.Context(), all[n:n+1]); err != nil {
					panic(err)
				}
			}
		})
	}
	group.Wait()
	require.Eventually(t, func() bool {
		var waiting int
		require.NoError(t, pool.QueryRow(t.Context(), `select count(*) from "`+schema+`".receipt where due is not null`).Scan(&waiting))
		return waiting == 0
	}, 10*time.Second, 10*time.Millisecond)
	for _, i := range intents {
		h := stateOf(t, box, i.Key)
		require.Equal(t, dispatch.Sent, h.State)
		require.Len(t, h.Events, 5, "%s", h)
	}
}

// Rule 39: a receipt of another message for our key says that the provider
// took it twice.
func TestSecondIDIsRaised(t *testing.T) {
	box, p, i, _, _ := inState(t, dispatch.Sent)
	require.Len(t, p.Accepted(), 1)
	require.NoError(t, box.Receive(t.Context(), []dispatch.Receipt{receipt(i.Key, "another", dispatch.Delivered)}))
	h := stateOf(t, box, i.Key)
	require.Equal(t, dispatch.Sent, h.State)
	require.Equal(t, 39, h.Events[len(h.Events)-1].Rule)
}

func TestReceiveRefusesNonsense(t *testing.T) {
	box, pool, schema := newBox(t)
	good := receipt(dispatch.NewKey(), "x", dispatch.Delivered)
	for name, change := range map[string]func(*dispatch.Receipt){
		"provider":                  func(r *dispatch.Receipt) { r.Provider = "" },
		"no event key":              func(r *dispatch.Receipt) { r.EventKey = "" },
		"neither":                   func(r *dispatch.Receipt) { r.Key, r.ProviderID = dispatch.Key{}, "" },
		"unknown kind":              func(r *dispatch.Receipt) { r.Kind = 99 },
		"outside the years":         func(r *dispatch.Receipt) { r.At = time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"at most 10000 in one call": nil,
	} {
		bad := []dispatch.Receipt{good, good}
		if change == nil {
			bad = make([]dispatch.Receipt, outbox.MaxReceipts+1)
		} else {
			change(&bad[1])
		}
		require.ErrorContains(t, box.Receive(t.Context(), bad), name)
	}
	require.Zero(t, count(t, pool, schema, "receipt"))
	hostile := good
	hostile.Code, hostile.Recipient = "a\x00b\xff", "x\x00"
	require.NoError(t, box.Receive(t.Context(), []dispatch.Receipt{hostile}), "what a vendor writes can always be stored")
	require.Equal(t, 1, count(t, pool, schema, "receipt"))
}

// A burst of 10,000 events, each of them twice, in batches from several
// connections: every one is recorded once, and applied.
func TestBurstOfReceipts(t *testing.T) {
	t.Parallel()
	box, pool, schema := newBox(t)
	p := &outboxtest.Provider{Promise: echoing()}
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}, Slots: 200})
	const n, kinds = 2500, 4
	intents := many(n, nil)
	enqueueMany(t, box, intents)
	var all []dispatch.Receipt
	for _, i := range intents {
		for _, k := range []dispatch.ReceiptKind{dispatch.Queued, dispatch.Passed, dispatch.Deferred, dispatch.Opened} {
			r := receipt(i.Key, "", k)
			all = append(all, r, r)
		}
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var group sync.WaitGroup
	for part := range 4 {
		group.Go(func() {
			for at := part * 500; at < len(all); at += 4 * 500 {
				if err := box.Receive(t.Context(), all[at:min(at+500, len(all))]); err != nil {
					panic(err)
				}
			}
		})
	}
	group.Wait()
	require.Equal(t, n*kinds, count(t, pool, schema, "receipt"))
	var applied, events int
	require.Eventually(t, func() bool {
		require.NoError(t, pool.QueryRow(t.Context(), `select count(*) from "`+schema+`".receipt where applied_at is not null`).Scan(&applied))
		return applied == n*kinds
	}, 90*time.Second, 50*time.Millisecond)
	require.NoError(t, pool.QueryRow(t.Context(), `select count(*) from "`+schema+`".history where kind = 5`).Scan(&events))
	require.Equal(t, n*kinds, events)
	require.Eventually(t, func() bool { return count(t, pool, schema, "queue") == 0 }, 20*time.Second, 20*time.Millisecond)
	require.Zero(t, count(t, pool, schema, "parked"))
}
