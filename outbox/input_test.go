package outbox_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
)

// badInputs are intents that are wrong in one way each, by the field that the
// error must name. Their texts and numbers hold the word or the digits that no
// error may quote.
func badInputs() map[string]struct {
	field string
	set   func(i *dispatch.Intent)
} {
	type bad = struct {
		field string
		set   func(i *dispatch.Intent)
	}
	to := func(number string) bad {
		return bad{"Content.To", func(i *dispatch.Intent) { i.Content = dispatch.SMS{To: number, Body: "zebra"} }}
	}
	body := func(text string) bad {
		return bad{"Content.Body", func(i *dispatch.Intent) { i.Content = dispatch.SMS{To: "+15555558765", Body: text} }}
	}
	mail := func(field string, change func(e *dispatch.Email)) bad {
		return bad{field, func(i *dispatch.Intent) {
			e := dispatch.Email{To: []dispatch.Address{{Email: "zebra@example.com"}}, Subject: "zebra", Text: "zebra"}
			change(&e)
			i.Content = e
		}}
	}
	address := func(email string) bad {
		return mail("Content.To[0]", func(e *dispatch.Email) { e.To[0].Email = email })
	}
	intent := func(field string, set func(i *dispatch.Intent)) bad { return bad{field, set} }
	now := time.Now()
	return map[string]bad{
		// B091, B092, B094, B095: numbers
		"number without plus":        to("15555558765"),
		"number in national form":    to("(555) 555-8765"),
		"short code":                 to("87650"),
		"number of another script":   to("+١٥٥٥٥٥٥٨٧٦٥"),
		"number in full width":       to("＋１５５５５５５８７６５"),
		"number with a second line":  to("+15555558765\r\n+15555558766"),
		"number with a line end":     to("+15555558765\n"),
		"number with NUL":            to("+15555558765\x00"),
		"number in invalid UTF-8":    to("+15555558765\xff"),
		"number with letters":        to("+1555zebra8765"),
		"number with trunk prefix":   to("+44 (0)20 5555 8765"),
		"number too long":            to("+155555587651234567"),
		"number that goes on":        to("+1" + strings.Repeat(" 8765", 100)),
		"number missing":             to(""),
		"number of nothing but ink":  to("\u202d \u202c"),
		"country code that can't be": to("+05555558765"),

		// B097, B116: texts
		"empty text":             body(""),
		"blank text":             body("   "),
		"invisible text":         body("\u200b"),
		"text with NUL":          body("zebra\x00b"),
		"text in no UTF-8":       body("zebra\xff"),
		"text too long":          body(strings.Repeat("zebra", 400)),
		"text too long (16)":     body("zebra" + strings.Repeat("\U0001f600", 800)),
		"limit of each provider": body("zebra unicorn"),
		"sender with NUL": intent("Content.Sender", func(i *dispatch.Intent) {
			i.Content = dispatch.SMS{To: "+15555558765", Sender: "otp\x00", Body: "zebra"}
		}),
		"sender unknown": intent("Content.Sender", func(i *dispatch.Intent) { i.Content = dispatch.SMS{To: "+15555558765", Sender: "none", Body: "zebra"} }),
		"sender not at pinned": intent("Content.Sender", func(i *dispatch.Intent) {
			i.Provider, i.Content = "other", dispatch.SMS{To: "+15555558765", Sender: "bulk", Body: "zebra"}
		}),

		// B081, B082, B084: mail
		"address with a command":      address("zebra@example.com\r\nRCPT TO:<b@example.com>"),
		"address with a line end":     address("zebra@example.com\n"),
		"address with no-break space": address("ze\u00a0bra@example.com"),
		"address with U+202C":         address("zebra@example.com\u202c"),
		"address with BOM":            address("\ufeffzebra@example.com"),
		"address with U+200B":         address("zebra@example.com\u200b"),
		"address with a name":         address("Zebra <zebra@example.com>"),
		"address with a comma":        address("Zebra, John <zebra@example.com>"),
		"address with a comment":      address("zebra@example.com (c)"),
		"address with NUL":            address("zebra\x00@example.com"),
		"address missing":             address(""),
		"no recipient":                mail("Content.To", func(e *dispatch.Email) { e.To = nil }),
		"name that hides a line end":  mail("Content.To[0]", func(e *dispatch.Email) { e.To[0].Name = "=?utf-8?q?zebra=0D=0AX?=" }),
		"bad copy":                    mail("Content.CC[0]", func(e *dispatch.Email) { e.CC = []dispatch.Address{{Email: "zebra"}} }),
		"bad blind copy":              mail("Content.BCC[1]", func(e *dispatch.Email) { e.BCC = []dispatch.Address{{Email: "a@example.com"}, {Email: "zebra@"}} }),
		"bad reply-to":                mail("Content.ReplyTo[0]", func(e *dispatch.Email) { e.ReplyTo = []dispatch.Address{{Email: "zebra\n@x"}} }),
		"subject with a header":       mail("Content.Subject", func(e *dispatch.Email) { e.Subject = "zebra\r\nBcc: b@example.com" }),
		"header name with a header":   mail("Content.Headers[0]", func(e *dispatch.Email) { e.Headers = []dispatch.Header{{Name: "X-A: zebra\r\nBcc", Value: "b"}} }),
		"header value with a line": mail("Content.Headers[1]", func(e *dispatch.Email) {
			e.Headers = []dispatch.Header{{Name: "X-A", Value: "b"}, {Name: "List-Unsubscribe", Value: "<https://zebra.example>\nX: y"}}
		}),
		"header of ours": mail("Content.Headers[0]", func(e *dispatch.Email) { e.Headers = []dispatch.Header{{Name: "Bcc", Value: "zebra@example.com"}} }),
		"file name with a header": mail("Content.Attachments[0]", func(e *dispatch.Email) {
			e.Attachments = []dispatch.Attachment{{Name: "zebra\"\r\nX: y.pdf", Type: "application/pdf"}}
		}),
		"tag with a line end":   mail("Content.Tags[0]", func(e *dispatch.Email) { e.Tags = []string{"zebra\n"} }),
		"mail without a text":   mail("Content.Text", func(e *dispatch.Email) { e.Text = "\u200b" }),
		"mail in invalid UTF-8": mail("Content.HTML", func(e *dispatch.Email) { e.HTML = "<p>zebra\xff" }),
		"template not pinned":   mail("Content.Template.Revision", func(e *dispatch.Email) { e.Template.ID = "zebra" }),
		// B026: by the size that it has as it is sent
		"attachment too large once encoded": mail("Content", func(e *dispatch.Email) {
			e.Attachments = []dispatch.Attachment{{Name: "a", Type: "application/pdf", Data: make([]byte, 19<<20)}}
		}),

		// B034, B062: keys
		"no key":            intent("Key", func(i *dispatch.Intent) { i.Key = dispatch.Key{} }),
		"key of version 1":  intent("Key", func(i *dispatch.Intent) { i.Key = dispatch.Key(uuid.MustParse("f81d4fae-7dec-11d0-a765-00a0c91e6bf6")) }),
		"key of no version": intent("Key", func(i *dispatch.Intent) { i.Key = dispatch.Key(uuid.Max) }),
		"linked to itself":  intent("Linked", func(i *dispatch.Intent) { i.Linked = i.Key }),
		"linked to nothing": intent("Linked", func(i *dispatch.Intent) { i.Linked = dispatch.Key(uuid.Max) }),

		"route missing":       intent("Route", func(i *dispatch.Intent) { i.Route = "" }), // the box has two
		"route unknown":       intent("Route", func(i *dispatch.Intent) { i.Route = "gone" }),
		"route with a slash":  intent("Route", func(i *dispatch.Intent) { i.Route = "sms/1/" }),
		"route with NUL":      intent("Route", func(i *dispatch.Intent) { i.Route = "sms\x00" }),
		"provider of another": intent("Provider", func(i *dispatch.Intent) { i.Route, i.Provider = "news", "other" }),
		"provider unknown":    intent("Provider", func(i *dispatch.Intent) { i.Provider = "gone" }),
		"provider no name":    intent("Provider", func(i *dispatch.Intent) { i.Provider = "te/st" }),
		"no content":          intent("Content", func(i *dispatch.Intent) { i.Content = nil }),
		"pointer to content":  intent("Content", func(i *dispatch.Intent) { i.Content = &dispatch.SMS{To: "+15555558765", Body: "zebra"} }),

		"validity and deadline":      intent("Deadline", func(i *dispatch.Intent) { i.ValidFor, i.Deadline = time.Minute, now.Add(time.Hour) }),
		"validity negative":          intent("ValidFor", func(i *dispatch.Intent) { i.ValidFor = -2 }),
		"validity without end":       intent("ValidFor", func(i *dispatch.Intent) { i.ValidFor = 11 * 366 * 24 * time.Hour }),
		"validity over at the start": intent("ValidFor", func(i *dispatch.Intent) { i.NotBefore, i.ValidFor = now.Add(time.Hour), time.Minute }),
		"deadline long ago":          intent("Deadline", func(i *dispatch.Intent) { i.Deadline = now.AddDate(-100, 0, 0) }),
		"deadline far off":           intent("Deadline", func(i *dispatch.Intent) { i.Deadline = now.AddDate(9000, 0, 0) }),
		"start far off":              intent("NotBefore", func(i *dispatch.Intent) { i.NotBefore = now.AddDate(300, 0, 0) }),
		"deadline at the start": intent("Deadline", func(i *dispatch.Intent) {
			i.NotBefore = now.Add(time.Hour)
			i.Deadline = i.NotBefore
		}),
		"deadline in the microsecond of the start": intent("Deadline", func(i *dispatch.Intent) {
			i.NotBefore = now.Truncate(time.Second).Add(time.Hour)
			i.Deadline = i.NotBefore.Add(400) // Postgres keeps microseconds
		}),
		// The route's policy says 4 hours.
		"policy's validity over at the start": intent("ValidFor", func(i *dispatch.Intent) { i.NotBefore = now.Add(5 * time.Hour) }),

		"priority unknown":     intent("Priority", func(i *dispatch.Intent) { i.Priority = 9 }),
		"event unknown":        intent("Notify", func(i *dispatch.Intent) { i.Notify = 1 << 14 }),
		"action unknown":       intent("OnUnknown", func(i *dispatch.Intent) { i.OnUnknown.Action = 9 }),
		"action in the past":   intent("OnUnknown", func(i *dispatch.Intent) { i.OnUnknown.After = -1 }),
		"template with a line": intent("Template.Name", func(i *dispatch.Intent) { i.Template.Name = "zebra\n" }),
		"revision with NUL":    intent("Template.Revision", func(i *dispatch.Intent) { i.Template.Revision = "zebra\x00" }),
		"trace too long":       intent("TraceParent", func(i *dispatch.Intent) { i.TraceParent = strings.Repeat("zebra", 30) }),
		"metadata with NUL":    intent("Metadata", func(i *dispatch.Intent) { i.Metadata = map[string]string{"a": "zebra\x00"} }),
		"metadata in no UTF-8": intent("Metadata", func(i *dispatch.Intent) { i.Metadata = map[string]string{"zebra\xff": "b"} }),
		"metadata too large":   intent("Metadata", func(i *dispatch.Intent) { i.Metadata = map[string]string{"a": strings.Repeat("zebra", 2000)} }),
		"metadata of no name":  intent("Metadata", func(i *dispatch.Intent) { i.Metadata = map[string]string{"": "zebra"} }),
	}
}

// What is refused is refused before any statement: nothing is written, by any
// way in, and the caller's transaction goes on. The error names the field and
// the reason, and quotes nobody's number or text.
func TestBadInput(t *testing.T) { //nolint:tparallel // each part counts what those before it left
	t.Parallel()
	box, pool, schema := newBox(t, twoRoutes()...)
	add, rows := business(t, pool, schema)
	n := 0
	for name, bad := range badInputs() {
		t.Run(name, func(t *testing.T) {
			i := sms("zebra")
			i.Route = "sms"
			bad.set(&i)
			good := sms("good")
			good.Route = "sms"
			require.NoError(t, box.InTx(t.Context(), func(tx pgx.Tx) error {
				var batch pgx.Batch
				_, one := box.Enqueue(t.Context(), tx, i)
				_, many := box.EnqueueMany(t.Context(), tx, []dispatch.Intent{good, i})
				for _, err := range []error{one, many, box.Queue(&batch, i)} {
					var field *dispatch.FieldError
					require.ErrorAs(t, err, &field)
					require.Equal(t, bad.field, field.Field)
					require.NotEmpty(t, field.Reason)
					for _, secret := range []string{"zebra", "8765"} {
						require.NotContains(t, strings.ToLower(err.Error()), secret)
					}
				}
				require.Zero(t, batch.Len())
				require.ErrorContains(t, many, "intent 1")
				return add(tx)
			}))
			n++
			require.Equal(t, n, rows())
			require.Zero(t, count(t, pool, schema, "message"))
			require.Zero(t, count(t, pool, schema, "queue"))
		})
	}
}

// B091, B094: one person's number has one spelling, so that a message to it is
// one message.
func TestNumbersAreStoredInOneSpelling(t *testing.T) {
	t.Parallel()
	box, pool, schema := newBox(t)
	key := dispatch.NewKey()
	for n, to := range []string{
		"+15555550100", "\u202d+1 555 555 0100\u202c", "+1\u2011555\u2011555\u20110100", "+1555\u00ad5550100", "+1\u00a0(555)\u202f555-0100",
	} {
		require.NoError(t, box.InTx(t.Context(), func(tx pgx.Tx) error {
			added, err := box.Enqueue(t.Context(), tx, dispatch.Intent{Key: key, Content: dispatch.SMS{To: to, Body: "hi"}})
			require.NoError(t, err)
			require.Equal(t, n == 0, added)
			return nil
		}))
	}
	require.Equal(t, "+15555550100", ask[string](t, pool, "select recipient from "+schema+".message"))
}
