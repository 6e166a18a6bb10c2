package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// roleVar holds what a child process is to do.
const roleVar = "DISPATCH_CHAOS_ROLE"

// role is what a child process needs to know, in JSON.
type role struct {
	Name     string            `json:"name"`
	Worker   int               `json:"worker,omitempty"`   // from 1
	Enqueuer int               `json:"enqueuer,omitempty"` // from 1
	DSN      string            `json:"dsn"`
	Dir      string            `json:"dir"`
	Hook     string            `json:"hook,omitempty"`    // where a worker listens
	Vendors  map[string]string `json:"vendors,omitempty"` // base URLs
	Seed     uint64            `json:"seed"`
	Messages int               `json:"messages"`
	Start    time.Time         `json:"start"`
	Spread   time.Duration     `json:"spread"` // the time in which the messages come
}

// process is a child that is started again whenever it was killed.
type process struct {
	role role

	strike sync.Mutex // one fault at a time

	mu     sync.Mutex
	cmd    *exec.Cmd
	leash  io.Closer // the child ends when it is closed
	ended  chan struct{}
	err    error // of the last one that ended
	expect bool  // that it ends is our doing
	// failed is set by a child that ended by itself with an error.
	failed error
}

// log is the file that the process writes to.
func (p *process) log() string { return filepath.Join(p.role.Dir, p.role.Name+".log") }

// start starts the process. ctx bounds nothing of its life: a fault may end it
// long before, and the conductor's end does.
func (p *process) start(ctx context.Context) error {
	text, err := json.Marshal(p.role)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(p.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()                           // the child has its own
	cmd := exec.CommandContext(context.WithoutCancel(ctx), self) // #nosec G204 -- this program
	cmd.Env = append(os.Environ(), roleVar+"="+string(text))
	cmd.Stdout, cmd.Stderr = out, out
	leash, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	p.mu.Lock()
	p.cmd, p.leash, p.ended, p.expect = cmd, leash, ended, false
	p.mu.Unlock()
	go func() {
		err := cmd.Wait()
		p.mu.Lock()
		p.err = err
		if !p.expect && err != nil && p.failed == nil {
			p.failed = fmt.Errorf("%s ended by itself: %w", p.role.Name, err)
		}
		p.mu.Unlock()
		close(ended)
	}()
	return nil
}

// signal sends a signal; it reports whether there was a process to take it.
func (p *process) signal(s os.Signal) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s != syscall.SIGSTOP && s != syscall.SIGCONT {
		p.expect = true
	}
	select {
	case <-p.ended:
		return false
	default:
		return p.cmd.Process.Signal(s) == nil
	}
}

func (p *process) done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

func (p *process) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// kill kills the process for sure and waits until it has gone.
func (p *process) kill() bool {
	hit := p.signal(syscall.SIGKILL)
	<-p.done()
	return hit
}

// end asks the process to end in good order, and says where it doesn't.
func (p *process) end(ctx context.Context, patience time.Duration) error {
	t := time.NewTimer(patience)
	defer t.Stop()
	p.awaken(ctx, t.C)
	p.signal(syscall.SIGTERM)
	select {
	case <-p.done():
	case <-t.C:
		p.kill()
		return fmt.Errorf("%s still ran %v after a SIGTERM", p.role.Name, patience)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return fmt.Errorf("%s after a SIGTERM: %w", p.role.Name, p.err)
	}
	return nil
}

// awaken waits until a worker answers: one that has just been started would
// die of a signal.
func (p *process) awaken(ctx context.Context, limit <-chan time.Time) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for p.role.Hook != "" {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", p.role.Hook)
		if err == nil {
			_ = conn.Close() // nothing was said
			return
		}
		select {
		case <-tick.C:
		case <-p.done():
			return
		case <-ctx.Done():
			return
		case <-limit:
			return
		}
	}
}

// childRole is this process's role, ok false in the one that a person started.
func childRole() (r role, ok bool, err error) {
	text := os.Getenv(roleVar)
	if text == "" {
		return role{}, false, nil
	}
	err = json.Unmarshal([]byte(text), &r)
	return r, true, err
}

// leashed ends this process when its parent has gone, whatever ended that.
func leashed() {
	_, _ = io.Copy(io.Discard, os.Stdin) // it ends with the pipe
	os.Exit(3)
}
