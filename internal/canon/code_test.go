package canon_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed-8098fbb7/dispatch/internal/canon"
)

func TestIsCode(t *testing.T) {
	for _, s := range []string{"", "21610", "5.1.1", "invalid_idempotent_request", "EC_4096", "TooManyRequestsException", "syntax/bad:field", "E-205"} {
		assert.True(t, canon.IsCode(s), s)
	}
	for _, s := range []string{
		"+15555550123", "15555550123", "555-0123-45", "555.012.345", "x5550123", "482901", "ada@example.com", "Your code is 1", "kód", "a\x00",
		"to:1555:5550", strings.Repeat("a", 65),
	} {
		assert.False(t, canon.IsCode(s), s)
	}
}
