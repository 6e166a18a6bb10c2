package outbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

// A wait that the provider names holds its probes too, whether a probe's answer
// named it or it was named before a run of failures closed the gate. Without
// that, a probe one second later would call a provider that wants no calls.
func TestANamedWaitHoldsProbes(t *testing.T) {
	t.Parallel()
	floor := engine.Hold{Provider: "test", Reason: engine.GateFloor, For: 20 * time.Second}
	circuit := engine.Hold{Provider: "test", Reason: engine.GateCircuit, For: -1, Probe: time.Second}
	for name, holds := range map[string][]engine.Hold{
		"by a probe": {circuit, floor}, "before the run": {floor, circuit}, "twice": {floor, circuit, floor, circuit},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tb := newTable(t)
			for _, h := range holds {
				require.NoError(t, tb.CloseGate(t.Context(), h))
			}
			require.True(t, query[bool](tb, `select until is null and reason = 3 and probe_at > clock_timestamp() + interval '15 seconds' from {schema}.gate`))
			won, err := tb.ProbeGate(t.Context(), "test", 0, time.Second, time.Minute)
			require.NoError(t, err)
			require.False(t, won)
		})
	}
}

// A hold that names no wait leaves the probes as they were.
func TestAClosedGateKeepsItsProbes(t *testing.T) {
	t.Parallel()
	tb := newTable(t)
	for range 2 {
		require.NoError(t, tb.CloseGate(t.Context(), engine.Hold{Provider: "test", Reason: engine.GateCircuit, For: -1, Probe: time.Second}))
	}
	require.True(t, query[bool](tb, `select probe_at < clock_timestamp() + interval '2 seconds' from {schema}.gate`))
}
