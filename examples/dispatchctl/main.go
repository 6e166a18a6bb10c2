// Dispatchctl looks at an outbox and repairs it, from a terminal or a script.
//
//	export DATABASE_URL=postgres://app@db.example/app
//	dispatchctl stats
//	dispatchctl history 0191e2a4-7c1d-7c1d-8c1d-0191e2a47c1d
//	dispatchctl history --namespace shop login/9f31
//	dispatchctl requeue --state dead --route sms --by ada --why "vendor's outage is over"
//
// It knows nothing of the application but its database: it sends nothing, and
// can't open what is sealed. "dispatchctl help" lists the commands, "dispatchctl
// COMMAND --help" their flags. Exit codes:
//
//	0    done
//	1    failed: the database, or anything else that was not expected
//	2    called wrongly; nothing was done
//	3    refused: there is no such message, the box is over its limits, the queue
//	     was not empty in time, or a verb left at least one message as it was
//	130  interrupted; what was done until then is told
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/outbox"
)

// The exit codes.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitRefused     = 3
	exitInterrupted = 130
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	p := program{getenv: os.Getenv, out: os.Stdout, err: os.Stderr, terminal: terminal(os.Stderr), now: time.Now}
	code := p.run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// terminal reports whether somebody is looking.
func terminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}

// program is one call, with what it needs of the world.
type program struct {
	getenv   func(string) string
	out, err io.Writer
	terminal bool // err is one
	now      func() time.Time

	dsn, schema string
	json        bool
}

// usage is an error of whoever called; refusal one of the outbox's: it was
// asked for something that it must not do.
type (
	usage   struct{ error }
	refusal struct{ error }
)

func (u usage) Unwrap() error   { return u.error }
func (r refusal) Unwrap() error { return r.error }

func usagef(format string, args ...any) error { return usage{fmt.Errorf(format, args...)} }

// command is a verb of the program. flags adds to the common ones and returns
// what is called with the rest of the arguments.
type command struct {
	name, args, text string
	flags            func(p *program, f *flag.FlagSet) func(ctx context.Context, args []string) error
}

var commands = []command{
	{"migrate", "", "bring the schema up to this release", migrate},
	{"stats", "", "how the outbox stands; --check says whether it is over its limits", stats},
	{"history", "KEY|--namespace NAME NATURAL-NAME", "what happened to a message, and why", history},
	{"list", "", "messages that pass a filter", list},
	{"requeue", "[KEY]", "put dead and held messages back, one or all that pass a filter", requeue},
	{"resolve", "accepted|not-accepted|give-up [KEY]", "say what became of unknown and held messages", resolve},
	{"cancel", "[KEY]", "end messages, one or all that pass a filter", cancel},
	{"pause", "provider|route NAME", "hold a provider or a route", pause},
	{"resume", "provider|route NAME", "end a hold", resume},
	{"drain", "", "wait until nothing is in motion any more", drain},
	{"prune", "", "scrub and delete what is old", prune},
}

func (p *program) run(ctx context.Context, args []string) int {
	if len(args) == 0 || args[0] == "help" || args[0] == "--help" || args[0] == "-h" {
		p.help()
		if len(args) == 0 {
			return exitUsage
		}
		return exitDone
	}
	for _, c := range commands {
		if c.name == args[0] {
			return p.code(ctx, p.do(ctx, c, args[1:]))
		}
	}
	return p.code(ctx, usagef("%q is no command; see dispatchctl help", args[0]))
}

func (p *program) help() {
	say(p.err, "usage: dispatchctl COMMAND [flags] [arguments]\n")
	for _, c := range commands {
		say(p.err, "  %-9s %s\n", c.name, c.text)
	}
	say(p.err, "The database is --dsn or DATABASE_URL. Exit codes: 0 done, 1 failed, 2 usage, 3 refused, 130 interrupted.\n")
}

func (p *program) do(ctx context.Context, c command, args []string) error {
	f := flag.NewFlagSet(c.name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	// Without a default in the flag: the usage would print it.
	f.StringVar(&p.dsn, "dsn", "", "database; DATABASE_URL where empty, which others on this machine can't see")
	f.StringVar(&p.schema, "schema", "dispatch", "schema of the outbox")
	f.BoolVar(&p.json, "json", false, "write JSON to standard output")
	do := c.flags(p, f)
	rest, err := parse(f, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		say(p.err, "usage: dispatchctl %s [flags] %s\n%s\n", c.name, c.args, c.text)
		f.SetOutput(p.err)
		f.PrintDefaults()
		return nil
	case err != nil:
		return usagef("%w; see dispatchctl %s --help", err, c.name)
	}
	return do(ctx, rest)
}

// parse lets flags stand behind arguments too.
func parse(f *flag.FlagSet, args []string) (rest []string, err error) {
	for {
		if err := f.Parse(args); err != nil {
			return nil, err
		}
		if f.NArg() == 0 {
			return rest, nil
		}
		rest, args = append(rest, f.Arg(0)), f.Args()[1:]
	}
}

// code tells of an error and returns what the program ends with.
func (p *program) code(ctx context.Context, err error) int {
	var u usage
	var r refusal
	var field *dispatch.FieldError
	code := exitFailed
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &u), errors.Is(err, outbox.ErrAudit), errors.Is(err, outbox.ErrEmptyFilter), errors.As(err, &field):
		code = exitUsage
	case ctx.Err() != nil:
		code = exitInterrupted
		err = errors.New("interrupted")
	case errors.As(err, &r), refusedBy(err) != nil, errors.Is(err, outbox.ErrUnready):
		code = exitRefused
	case errors.Is(err, outbox.ErrNotMigrated):
		err = fmt.Errorf("schema %s is not migrated: run dispatchctl migrate", p.schema)
	}
	say(p.err, "dispatchctl: %v\n", err)
	return code
}

// open connects. A route that isn't known here is named by the caller, since a
// box has to have one. The DSN isn't quoted, with or without its password.
func (p *program) open(ctx context.Context, routes ...dispatch.Route) (*outbox.Box, func(), error) {
	dsn := p.dsn
	if dsn == "" {
		dsn = p.getenv("DATABASE_URL")
	}
	if dsn == "" {
		return nil, nil, usagef("no database: set --dsn or DATABASE_URL")
	}
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, nil, usagef("the database's DSN can't be read")
	}
	cfg.MaxConns = 5
	if len(routes) == 0 {
		routes = []dispatch.Route{{Name: "any", Providers: []string{"any"}}}
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	box, err := outbox.New(pool, outbox.Config{Schema: p.schema, Routes: routes})
	if err != nil {
		pool.Close()
		return nil, nil, usage{err}
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, nil, errors.New("the database can't be reached: " + cause(err))
	}
	return box, pool.Close, nil
}
