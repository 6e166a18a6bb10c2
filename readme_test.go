package dispatch_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
	"github.com/seed-8098fbb7/dispatch/outbox"
)

// documents are the texts for users and contributors, by path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("*.md")
	require.NoError(t, err)
	more, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, more)
	docs := map[string]string{}
	for _, path := range append(paths, more...) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		docs[path] = string(text)
	}
	return docs
}

var fence = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")

// blocks are the fenced blocks of a language, by document.
func blocks(t *testing.T, language string) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for path, text := range documents(t) {
		for _, m := range fence.FindAllStringSubmatch(text, -1) {
			if m[1] == language {
				found[path] = append(found[path], strings.TrimSpace(m[2]))
			}
		}
	}
	return found
}

// Every block says what it is, so that none escapes the tests below: go, sh
// and sql are checked, text is what a program prints or a drawing.
func TestBlocksOfTheDocsAreKnown(t *testing.T) {
	for path, text := range documents(t) {
		for _, m := range fence.FindAllStringSubmatch(text, -1) {
			require.Contains(t, []string{"go", "sh", "sql", "text"}, m[1], "%s: %.60s", path, m[2])
		}
		require.NotRegexp(t, `\n\n {4}\S`, fence.ReplaceAllString(text, ""), "%s: an indented block is checked by nothing", path)
	}
}

// The Go of the docs stands in programs and tests that compile, word for word.
func TestGoOfTheDocsCompiles(t *testing.T) {
	var code strings.Builder
	for _, folder := range []string{"examples", "internal/drivers", "provider/exchange", "outbox"} {
		require.NoError(t, filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" {
				return err
			}
			text, err := os.ReadFile(path)
			code.Write(text)
			return err
		}))
	}
	found := blocks(t, "go")
	require.Len(t, found["README.md"], 4)
	for path, list := range found {
		for _, b := range list {
			require.Contains(t, code.String(), b, path)
		}
	}
}

// ownBox is a box in the schema that docs speak of, on a server of its own.
func ownBox(t *testing.T, provider string) (*pgtest.Server, *pgxpool.Pool, *outbox.Box) {
	t.Helper()
	server, err := pgtest.Start(t.Context(), pgtest.Options{Own: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	pool, err := pgxpool.New(t.Context(), server.URL())
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	box, err := outbox.New(pool, outbox.Config{Routes: []dispatch.Route{{Name: "sms", Providers: []string{provider}}}})
	require.NoError(t, err)
	require.NoError(t, box.Migrate(t.Context()))
	return server, pool, box
}

// The SQL of the docs runs on a box's own tables.
func TestSQLOfTheDocs(t *testing.T) {
	_, pool, _ := ownBox(t, "test")
	ran := 0
	for path, list := range blocks(t, "sql") {
		for _, b := range list {
			_, err := pool.Exec(t.Context(), b)
			require.NoError(t, err, "%s: %s", path, b)
			ran++
		}
	}
	require.Positive(t, ran)
}

// Each page that the docs link to is there.
func TestLinksOfTheDocs(t *testing.T) {
	for path, text := range documents(t) {
		for _, m := range regexp.MustCompile(`\]\(([a-zA-Z0-9_./-]+)\)`).FindAllStringSubmatch(text, -1) {
			_, err := os.Stat(filepath.Join(filepath.Dir(path), m[1]))
			require.NoError(t, err, path)
		}
	}
}
