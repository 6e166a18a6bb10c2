package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
)

// database is the throwaway server of a run, and what the schedule does to it.
type database struct {
	server *pgtest.Server
	app    string        // the application's connection string: no superuser
	admin  *pgxpool.Pool // a superuser's, straight to the server

	stops sync.Mutex // one stop at a time
}

// maxConns is small enough to be used up.
const maxConns = 90

func startDatabase(ctx context.Context, plant string) (_ *database, err error) {
	server, err := pgtest.Start(ctx, pgtest.Options{Own: true, Settings: map[string]string{
		"max_connections": fmt.Sprint(maxConns), "shared_buffers": "128MB", "deadlock_timeout": "200ms",
		// A crash takes the counts with it that autovacuum goes by, and here is one
		// every minute: at the default, a minute too, it would never run.
		"autovacuum_naptime": "10s",
	}})
	if err != nil {
		return nil, err
	}
	d := &database{server: server}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	if d.admin, err = pgxpool.New(ctx, server.URL()); err != nil {
		return nil, err
	}
	password := rand.Text()
	for _, sql := range []string{
		"create role app login nosuperuser password '" + password + "'",
		"grant create on database postgres to app",
	} {
		if _, err := d.admin.Exec(ctx, sql); err != nil {
			return nil, err
		}
	}
	u, err := url.Parse(server.URL())
	if err != nil {
		return nil, errors.New("the server's URL can't be parsed") // the error would show its password
	}
	u.User = url.UserPassword("app", password)
	q := u.Query()
	q.Set("search_path", "")
	u.RawQuery = q.Encode()
	d.app = u.String()
	return d, d.prepare(ctx, plant)
}

// recorder is the flight recorder: it keeps the lease of each claim, which the
// library forgets, in the claim's own transaction.
const recorder = `
create schema recorder;
create table recorder.claim (id uuid, fence integer, claimed timestamptz, lease timestamptz, primary key (id, fence));
create function recorder.note() returns trigger language plpgsql as $$
begin
	insert into recorder.claim values (new.id, new.fence, new.claimed, new.lease) on conflict do nothing;
	return null;
end
$$;
create trigger zz_recorder after update on "chaos box".queue for each row
	when (new.state = 2 and old.fence <> new.fence) execute function recorder.note();
create schema shop;
create table shop.orders (key uuid primary key);`

// plants are bugs put into the database's side of the library on purpose: a run
// with one must fail, or the checker is worth nothing.
var plants = map[string]string{
	// The oldest one: no word of a send is taken for a failure.
	"doubt": `create function recorder.plant() returns trigger language plpgsql as $$
begin
	new.state := 1; new.open := 0; new.ledger := null; new.claim := null; new.lease := null;
	new.first_sent := null; new.resolve_until := null; new.due := clock_timestamp();
	return new;
end
$$;
create trigger a_plant before update on "chaos box".queue for each row
	when (old.state = 2 and new.state = 3) execute function recorder.plant();`,
	// A row that is put off is forgotten, now and then.
	"loss": `create function recorder.plant() returns trigger language plpgsql as $$
begin
	if hashtext(new.id::text) % 8 = 0 then
		delete from "chaos box".queue where id = new.id;
	end if;
	return null;
end
$$;
create trigger a_plant after update on "chaos box".queue for each row
	when (old.state = 2 and new.state = 3) execute function recorder.plant();`,
	// What a dead worker has sent leaves no evidence.
	"evidence": `create function recorder.plant() returns trigger language plpgsql as $$
begin
	return null;
end
$$;
create trigger a_plant before insert on "chaos box".history for each row
	when (new.kind = 2) execute function recorder.plant();`,
}

// prepare makes the schema, as the application's own role.
func (d *database) prepare(ctx context.Context, plant string) error {
	pool, box, err := openBox(ctx, d.app, 2)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := box.Migrate(ctx); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, recorder, pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	if plant == "" {
		return nil
	}
	_, err = pool.Exec(ctx, plants[plant], pgx.QueryExecModeSimpleProtocol)
	return err
}

func (d *database) close() error {
	if d.admin != nil {
		d.admin.Close()
	}
	return d.server.Close()
}

// crash ends the server as a power cut does to its processes, and starts it
// again after a while.
func (d *database) crash(ctx context.Context, down time.Duration) error {
	d.stops.Lock()
	defer d.stops.Unlock()
	if err := d.server.Stop(pgtest.Immediate); err != nil {
		return err
	}
	pause(ctx, down)
	// Whatever became of ctx: a run can't be checked without its database.
	return d.server.Restart(context.WithoutCancel(ctx))
}

// pause waits, but not longer than ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// terminate ends every client's connection but this one.
func (d *database) terminate(ctx context.Context) error {
	_, err := d.admin.Exec(ctx, `select pg_terminate_backend(pid) from pg_stat_activity
		where backend_type = 'client backend' and pid <> pg_backend_pid()`)
	return err
}

// snapshot holds back what vacuum may remove.
func (d *database) snapshot(ctx context.Context, last time.Duration) error {
	return d.hold(ctx, last, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, `select count(*) from "chaos box".queue`)
}

// rowlocks holds rows that workers want.
func (d *database) rowlocks(ctx context.Context, last time.Duration) error {
	return d.hold(ctx, last, pgx.TxOptions{}, `select id from "chaos box".queue order by random() limit 500 for update skip locked`)
}

// tablelock keeps everybody from writing to the queue.
func (d *database) tablelock(ctx context.Context, last time.Duration) error {
	return d.hold(ctx, last, pgx.TxOptions{}, `set local lock_timeout = '2s'`, `lock table "chaos box".queue in share row exclusive mode`)
}

func (d *database) hold(ctx context.Context, last time.Duration, opts pgx.TxOptions, statements ...string) error {
	return pgx.BeginTxFunc(ctx, d.admin, opts, func(tx pgx.Tx) error {
		for _, sql := range statements {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		pause(ctx, last)
		return nil
	})
}

// crowd takes every connection that the application may have, those of its
// processes too, and keeps them.
func (d *database) crowd(ctx context.Context, last time.Duration) error {
	cfg, err := pgx.ParseConfig(d.app)
	if err != nil {
		return err
	}
	cfg.ConnectTimeout = time.Second
	var held []*pgx.Conn
	defer func() {
		for _, c := range held {
			_ = c.PgConn().Conn().Close() // it may be gone
		}
	}()
	grab := func() bool {
		c, err := pgx.ConnectConfig(ctx, cfg)
		if err == nil {
			held = append(held, c)
		}
		return err == nil
	}
	for begin := time.Now(); time.Since(begin) < last && grab(); {
	}
	if err := d.terminateOthers(ctx, held); err != nil {
		return err
	}
	for end := time.Now().Add(last); time.Now().Before(end) && ctx.Err() == nil; {
		if !grab() {
			pause(ctx, 10*time.Millisecond)
		}
	}
	if len(held) < maxConns/3 {
		return fmt.Errorf("took %d connections only", len(held))
	}
	return nil
}

func (d *database) terminateOthers(ctx context.Context, ours []*pgx.Conn) error {
	pids := []int32{}
	for _, c := range ours {
		pids = append(pids, int32(c.PgConn().PID())) // #nosec G115 -- a process id
	}
	_, err := d.admin.Exec(ctx, `select pg_terminate_backend(pid) from pg_stat_activity
		where usename = 'app' and pid <> all($1::int[])`, pids)
	return err
}

// upgrade is the migration of a release to come: it adds, under the workers of
// this one.
const upgrade = `
set local lock_timeout = '1s';
alter table "chaos box".queue add column next_release integer;
alter table "chaos box".message add column next_release text;
alter table "chaos box".history add column next_release text;
create table "chaos box".next_release (id uuid primary key);
create index next_release_history on "chaos box".history (next_release) where next_release is not null;
insert into "chaos box".migration (version) select max(version) + 1 from "chaos box".migration;`

// upgrade is tried until no lock and no fault is in its way.
func (d *database) upgrade(ctx context.Context) error {
	for try := 0; ; try++ {
		err := d.upgradeOnce(ctx)
		var pe *pgconn.PgError
		if err == nil || errors.As(err, &pe) && pe.Code == "42701" { // duplicate_column: a COMMIT whose answer was lost
			return nil
		}
		if try == 60 || ctx.Err() != nil {
			return err
		}
		pause(ctx, 200*time.Millisecond)
	}
}

func (d *database) upgradeOnce(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, d.app)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it may be gone
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, upgrade, pgx.QueryExecModeSimpleProtocol)
		return err
	})
}
