package outbox_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
)

// "Why is it not sent yet?": the history names the gates that keep a message in
// motion waiting, and those alone.
func TestWhatHoldsAMessage(t *testing.T) {
	both := route("acme", "bravo")
	both.Senders = dispatch.Senders{"otp": {"acme": "+15555550100"}}
	box, pool, schema := newBox(t, both)
	plain, otp, drill, later, refused, doubt := sms("x"), sms("x"), sms("x"), sms("x"), sms("x"), sms("x")
	otp.Content = dispatch.SMS{To: "+15555550123", Sender: "otp", Body: "x"}
	drill.Provider = "bravo"
	later.NotBefore = time.Now().Add(time.Hour)
	enqueue(t, box, plain, otp, drill, later, refused, doubt)
	exec := func(sql string, args ...any) {
		t.Helper()
		_, err := pool.Exec(t.Context(), sql, args...)
		require.NoError(t, err)
	}
	exec(`update `+schema+`.queue set ledger = '[{"p":"bravo","a":"x","b":true}]' where id = $1`, refused.Key.String())
	exec(`update `+schema+`.queue set state = 3, open = 1, provider = 'bravo', account = 'x', first_sent = now(),
		ledger = '[{"p":"bravo","a":"x","m":1,"f":"2026-01-01T00:00:00Z"}]' where id = $1`, doubt.Key.String())
	stranger, err := outbox.New(pool, outbox.Config{Schema: schema, Routes: []dispatch.Route{{Name: "any", Providers: []string{"any"}}}})
	require.NoError(t, err)

	const free = ""
	acme, bravo := "acme is held (paused) by ada: maintenance", "bravo is held (floor) until 2100-01-02 03:04:05.000"
	for _, c := range []struct {
		name  string
		gates string // rows of the table
		want  map[dispatch.Key]string
	}{
		{"nothing is held", `('acme', 0, 1, now() - interval '1 second', null, null)`, map[dispatch.Key]string{plain.Key: free, otp.Key: free, doubt.Key: free}},
		{"one of two", `('acme', 0, 5, null, 'ada', 'maintenance')`, map[dispatch.Key]string{
			plain.Key: free, otp.Key: "It waits: " + acme, drill.Key: free, refused.Key: "It waits: " + acme, doubt.Key: free,
		}},
		{"both", `('acme', 0, 5, null, 'ada', 'maintenance'), ('bravo', 0, 1, '2100-01-02 03:04:05Z', null, null)`, map[dispatch.Key]string{
			plain.Key: "It waits: " + acme + "; " + bravo, otp.Key: "It waits: " + acme, drill.Key: "It waits: " + bravo, later.Key: "It waits: " + acme + "; " + bravo,
			doubt.Key: "A repeat under its key would wait: " + bravo + "; a look-up would not",
		}},
		{"until before it is due", `('acme', 0, 1, now() + interval '1 minute', null, null), ('bravo', 0, 5, null, 'ada', 'x')`, map[dispatch.Key]string{
			later.Key: free, drill.Key: "It waits: bravo is held (paused) by ada: x",
		}},
		{"for its country", `('acme', 1, 2, null, null, 'delivers too slowly'), ('bravo', 46, 2, null, null, null)`, map[dispatch.Key]string{
			otp.Key: "It waits: acme is held for +1 (health): delivers too slowly", drill.Key: free, plain.Key: free,
		}},
		{"health holds nobody where all are held", `('acme', 0, 2, null, null, null), ('bravo', 0, 3, null, null, null)`, map[dispatch.Key]string{plain.Key: free}},
		{"the route", `('/sms', 0, 5, null, 'ada', 'maintenance'), ('/news', 0, 5, null, 'ada', 'x')`, map[dispatch.Key]string{
			plain.Key: "It waits: route sms is held (paused) by ada: maintenance", drill.Key: "It waits: route sms is held (paused) by ada: maintenance",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			exec(`delete from ` + schema + `.gate`)
			exec(`insert into ` + schema + `.gate (provider, country, reason, until, actor, why) values ` + c.gates)
			for key, want := range c.want {
				h := stateOf(t, box, key)
				verdict, _ := h.Conclusion()
				if want == free {
					require.Empty(t, h.Holds, "%+v", h.Holds)
					require.NotContains(t, h.String(), "wait")
					continue
				}
				require.NotEmpty(t, h.Holds)
				require.Contains(t, verdict, want+".")
				require.Contains(t, h.String(), want+".\n")
			}
			if c.name == "one of two" {
				h := stateOf(t, stranger, plain.Key)
				require.Len(t, h.Holds, 1)
				require.Contains(t, h.String(), "It may wait: "+acme+".\n", "the box doesn't know the route's providers")
				require.Contains(t, stateOf(t, stranger, otp.Key).String(), "It waits: "+acme, "the frozen senders name them")
			}
		})
	}
	exec(`delete from ` + schema + `.gate`)
	require.NoError(t, box.Pause(t.Context(), "acme", ada))
	require.NoError(t, box.Pause(t.Context(), "bravo", ada))
	_, err = box.Cancel(t.Context(), plain.Key, ada)
	require.NoError(t, err)
	_, err = box.Cancel(t.Context(), doubt.Key, ada)
	require.NoError(t, err)
	require.Empty(t, stateOf(t, box, plain.Key).Holds, "it is over")
	require.Empty(t, stateOf(t, box, doubt.Key).Holds, "no send of it begins any more")
}
