package leaks_test

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed-8098fbb7/dispatch/internal/leaks"
)

type recipient struct{ To string }

func TestFound(t *testing.T) {
	for name, bad := range map[string][]any{
		"number":           {"to", "+46701740042"},
		"without sign":     {"id", "u/15555550123."},
		"address":          {"error", errors.New("no mailbox <ada@mail.example>")},
		"in a group":       {slog.Group("a", slog.Group("b", slog.String("c", "hunter2-key")))},
		"in a struct":      {"value", recipient{"+46701740042"}},
		"in a pointer":     {"value", &recipient{"+46701740042"}}, // JSON follows it
		"text":             {"body", "It’s code 77"},
		"text, quoted":     {"body", `and then: "It’s code 1"`},
		"text on lines":    {"body", "Dear \"Ada\",\n\tyour chairs stand here. Yours, Bob"},
		"code of the text": {"code", "482901"},
	} {
		t.Run(name, func(t *testing.T) {
			var s leaks.Search
			log := s.Logger()
			log.Debug("message accepted", "key", "01920000-0000-7000-8000-155555501234", "took", 15555501234*time.Nanosecond, "share", 0.482901, "at", "2026-11-30T17:45:12.155555012+01:00")
			log.Warn("message 01920000-0000-7000-8000-000000000001 is not parked", "mails", 3, "with", "v5@v5.13.0/conn.go")
			s.Forbid("It’s code 000123", "message 1", "mail", "Dear \"Ada\",\n\tyour chairs stand here.\nYours, Bob", "x")
			assert.Empty(t, s.Found())
			log.With("more", 1).WithGroup("g").Info("line", bad...)
			assert.NotEmpty(t, s.Found())
		})
	}
}
