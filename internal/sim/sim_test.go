package sim

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// No history breaks a promise, and together they reach everything.
func TestHistories(t *testing.T) {
	c := Crowd{Histories: 3000, Seed: 1, Workers: 2}
	total := c.Play(t.Context())
	if total.Failed != nil {
		t.Fatalf("%s\n%v", total.Failed.Story, total.Failed.Violations)
	}
	assert.Equal(t, 3000, total.Histories)
	for _, name := range total.Cover.Missing() { // the rare ones need more histories: make simulate
		assert.Contains(t, []string{"row 5", "row 15", "row 39"}, name, "never reached")
	}
}

// A seed is one history, always the same, with or without its story.
func TestSameSeedSameHistory(t *testing.T) {
	var a, b Player
	b.Story = true
	defer a.Close()
	defer b.Close()
	for seed := uint64(7000); seed < 7100; seed++ {
		first, again, other := b.Play(seed), b.Play(seed), a.Play(seed)
		require.Equal(t, first, again)
		assert.Equal(t, first.Steps, other.Steps)
		assert.NotEmpty(t, first.Story)
	}
}

// The simulation can fail: each planted bug is caught, most of them by what
// the world sees of it alone.
func TestMutants(t *testing.T) {
	mutants := Mutants()
	require.GreaterOrEqual(t, len(mutants), 18)
	seen := 0
	for _, m := range mutants {
		c := Crowd{Histories: 8000, Seed: 1, Workers: 2, Mutant: m, First: true}
		total := c.Play(t.Context())
		require.NotNil(t, total.Failed, "%s is not caught", m.Name)
		assert.NotEmpty(t, total.Failed.Story)
		c.Effects, c.Histories = true, 300
		if c.Play(t.Context()).Failed != nil {
			seen++
		}
	}
	assert.Greater(t, seen, len(mutants)/2, "caught by their effects alone")
	assert.NotNil(t, MutantNamed("no fence"))
	assert.Nil(t, MutantNamed("no such bug"))
}

// What no client can prevent is told apart from what is a mistake: a request
// that arrives an hour after its attempt was given up.
func TestResidue(t *testing.T) {
	c := Crowd{Histories: 3000, Seed: 1, Workers: 2}
	total := c.Play(t.Context())
	require.NotZero(t, total.Residue)
	l := Player{Story: true}
	defer l.Close()
	r := l.Play(total.ResidueSeeds[0])
	assert.Empty(t, r.Violations)
	assert.NotEmpty(t, r.Residue)
	assert.Contains(t, r.Story, "RESIDUE")
}
