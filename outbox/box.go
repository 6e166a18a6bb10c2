// Package outbox keeps messages in the application's own Postgres and sends
// them from there.
//
// A [Box] is declared once, with its routes. [Box.Enqueue] adds one statement
// to the caller's transaction; whatever that transaction decides, happens to
// the message too. A [Worker] claims, sends and settles; it may run in the same
// process, in another, or in many. All of them share nothing but the database.
//
// For whoever operates it, [Box.Stats] and [Box.Check] say how the box stands,
// [Box.History] what happened to one message, [Box.List] which ones there are,
// and [Box.Bulk] does a verb to many. [Retention] says how long they are kept.
//
// Nothing here needs a session: it works behind PgBouncer in transaction mode,
// with any search_path, as a role that owns only its schema.
package outbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
	"github.com/seed-8098fbb7/dispatch/internal/engine"
)

// Config declares a box. It is copied by New.
type Config struct {
	// Schema is where the tables are; "dispatch" where empty. Several boxes,
	// of one application or of several, may live in one database in schemas of
	// their own.
	Schema string
	// Routes are the routes that intents may name. At least one.
	Routes []dispatch.Route
	// Notify lets Wake also send a NOTIFY, for workers in other processes that
	// listen (WorkerConfig.Listen). It is off by default: polling finds every
	// row, and a NOTIFY takes a lock that all commits of the server share.
	Notify bool
	// Reveal, where set, says who may read what a message says and to whom,
	// through Box.Content: nil permits it. Where it isn't set nobody may.
	Reveal func(ctx context.Context, key dispatch.Key, a Audit) error
	// Seal, where set, encrypts content and recipient at rest. What is stored
	// of the recipient is its calling code and a keyed hash, by which it can
	// still be found; digests are keyed too, and what a vendor says in words is
	// not kept, since it may quote the recipient. Sender, metadata, template
	// name and trace context stay readable. All boxes and workers on a schema
	// need the keys: a message whose key is missing waits for a worker that has
	// it, until its deadline, and spends nothing. Messages that were enqueued
	// before Seal was set are sent as they are.
	Seal Sealer
}

// Box is the place where intents are enqueued and looked at. It is safe for
// concurrent use. Make it with New.
type Box struct {
	pool   *pgxpool.Pool
	schema string // quoted
	name   string
	routes map[string]dispatch.Route
	list   []dispatch.Route
	only   string
	sql    statements
	store  *store
	wake   wake
	reveal func(ctx context.Context, key dispatch.Key, a Audit) error
	seal   Sealer
}

// Errors of a box.
var (
	// ErrNotFound: the box has no message with this key.
	ErrNotFound = engine.ErrNotFound
	// ErrNoPool: the box was made without a pool and can only enqueue.
	ErrNoPool = errors.New("box has no pool")
	// ErrNotMigrated: the schema lacks a migration of this release.
	ErrNotMigrated = errors.New("schema is not migrated")
	// ErrUnready: something is over its limit; Check.
	ErrUnready = errors.New("outbox is over its limits")
	// ErrNotHeld: no gate of the name is closed; Resume, ResumeRoute.
	ErrNotHeld = errors.New("nothing holds")
	// ErrEmptyFilter: a filter of Bulk must say more than times.
	ErrEmptyFilter = errors.New("filter is empty")
	// ErrDenied: Config.Reveal is not set, or refused; Content.
	ErrDenied = errors.New("not permitted")
)

// New checks the configuration and returns a box. It doesn't connect. The pool
// may be nil for a program that only enqueues, through transactions of its own;
// everything else then returns ErrNoPool.
func New(pool *pgxpool.Pool, cfg Config) (*Box, error) {
	name := cfg.Schema
	if name == "" {
		name = "dispatch"
	}
	quoted, err := quoteSchema(name)
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	if len(cfg.Routes) == 0 {
		return nil, errors.New("outbox: no routes")
	}
	b := &Box{pool: pool, schema: quoted, name: name, routes: map[string]dispatch.Route{}, sql: render(quoted), seal: cfg.Seal}
	for _, r := range cfg.Routes {
		if err := r.Validate(); err != nil {
			return nil, fmt.Errorf("outbox: %w", err)
		}
		if _, twice := b.routes[r.Name]; twice {
			return nil, fmt.Errorf("outbox: route %q stands twice", r.Name)
		}
		r.Policy = r.Policy.WithDefaults()
		b.routes[r.Name] = r
		b.list = append(b.list, r)
	}
	if len(b.list) == 1 {
		b.only = b.list[0].Name
	}
	b.store = &store{pool: pool, sql: &b.sql}
	b.wake.notify = cfg.Notify && pool != nil
	b.reveal = cfg.Reveal
	return b, nil
}

// InTx runs fn in a transaction of the pool and wakes the workers after its
// commit. Its errors are fn's and those of pgx.BeginFunc; an error of the
// commit doesn't prove that the transaction was rolled back: repeat it with the
// same keys.
func (b *Box) InTx(ctx context.Context, fn func(tx pgx.Tx) error) error {
	if b.pool == nil {
		return ErrNoPool
	}
	if err := pgx.BeginFunc(ctx, b.pool, fn); err != nil {
		return err
	}
	b.Wake()
	return nil
}

// Wake tells the workers of this process that something was committed. It is
// cheap, never blocks, and safe to forget: polling finds every row. With
// Config.Notify it reaches other processes too.
func (b *Box) Wake() {
	b.wake.ring()
	if b.wake.notify {
		b.wake.debounce(b.notify)
	}
}

// notify sends the NOTIFY, bounded in time; a failure only costs latency.
func (b *Box) notify() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, _ = b.pool.Exec(ctx, "select pg_notify($1::text, '')", b.channel())
}

// channel is the name that workers listen on: at most 63 bytes.
func (b *Box) channel() string {
	name := "dispatch " + b.name
	return strings.ToValidUTF8(name[:min(len(name), 63)], "")
}

// wake rings the workers of a process. Its zero value is ready.
type wake struct {
	notify bool

	mu      sync.Mutex
	bells   map[chan struct{}]bool
	hints   map[string]bool
	sending bool
	asked   bool
}

// hint remembers a lane for the next ring.
func (w *wake) hint(l decide.Lane) {
	name := l.String()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.bells) == 0 || w.hints[name] {
		return // nobody to tell, or told
	}
	if w.hints == nil {
		w.hints = map[string]bool{}
	}
	w.hints[name] = true
}

// lanes returns the lanes that were hinted at so far. There are as many as
// routes have lanes, so they are kept: a worker that looks at one in vain loses
// one claim.
func (w *wake) lanes() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]string, 0, len(w.hints))
	for name := range w.hints {
		out = append(out, name)
	}
	return out
}

func (w *wake) ring() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for bell := range w.bells {
		select {
		case bell <- struct{}{}:
		default: // rung already
		}
	}
}

func (w *wake) join() (bell chan struct{}, leave func()) {
	bell = make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bells == nil {
		w.bells = map[chan struct{}]bool{}
	}
	w.bells[bell] = true
	return bell, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.bells, bell)
	}
}

// debounce runs send once for all calls that come while it runs, and once more
// after the last of them. The goroutine ends with send, which is bounded.
func (w *wake) debounce(send func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = true
	if w.sending {
		return
	}
	w.sending = true
	go func() {
		for {
			w.mu.Lock()
			if !w.asked {
				w.sending = false
				w.mu.Unlock()
				return
			}
			w.asked = false
			w.mu.Unlock()
			send()
		}
	}()
}
