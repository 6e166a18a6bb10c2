package outbox

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

// Nobody pays for an observer that isn't there.
func TestNoObserverCostsNothing(t *testing.T) {
	r := &run{Worker: &Worker{}}
	ctx := t.Context()
	var task engine.Task
	var c engine.Change
	require.Zero(t, testing.AllocsPerRun(100, func() {
		with, w := r.begin(ctx, &task, "attempt", 1)
		w.end(&c)
		if with != ctx || c.Watch != nil {
			t.Error("something was kept")
		}
	}))
}
