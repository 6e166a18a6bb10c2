package outbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/leaks"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxtest"
)

// status is what the view says of one key.
type status struct {
	Route             string
	State             *string
	Reason            *string
	Attempts          int64
	MaxAttempts       int64
	Spent             *int64
	NextAttemptAt     *time.Time
	LeasedUntil       *time.Time
	LastError         *string
	LastStatus        *int64
	LastCode          *string
	Provider          *string
	ProviderReference *string
	Deadline          *time.Time
	CreatedAt         time.Time
	ChangedAt         *time.Time
}

func text[T any](v *T) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(*v)
}

// What can be asked of a message, in every state that it can be in: by History,
// and by the view that an operator reads. Neither shows the recipient or the
// text (B162), and no state is invisible (B127).
func TestHistoryAndStatusInEveryState(t *testing.T) {
	t.Parallel()
	dedupe, plain := route("deduping"), route("plain")
	plain.Name, plain.Policy.Attempts = "plain", 3
	box, pool, schema := newBox(t, dedupe, plain)
	in := make(chan struct{})
	out := make(chan struct{})
	answered := func(status int, code, words string) error {
		return fault(dispatch.Evidence{Stage: dispatch.Answered, Status: status, Code: code, Reason: words, OwnBody: true})
	}
	respond := func(ctx context.Context, e dispatch.Envelope, accept func() dispatch.Accepted) (dispatch.Accepted, error) {
		body := e.Content.(dispatch.SMS).Body
		switch what, _, _ := strings.Cut(body, " "); what {
		case "blocks":
			close(in)
			select {
			case <-out:
			case <-ctx.Done():
			}
			return accept(), nil
		case "refused":
			return dispatch.Accepted{}, answered(400, "21211", "The 'To' number +15555558765 is not valid: zebra")
		case "busy":
			return dispatch.Accepted{}, answered(429, "20429", "slow down")
		case "retried":
			if e.Attempt == 1 {
				return dispatch.Accepted{}, answered(429, "20429", "slow down")
			}
		case "later":
			return dispatch.Accepted{}, &dispatch.Fault{
				Evidence: dispatch.Evidence{Stage: dispatch.NotSent, Cause: dispatch.CauseDial},
				Verdict:  dispatch.Verdict{Outcome: dispatch.Rejected, Reason: "not sent: dial", Floor: time.Hour},
			}
		case "lost":
			return dispatch.Accepted{}, fault(dispatch.Evidence{Stage: dispatch.MaybeSent, Cause: dispatch.CauseDeadline})
		}
		return accept(), nil
	}
	var log strings.Builder
	a := &outboxtest.Provider{Promise: dispatch.Contract{Name: "deduping", Dedupe: dispatch.Dedupe{Window: time.Hour}}, Respond: respond}
	b := &outboxtest.Provider{Promise: dispatch.Contract{Name: "plain"}, Respond: respond}
	quiet := &outboxtest.Provider{Promise: dispatch.Contract{Name: "plain", Echo: dispatch.Echo{Reference: true, Grace: time.Hour}}, Respond: respond}

	message := func(route, what string) dispatch.Intent {
		return dispatch.Intent{
			Key: dispatch.NewKey(), Route: route, Content: dispatch.SMS{To: "+15555558765", Body: what + " zebra"},
			Template: dispatch.Template{Name: "login", Revision: "r7"},
		}
	}
	waiting, cancelled := message("sms", "waits"), message("sms", "waits")
	waiting.NotBefore, cancelled.NotBefore = time.Now().Add(time.Hour), time.Now().Add(time.Hour)
	sent, retried, sending := message("sms", "accepted"), message("sms", "retried"), message("sms", "blocks")
	refused, busy, held, late := message("sms", "refused"), message("plain", "busy"), message("plain", "lost"), message("sms", "accepted")
	late.Deadline = time.Now().Add(-time.Hour)
	doubt := message("plain", "lost")
	stop := start(t, box, outbox.WorkerConfig{
		Providers: []dispatch.Provider{a, b}, Logger: leaks.Suite.Logger(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	enqueue(t, box, waiting, cancelled, sent, retried, sending, refused, busy, held, late)
	<-in
	_, err := box.Cancel(t.Context(), cancelled.Key, outbox.Audit{By: "ada", Why: "changed my mind"})
	require.NoError(t, err)
	see := func(i dispatch.Intent, state dispatch.State) (outbox.History, status) {
		t.Helper()
		h := reaches(t, box, i.Key, state)
		rows, err := pool.Query(t.Context(), "select s.*, s.route from "+schema+".status s where id = $1", i.Key.String())
		require.NoError(t, err)
		all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s status, err error) {
			var id [16]byte
			var route string
			err = row.Scan(&id, &s.Route, &s.State, &s.Reason, &s.Attempts, &s.MaxAttempts, &s.Spent, &s.NextAttemptAt, &s.LeasedUntil,
				&s.LastError, &s.LastStatus, &s.LastCode, &s.Provider, &s.ProviderReference, &s.Deadline, &s.CreatedAt, &s.ChangedAt, &route)
			return s, err
		})
		require.NoError(t, err)
		require.Len(t, all, 1, "one row for each key")
		s := all[0]

		// The two agree.
		require.Equal(t, i.Key, h.Key)
		require.Equal(t, dispatch.ChannelSMS, h.Channel)
		require.Equal(t, i.Template, h.Template)
		require.Equal(t, i.Route, h.Route)
		require.Equal(t, h.Route, s.Route)
		require.Equal(t, h.State.String(), text(s.State))
		require.Equal(t, h.Reason.String(), text(s.Reason))
		require.EqualValues(t, h.Attempts, s.Attempts)
		require.EqualValues(t, h.Budget, s.MaxAttempts)
		require.Equal(t, h.Reference, text(s.ProviderReference))
		require.True(t, h.Created.Equal(s.CreatedAt))
		require.Equal(t, h.Next.IsZero(), s.NextAttemptAt == nil)
		require.Equal(t, h.Deadline.IsZero(), s.Deadline == nil)
		require.Equal(t, state == dispatch.Sending, s.LeasedUntil != nil)

		// Neither tells anything of the message itself.
		told := h.String()
		require.Contains(t, told, i.Key.String())
		require.Contains(t, told, "is "+state.String())
		require.Contains(t, told, fmt.Sprintf("%d of %d attempts", h.Attempts, h.Budget))
		for _, e := range h.Events {
			told += fmt.Sprint(e)
		}
		told += fmt.Sprintf("%v", h) + text(s.LastError) + text(s.LastCode)
		for _, secret := range []string{"8765", "zebra"} {
			require.NotContains(t, told, secret)
		}
		return h, s
	}

	h, s := see(waiting, dispatch.Pending)
	require.Empty(t, h.Events)
	require.Equal(t, []int{0, 0, 8}, []int{h.Attempts, h.Spent, h.Budget})
	require.WithinDuration(t, waiting.NotBefore, h.Next, time.Microsecond)
	require.Nil(t, s.Provider)
	require.Nil(t, s.LastError)

	h, s = see(sent, dispatch.Sent)
	require.Equal(t, 1, h.Attempts)
	require.Regexp(t, "^id-", h.Reference)
	require.Equal(t, "deduping", text(s.Provider))
	require.Nil(t, s.LastError)
	require.Equal(t, "attempt", h.Events[0].Kind)
	require.Equal(t, dispatch.OK, h.Events[0].Outcome)
	require.Contains(t, h.String(), "attempt 1 at deduping: ok, id "+h.Reference)

	h, s = see(retried, dispatch.Sent)
	require.Equal(t, 2, h.Attempts)
	require.Equal(t, []dispatch.Outcome{dispatch.Rejected, dispatch.OK}, []dispatch.Outcome{h.Events[0].Outcome, h.Events[1].Outcome})
	require.Equal(t, "429 20429", text(s.LastStatus)+" "+text(s.LastCode), "what went wrong last, though it went well since")
	require.GreaterOrEqual(t, h.Events[0].Wait, time.Duration(0))
	require.Contains(t, h.String(), "→ pending, next step in")

	h, s = see(sending, dispatch.Sending)
	require.Zero(t, h.Attempts)
	require.Equal(t, 1, h.Spent)
	require.Equal(t, "deduping", text(s.Provider))

	h, s = see(refused, dispatch.Dead)
	require.Equal(t, dispatch.ReasonRejected, h.Reason)
	require.Equal(t, "400 21211", text(s.LastStatus)+" "+text(s.LastCode))
	require.NotNil(t, s.LastError)
	require.Contains(t, h.Events[0].Words, "+15555558765", "for the eyes of who may see it")
	require.Contains(t, h.String(), "is dead (rejected)")
	require.NotNil(t, s.ChangedAt)

	h, s = see(busy, dispatch.Dead)
	require.Equal(t, dispatch.ReasonBudget, h.Reason)
	require.Equal(t, []int{3, 3, 3}, []int{h.Attempts, h.Spent, h.Budget})
	require.Equal(t, "plain", text(s.Provider))

	h, _ = see(late, dispatch.Dead)
	require.Equal(t, dispatch.ReasonDeadline, h.Reason)
	require.Zero(t, h.Attempts)
	require.Equal(t, "moved", h.Events[0].Kind)

	h, s = see(held, dispatch.Held)
	require.Equal(t, dispatch.ReasonUnresolved, h.Reason)
	require.Equal(t, 1, h.Attempts)
	require.Equal(t, "plain", text(s.Provider))
	require.Equal(t, dispatch.Unknown, h.Events[0].Outcome)

	h, _ = see(cancelled, dispatch.Cancelled)
	require.Equal(t, "manual", h.Events[0].Kind)
	require.Contains(t, h.String(), "by ada, why changed my mind")

	close(out)
	h, _ = see(sending, dispatch.Sent)
	require.Equal(t, 1, h.Attempts)
	_, err = box.ResolveAccepted(t.Context(), held.Key, "SM1", outbox.Audit{By: "ada", Why: "the vendor says so"})
	require.NoError(t, err)
	h, s = see(held, dispatch.Sent)
	require.Equal(t, "SM1", h.Reference)
	require.Equal(t, "plain", text(s.Provider), "by a person, and still at that provider")
	require.NoError(t, stop())

	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{a, quiet}})
	enqueue(t, box, doubt)
	h, s = see(doubt, dispatch.InDoubt)
	require.Equal(t, 1, h.Attempts)
	require.Greater(t, time.Until(h.Next), 50*time.Minute)
	require.Equal(t, "plain", text(s.Provider))
	require.Contains(t, h.String(), "is unknown")
	require.Contains(t, h.String(), "attempt 1 at plain: unknown, deadline")

	for _, secret := range []string{"8765", "zebra"} {
		require.NotContains(t, log.String(), secret)
	}
}

// Sends are counted from one, whatever claims of the row there were beside them.
func TestSendsAreCounted(t *testing.T) {
	t.Parallel()
	box, pool, schema := newBox(t)
	i := sms("hello")
	enqueue(t, box, i)
	_, err := pool.Exec(t.Context(), `update `+schema+`.queue set fence = 3`)
	require.NoError(t, err)
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{&outboxtest.Provider{}}})
	h := reaches(t, box, i.Key, dispatch.Sent)
	require.EqualValues(t, 4, h.Events[0].Fence)
	require.Equal(t, 1, h.Events[0].Send)
	require.Contains(t, h.String(), "attempt 1 at test: ok")
	require.Contains(t, h.String(), "\nIt was accepted once.\n")
}

func TestHistoryOfNothing(t *testing.T) {
	t.Parallel()
	box, pool, _ := newBox(t)
	for _, key := range []dispatch.Key{dispatch.NewKey(), {}} {
		h, err := box.History(t.Context(), key)
		require.ErrorIs(t, err, outbox.ErrNotFound)
		require.Empty(t, h.Events)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := box.History(ctx, dispatch.NewKey())
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, pool.Stat().AcquiredConns())
}

// The history is one moment's: never a final state without what led to it.
func TestHistoryIsOfOneMoment(t *testing.T) {
	t.Parallel()
	box, _, _ := newBox(t)
	i := sms("hello")
	p := &outboxtest.Provider{}
	start(t, box, outbox.WorkerConfig{Providers: []dispatch.Provider{p}})
	for range 50 {
		i = sms("hello")
		enqueue(t, box, i)
		box.Wake()
		for state := dispatch.Pending; state != dispatch.Sent; {
			h, err := box.History(t.Context(), i.Key)
			require.NoError(t, err)
			state = h.State
			require.NotZero(t, state)
			if state == dispatch.Sent {
				require.Equal(t, 1, h.Attempts)
				require.Len(t, h.Events, 1)
			} else {
				require.Empty(t, h.Events)
			}
		}
	}
}
