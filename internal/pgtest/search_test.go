package pgtest

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/leaks"
	"github.com/seed-8098fbb7/dispatch/outbox"
)

func TestProgramThatLogsARecipientFails(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{"nobody": "", "+46701740042": "LEAK"} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), logEnv+"="+line)
		out, err := cmd.CombinedOutput()
		require.Equal(t, want == "", err == nil, "%s", out)
		require.Contains(t, string(out), want)
	}
}

// What the library says in its tables must not be what a message says, or to
// whom.
func TestSearch(t *testing.T) {
	t.Parallel()
	pool, schema := Pool(t)
	var s leaks.Search
	require.NoError(t, search(t, schema, &s), "there are no tables")
	box, err := outbox.New(pool, outbox.Config{Schema: schema, Routes: []dispatch.Route{{Name: "sms", Providers: []string{"test"}}}})
	require.NoError(t, err)
	require.NoError(t, box.Migrate(t.Context()))
	key := dispatch.NewKey()
	require.NoError(t, box.InTx(t.Context(), func(tx pgx.Tx) error {
		_, err := box.Enqueue(t.Context(), tx, dispatch.Intent{Key: key, Content: dispatch.SMS{To: "+46701740042", Body: "Good evening"}})
		return err
	}))
	for _, sql := range []string{
		"insert into history (id, fence, kind, move, state, detail, words) values ($1, 1, 1, 1, 1, 'refused', 'no such number +46701740042')",
		"insert into history (id, fence, kind, move, state, code) values ($1, 3, 1, 1, 1, '+46701740042')",
		"insert into notice (id, event, detail) values ($1, 1, 'Good evening.')",
	} {
		before := len(s.Found())
		_, err := pool.Exec(t.Context(), strings.Replace(sql, "into ", "into "+schema+".", 1), key.String())
		require.NoError(t, err)
		require.NoError(t, search(t, schema, &s))
		require.Equal(t, strings.Contains(sql, "Good") || strings.Contains(sql, "code"), len(s.Found()) > before, "%s: %v", sql, s.Found())
	}
	_, err = pool.Exec(t.Context(), "drop schema "+schema+" cascade") // nothing is left for Main to find
	require.NoError(t, err)
}
