package outboxtest_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxtest"
)

// signUp is the code under test.
func signUp(ctx context.Context, box *outbox.Box, tx pgx.Tx, phone string) error {
	_, err := box.Enqueue(ctx, tx, dispatch.Intent{
		Key: dispatch.NewKey(), Content: dispatch.SMS{To: phone, Body: "Welcome"},
	})
	return err
}

// A test of one's own code: what it enqueues, and what goes out.
func TestSignUp(t *testing.T) {
	box := outboxtest.New(t, outboxtest.Postgres(t), config())
	require.NoError(t, box.InTx(t.Context(), func(tx pgx.Tx) error {
		if err := signUp(t.Context(), box.Box, tx, "+15555550123"); err != nil {
			return err
		}
		require.Len(t, box.Enqueued(tx), 1)
		return nil
	}))
	vendor := &outboxtest.Provider{}
	box.Work(outbox.WorkerConfig{Providers: []dispatch.Provider{vendor}})
	require.Equal(t, dispatch.SMS{To: "+15555550123", Body: "Welcome"}, vendor.Accepted()[0].Content)
}
