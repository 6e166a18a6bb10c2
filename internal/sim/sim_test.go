package sim

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// No history breaks a promise.
func TestHistories(t *testing.T) {
	p := &Player{}
	defer p.Close()
	steps := 0
	for seed := uint64(1); seed <= 3000; seed++ {
		r := p.Play(seed)
		steps += r.Steps
		if len(r.Violations) > 0 {
			p.Story = true
			require.Empty(t, r.Violations, "%s", p.Play(seed).Story)
		}
	}
	t.Logf("%d steps", steps)
	assert.NotZero(t, steps)
}
