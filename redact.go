package dispatch

import (
	"fmt"
	"io"
	"log/slog"
)

// Format prints what LogValue shows, with every verb: a recipient must not
// slip into a log through a "%+v" somewhere.
func (i Intent) Format(f fmt.State, _ rune) { redact(f, i) }

// Format prints what LogValue shows, with every verb.
func (s SMS) Format(f fmt.State, _ rune) { redact(f, s) }

// Format prints what LogValue shows, with every verb.
func (e Email) Format(f fmt.State, _ rune) { redact(f, e) }

// Format prints what LogValue shows, with every verb.
func (e Envelope) Format(f fmt.State, _ rune) { redact(f, e) }

// Format prints what LogValue shows, with every verb.
func (q Query) Format(f fmt.State, _ rune) { redact(f, q) }

// Format prints what LogValue shows, with every verb.
func (e Evidence) Format(f fmt.State, _ rune) { redact(f, e) }

// Format prints what LogValue shows, with every verb.
func (a Accepted) Format(f fmt.State, _ rune) { redact(f, a) }

// Format prints what LogValue shows, with every verb.
func (r Receipt) Format(f fmt.State, _ rune) { redact(f, r) }

func redact(w io.Writer, v slog.LogValuer) {
	_, _ = io.WriteString(w, v.LogValue().Resolve().String())
}

// LogValue keeps recipient and text out of logs.
func (q Query) LogValue() slog.Value {
	return slog.GroupValue(slog.String("key", q.Key.String()), slog.Time("since", q.Since), slog.Time("until", q.Until))
}

// LogValue keeps the vendor's own words out of logs.
func (e Evidence) LogValue() slog.Value {
	return slog.GroupValue(slog.String("stage", e.Stage.String()), slog.String("cause", e.Cause.String()), slog.Int("status", e.Status),
		slog.String("code", codeWord(e.Code)), slog.Duration("retry_after", e.RetryAfter))
}

// LogValue shows the provider's id and the evidence.
func (a Accepted) LogValue() slog.Value {
	return slog.GroupValue(slog.String("id", a.ID), slog.String("status", a.Status), slog.Any("evidence", a.Evidence))
}
