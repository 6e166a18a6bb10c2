package pgtest

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"time"
)

// leash is a shell that outlives us and removes the cluster when we let go of the pipe that it reads: in remove, or because
// we died. Nothing else sees every death: a handler doesn't see SIGKILL, a panic in another goroutine, os.Exit or the
// test time-out, and Linux's parent-death signal follows a thread, which Go may end while the process lives on.
type leash struct {
	end  io.Closer
	done chan struct{} // closed when the shell has ended
}

// leashScript gets the cluster's folder as $1. A server that was killed leaves its pid file behind, and one that waits for
// a reaper still answers kill -0, so it takes both to call a server alive. The folder is removed in several tries, since
// an initdb that lost its parent may still write.
const leashScript = `
trap '' HUP INT TERM
cat >/dev/null
pid=
[ -f "$1/pooler.pid" ] && read -r pid <"$1/pooler.pid"
[ -n "$pid" ] && kill -KILL "$pid"
file=$1/data/postmaster.pid
pid=
[ -f "$file" ] && read -r pid <"$file"
if [ -n "$pid" ] && kill -QUIT "$pid"; then
	n=0
	while [ $n -lt 100 ] && [ -f "$file" ] && kill -0 "$pid"; do sleep 0.1; n=$((n+1)); done
	[ -f "$file" ] && kill -KILL "$pid"
fi
n=0
while [ $n -lt 50 ] && ! rm -rf -- "$1"; do sleep 0.1; n=$((n+1)); done
`

func newLeash(ctx context.Context, dir string, as *account) (*leash, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }() // the shell has its own
	// The shell must outlive ctx, which bounds the start only; the pipe ends it. No output: one that it kept open would
	// make go test wait for it.
	//nolint:gosec // the script is a constant
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "/bin/sh", "-c", leashScript, "pgtest-leash", dir)
	cmd.Dir = "/"
	cmd.Stdin = r
	as.run(cmd)
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	l := &leash{end: w, done: make(chan struct{})}
	go func() {
		// Whether rm succeeded shows in the folder, which let looks at.
		_ = cmd.Wait()
		// Holding w until here also keeps a Server that nobody refers to any more from being collected, and with it the
		// pipe closed under a server whose URL is still in use.
		_ = w.Close()
		close(l.done)
	}()
	return l, nil
}

// let lets go and waits until the shell has removed the folder.
func (l *leash) let() error {
	_ = l.end.Close() // an error is that it was closed already
	timeout := time.NewTimer(stopTimeout)
	defer timeout.Stop()
	select {
	case <-l.done:
		return nil
	case <-timeout.C:
		return errors.New("pgtest: the clean-up takes longer than " + stopTimeout.String())
	}
}
