package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// options are a run's.
type options struct {
	messages int
	length   time.Duration
	seed     uint64
	dir      string // of the ledger
	plant    string
	soak     bool
}

// conductor runs the parts, strikes them by the schedule, and hands what they
// left behind to the checker.
type conductor struct {
	opts    options
	plan    plan
	db      *database
	net     *network
	vendors map[string]*vendor
	post    *postman
	calls   *journal
	faults  *journal
	list    []*process // workers, then enqueuers
	start   time.Time

	kills, crashes atomic.Int64
	strikes        sync.WaitGroup
	mu             sync.Mutex
	errs           []error
}

func (c *conductor) fail(err error) {
	if err == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs = append(c.errs, err)
}

// open starts everything but the processes.
func (c *conductor) open(ctx context.Context) (err error) {
	if c.plan, err = newPlan(c.opts.seed, c.opts.messages); err != nil {
		return err
	}
	if c.calls, err = openJournal(filepath.Join(c.opts.dir, "calls.jsonl")); err != nil {
		return err
	}
	if c.faults, err = openJournal(filepath.Join(c.opts.dir, "faults.jsonl")); err != nil {
		return err
	}
	if c.db, err = startDatabase(ctx, c.opts.plant); err != nil {
		return err
	}
	c.net, c.vendors = newNetwork(), map[string]*vendor{}
	var hooks []string
	for range workers {
		address, err := freeAddress(ctx)
		if err != nil {
			return err
		}
		hooks = append(hooks, address)
	}
	c.post = newPostman(hooks)
	urls := map[string]string{}
	for _, k := range kinds {
		v, err := newVendor(k, c.opts.seed, c.calls, c.post)
		if err != nil {
			return err
		}
		c.vendors[k.name] = v
		address, err := c.net.add(ctx, k.name, v.address)
		if err != nil {
			return err
		}
		urls[k.name] = "http://" + address
	}
	c.start = time.Now()
	spread := c.opts.length * 9 / 10
	for i := range workers + enqueuers {
		r := role{
			Dir: c.opts.dir, Vendors: urls, Seed: c.opts.seed, Messages: c.opts.messages, Start: c.start, Spread: spread,
		}
		if i < workers {
			r.Name, r.Worker, r.Hook = workerName(i), i+1, hooks[i]
		} else {
			r.Name, r.Enqueuer = enqueuerName(i-workers), i-workers+1
		}
		if r.DSN, err = c.databaseThrough(ctx, r.Name); err != nil {
			return err
		}
		c.list = append(c.list, &process{role: r})
	}
	return nil
}

// databaseThrough puts a proxy between a process and the database.
func (c *conductor) databaseThrough(ctx context.Context, process string) (dsn string, err error) {
	host, rest, err := splitDSN(c.db.app)
	if err != nil {
		return "", err
	}
	address, err := c.net.add(ctx, databasePath(process), host)
	if err != nil {
		return "", err
	}
	return rest(address), nil
}

func (c *conductor) close() error {
	var err error
	for _, p := range c.list {
		if p.cmd != nil {
			p.signal(syscall.SIGCONT)
			p.kill()
		}
	}
	if c.net != nil {
		c.net.close()
	}
	for _, v := range c.vendors {
		v.close()
	}
	if c.db != nil {
		err = c.db.close()
	}
	for _, j := range []*journal{c.calls, c.faults} {
		if j != nil {
			err = errors.Join(err, j.close())
		}
	}
	return err
}

func (c *conductor) process(name string) *process {
	for _, p := range c.list {
		if p.role.Name == name {
			return p
		}
	}
	return nil
}

// play carries the schedule out and waits until everything is mended again.
func (c *conductor) play(ctx context.Context, faults []fault) {
	for _, f := range faults {
		pause(ctx, time.Until(c.start.Add(f.at)))
		if ctx.Err() != nil {
			break
		}
		c.strikes.Go(func() { c.strike(ctx, f) })
	}
	c.strikes.Wait()
}

// strike carries one fault out and notes when. A fault whose target another one
// has just taken away is noted as that.
func (c *conductor) strike(ctx context.Context, f fault) {
	s := struck{Fault: f.kind, Target: f.target, From: time.Now()}
	err := c.inflict(ctx, f)
	s.To = time.Now()
	if err != nil {
		s.Error = err.Error()
	}
	c.faults.note(s)
}

func (c *conductor) inflict(ctx context.Context, f fault) error {
	switch f.kind {
	case kill:
		return c.kill(ctx, f)
	case freeze:
		return c.freeze(ctx, f)
	case crash:
		err := c.db.crash(ctx, f.last)
		if err == nil {
			c.crashes.Add(1)
		}
		c.fail(err)
		return err
	case terminate:
		return c.db.terminate(ctx)
	case snapshot:
		return c.db.snapshot(ctx, f.last)
	case crowd:
		return c.db.crowd(ctx, f.last)
	case rowlocks:
		return c.db.rowlocks(ctx, f.last)
	case tablelock:
		return c.db.tablelock(ctx, f.last)
	case deploy:
		return c.deploy(ctx)
	case storm, outage:
		c.vendors[f.target].disturb(trouble{kind: f.kind, wait: f.n, until: time.Now().Add(f.last)})
		pause(ctx, f.last)
		return nil
	}
	err := c.net.poison(f.target, toxicOf(f), func() { pause(ctx, f.last) })
	c.fail(err)
	return err
}

// toxicOf is what a fault of the network is in Toxiproxy's words; nil refuses
// connections.
func toxicOf(f fault) *toxic {
	t := &toxic{Type: f.kind, Stream: "downstream", Toxicity: 1}
	switch f.kind {
	case refuse:
		return nil
	case silence:
		t.Type, t.Attributes = "timeout", map[string]any{"timeout": 0}
	case reset:
		t.Type, t.Attributes = "reset_peer", map[string]any{"timeout": f.n / 10}
	case latency:
		t.Attributes = map[string]any{"latency": f.n, "jitter": f.n / 2}
	case late:
		t.Type, t.Stream, t.Toxicity, t.Attributes = "latency", "upstream", 0.05, map[string]any{"latency": f.n}
	case slicer:
		t.Attributes = map[string]any{"average_size": 20, "size_variation": 10, "delay": 2000}
	case bandwidth:
		t.Attributes = map[string]any{"rate": 1}
	case limit:
		t.Type, t.Attributes = "limit_data", map[string]any{"bytes": 50 + f.n}
		if f.n%2 == 0 {
			t.Stream = "upstream"
		}
	}
	return t
}

// kill kills a process and starts it again after a while.
func (c *conductor) kill(ctx context.Context, f fault) error {
	p := c.process(f.target)
	p.strike.Lock()
	defer p.strike.Unlock()
	if !p.kill() {
		return errors.New("it has ended")
	}
	c.kills.Add(1)
	pause(ctx, f.last)
	err := p.start(ctx)
	c.fail(err)
	return err
}

// freeze stops a process for longer than its leases.
func (c *conductor) freeze(ctx context.Context, f fault) error {
	p := c.process(f.target)
	p.strike.Lock()
	defer p.strike.Unlock()
	if !p.signal(syscall.SIGSTOP) {
		return errors.New("it has ended")
	}
	pause(ctx, f.last)
	p.signal(syscall.SIGCONT)
	return nil
}

// deploy migrates under the running workers, lets old and new ones work side by
// side, and replaces the old ones, each in good order.
func (c *conductor) deploy(ctx context.Context) error {
	if err := c.db.upgrade(ctx); err != nil {
		c.fail(fmt.Errorf("deploy: %w", err))
		return err
	}
	for i := range workers {
		p := c.process(workerName(i))
		p.strike.Lock()
		err := c.replace(ctx, p)
		p.strike.Unlock()
		if err != nil {
			c.fail(fmt.Errorf("deploy: %w", err))
			return err
		}
		pause(ctx, 2*time.Second)
	}
	return nil
}

// drainTime is how long a worker may take to end in good order: the database may
// be away meanwhile.
const drainTime = 60 * time.Second

func (c *conductor) replace(ctx context.Context, p *process) error {
	if err := p.end(ctx, drainTime); err != nil {
		return err
	}
	return p.start(ctx)
}
