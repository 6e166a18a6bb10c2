package pgtest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/form"
	"github.com/seed-8098fbb7/dispatch/internal/leaks"
)

// columns are those, as table and name, of a schema that hold the library's own words, which History, List and the view status
// show. A vendor's words, and those of whoever did something by hand, stand in others.
const columns = `select array[table_name, column_name]::text[] from information_schema.columns where table_schema = $1
	and (table_name, column_name) in (('history', 'detail'), ('history', 'code'), ('notice', 'detail'))`

// search notes what the library wrote into a schema, and forbids what the schema's messages say. It does nothing where there
// are no such tables.
func search(tb testing.TB, schema string, s *leaks.Search) error {
	tb.Helper()
	return aside(tb, func(ctx context.Context, conn *pgx.Conn) error {
		return searchBy(ctx, conn, tb.Name(), schema, s)
	})
}

func searchBy(ctx context.Context, conn *pgx.Conn, test, schema string, s *leaks.Search) error {
	shown, err := list[[]string](ctx, conn, columns, schema)
	if err != nil || len(shown) == 0 {
		return err
	}
	for _, c := range shown {
		name := pgx.Identifier{c[1]}.Sanitize()
		texts, err := list[string](ctx, conn, "select distinct "+name+" from "+pgx.Identifier{schema, c[0]}.Sanitize()+" where "+name+" is not null")
		if err != nil {
			return err
		}
		for _, text := range texts {
			s.Note(test+" "+c[0]+"."+c[1], text)
		}
	}
	contents, err := list[[]byte](ctx, conn, "select content from "+pgx.Identifier{schema, "message"}.Sanitize()+
		" where content is not null and seal_key is null limit 10000")
	for _, content := range contents {
		switch c, _ := form.Decode(content); c := c.(type) { // a form of another release is a test's own
		case dispatch.SMS:
			s.Forbid(c.To, c.Body)
		case dispatch.Email:
			s.Forbid(c.Subject, c.Text, c.HTML)
			for _, a := range append(append(c.To, c.CC...), c.BCC...) {
				s.Forbid(a.Email, a.Name)
			}
		}
	}
	return err
}

func list[T any](ctx context.Context, conn *pgx.Conn, sql string, args ...any) ([]T, error) {
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[T])
}

// tracer notes what the database says when it refuses a statement: the library's errors say it too.
type tracer struct{}

func (tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (tracer) TraceQueryEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	if data.Err != nil {
		leaks.Suite.Note("an error of the database", data.Err.Error())
	}
}
