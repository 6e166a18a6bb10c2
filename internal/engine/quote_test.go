package engine_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

func TestQuotes(t *testing.T) {
	text := dispatch.SMS{To: "+15555550123", Body: "Your code is 482901, order AB-7731."}
	mail := dispatch.Email{To: []dispatch.Address{{Email: "Ada@Example.com"}}, Subject: "Order 55555", HTML: "<p>code <b>998877</b></p>"}
	for s, c := range map[string]dispatch.Content{
		"482901": text, "E482901": text, "15555550123": text, "id-15555550123-7": text, "AB-7731": text,
		"ada@example.com": mail, "x:55555": mail, "998877": mail,
	} {
		assert.True(t, engine.Quotes(c, s), s)
	}
	for _, s := range []string{"", "21610", "code", "4829", "Your", "5.1.1"} {
		assert.False(t, engine.Quotes(text, s), s)
		assert.False(t, engine.Quotes(mail, s), s)
	}
}
