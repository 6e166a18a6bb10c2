package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"sync"
	"time"
)

// run is a whole run. Its error says that the run could not be carried out, or
// that the check found something.
func run(ctx context.Context, o options) (err error) {
	keep := o.dir != ""
	if !keep {
		if o.dir, err = os.MkdirTemp("", "chaos-"); err != nil {
			return err
		}
	} else if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return err
	}
	defer func() {
		if keep {
			return
		}
		if err != nil {
			fmt.Println("the ledger and the processes' logs are in", o.dir)
			return
		}
		err = os.RemoveAll(o.dir)
	}()
	c := &conductor{opts: o}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.open(ctx); err != nil {
		return err
	}
	fmt.Printf("%d messages in %v, seed %d, PostgreSQL %s\n", o.messages, o.length, o.seed, c.db.server.Version())
	samples, err := c.conduct(ctx)
	if err != nil {
		return err
	}
	l, err := readLedger(o.dir, c.plan)
	if err != nil {
		return err
	}
	d, err := takeDump(ctx, c.db)
	if err != nil {
		return err
	}
	r := check(l, d)
	return c.tell(r, samples)
}

// conduct runs messages and faults to their end, and lets everything come to
// rest.
func (c *conductor) conduct(ctx context.Context) (samples []sample, err error) {
	posting, stop := context.WithCancel(ctx)
	defer stop()
	var background sync.WaitGroup
	defer background.Wait()
	defer stop()
	background.Go(func() { c.post.run(posting) })
	for _, p := range c.list {
		if err := p.start(ctx); err != nil {
			return nil, err
		}
	}
	steady := 0
	if c.opts.soak {
		steady = 1
		background.Go(func() { samples = c.watch(posting) })
	}
	faults := schedule(c.opts.seed, c.opts.length, steady)
	c.play(ctx, faults)
	if err := c.settle(ctx); err != nil {
		return nil, err
	}
	for i := range workers {
		c.fail(c.process(workerName(i)).end(ctx, drainTime))
	}
	for _, p := range c.list {
		c.fail(p.failure())
	}
	stop()
	background.Wait()
	return samples, nil
}

// settleTime is how long everything may take to come to rest once the last fault
// is mended: a gate's longest pause between probes, and some look-ups.
const settleTime = 4 * time.Minute

// settle waits for the enqueuers, then until nothing is in motion any more.
func (c *conductor) settle(ctx context.Context) error {
	ctx, done := context.WithTimeout(ctx, settleTime)
	defer done()
	fmt.Printf("%6.1fs the faults are over\n", time.Since(c.start).Seconds())
	for i := range enqueuers {
		p := c.process(enqueuerName(i))
		select {
		case <-p.done():
		case <-ctx.Done():
			return fmt.Errorf("%s still runs: %w\n%s", p.role.Name, ctx.Err(), c.stuck(context.WithoutCancel(ctx), p))
		}
	}
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		left, err := c.left(ctx)
		if err == nil && left == "" {
			fmt.Printf("%6.1fs nothing is in motion\n", time.Since(c.start).Seconds())
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			// The checker says which ones.
			c.fail(fmt.Errorf("not at rest after %v: %s", settleTime, left))
			return context.Cause(context.WithoutCancel(ctx))
		}
		if n%40 == 39 {
			fmt.Printf("%6.1fs %s\n", time.Since(c.start).Seconds(), left)
		}
	}
}

// stuck says what the database's sessions do, and the last that a process logged.
func (c *conductor) stuck(ctx context.Context, p *process) string {
	ctx, done := context.WithTimeout(ctx, 5*time.Second)
	defer done()
	var sessions string
	err := c.db.admin.QueryRow(ctx, `select coalesce(string_agg(format('%s %s %s/%s since %s: %s', pid, state, wait_event_type, wait_event,
		clock_timestamp() - coalesce(query_start, backend_start), left(query, 100)), chr(10)), 'no sessions')
		from pg_stat_activity where backend_type = 'client backend'`).Scan(&sessions)
	if err != nil {
		sessions = err.Error()
	}
	log, err := os.ReadFile(p.log())
	if err != nil {
		log = []byte(err.Error())
	}
	return sessions + "\n" + string(log[max(0, len(log)-2000):])
}

// left says what is still in motion.
func (c *conductor) left(ctx context.Context) (string, error) {
	var queue, notices, receipts int
	var first string
	err := c.db.admin.QueryRow(ctx, `select (select count(*) from "chaos box".queue), (select count(*) from "chaos box".notice),
		(select count(*) from "chaos box".receipt where due is not null),
		coalesce((select format('%s of %s, state %s, due in %s s, %s look-ups', q.id, q.lane, q.state,
			round(extract(epoch from q.due - clock_timestamp())), q.lookups) from "chaos box".queue q order by q.due limit 1), 'none')`).
		Scan(&queue, &notices, &receipts, &first)
	if err != nil {
		return err.Error(), err
	}
	if posts := c.post.left(); queue+notices+receipts+posts > 0 {
		return fmt.Sprintf("in the queue %d (the first: %s), notices %d, receipts to apply %d, to post %d", queue, first, notices, receipts, posts), nil
	}
	return "", nil
}

// tell prints what was found; the last line is the result.
func (c *conductor) tell(r report, samples []sample) error {
	for _, text := range r.residues {
		fmt.Println("residue:", text)
	}
	const most = 20
	for _, text := range r.violations[:min(most, len(r.violations))] {
		fmt.Println("violation:", text)
	}
	if more := len(r.violations) - most; more > 0 {
		fmt.Printf("and %d more violations\n", more)
	}
	for _, what := range slices.Sorted(maps.Keys(r.judged)) {
		fmt.Printf("looked at %d %s\n", r.judged[what], what)
	}
	problems := c.errs
	for _, err := range problems {
		fmt.Println("trouble:", err)
	}
	if c.opts.soak {
		problems = append(problems, tellSamples(samples)...)
	}
	fmt.Printf("RESULT messages=%d lost=%d duplicates=%d held=%d kills=%d pg_crashes=%d residue=%d\n",
		r.messages, r.lost, r.duplicates, r.held, c.kills.Load(), c.crashes.Load(), r.residue)
	if len(r.violations) > 0 || len(problems) > 0 {
		return fmt.Errorf("%d violations, %d problems", len(r.violations), len(problems))
	}
	return nil
}

// splitDSN is the server's address in a connection string, and the same string
// for another address.
func splitDSN(dsn string) (address string, through func(string) string, err error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return "", nil, errors.New("the connection string can't be parsed") // the error would show its password
	}
	address = u.Host
	return address, func(other string) string {
		v := *u
		v.Host = other
		return v.String()
	}, nil
}
