package outbox_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/leaks"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
	"github.com/seed-8098fbb7/dispatch/provider/httpapi"
	"github.com/seed-8098fbb7/dispatch/provider/providertest"
)

// The tests of crashes run the worker in processes of their own: this test
// program, started again.
const (
	envWorker = "DISPATCH_TEST_WORKER" // the stub's URL, or those of the first and the second provider, with a comma
	envSchema = "DISPATCH_TEST_SCHEMA"
	envDSN    = "DISPATCH_TEST_DSN"
	envPause  = "DISPATCH_TEST_PAUSE" // stop between claim and send, and say so
	envMeans  = "DISPATCH_TEST_MEANS" // what the vendor offers: "" a key, "look-up" or "nothing"
	envRate   = "DISPATCH_TEST_RATE"  // sends a second; the burst is a fifth of it
	envWait   = "DISPATCH_TEST_WAIT"  // how long each step of an exchange may take, if not 300 ms
	envRoute  = "DISPATCH_TEST_ROUTE" // the route's name, if not "sms"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(envWorker); url != "" {
		if err := workerProcess(url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	pgtest.Main(m)
}

// stub is a provider whose attempts take at most 1.2 s in all by default. Without a key
// that the vendor dedupes by, it sends one all the same, for the ledger.
func stub(name, url, means string) (*httpapi.Provider, error) {
	short := 300 * time.Millisecond
	if d, err := time.ParseDuration(os.Getenv(envWait)); err == nil {
		short = d
	}
	cfg := httpapi.Config{
		Name: name, BaseURL: url, SendKey: true,
		Exchange: exchange.Config{Connect: short, Write: short, Answer: short, PoolWait: short},
	}
	switch means {
	case "":
		cfg.Window = time.Hour
	case "look-up":
		cfg.LookupPath, cfg.Lag = "/v1/messages/{key}", vendorLag
	}
	return httpapi.New(cfg)
}

// vendorLag is how long a taken message is missing from the vendor's look-up.
const vendorLag = 700 * time.Millisecond

// pausing never gets as far as its vendor.
type pausing struct{ dispatch.Provider }

func (pausing) Send(context.Context, dispatch.Envelope) (dispatch.Accepted, error) {
	fmt.Println("claimed")
	select {}
}

func workerProcess(urls string) error {
	cfg := outbox.WorkerConfig{PollInterval: 10 * time.Millisecond, SweepInterval: 50 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	names := []string{"test"}
	if strings.Contains(urls, ",") {
		names = []string{"first", "second"}
	}
	for i, url := range strings.Split(urls, ",") {
		p, err := stub(names[i], url, os.Getenv(envMeans))
		if err != nil {
			return err
		}
		cfg.Providers = append(cfg.Providers, p)
		if os.Getenv(envPause) != "" {
			cfg.Providers[i] = pausing{p}
		}
	}
	if n, err := strconv.Atoi(os.Getenv(envRate)); err == nil {
		cfg.Limits = map[string]outbox.Limit{"test": {PerSecond: float64(n), Burst: n / 5, Concurrent: 4}}
	}
	r := route(names...)
	r.Name = cmp.Or(os.Getenv(envRoute), r.Name)
	pool, err := pgxpool.New(context.Background(), os.Getenv(envDSN))
	if err != nil {
		return err
	}
	box, err := outbox.New(pool, outbox.Config{Schema: os.Getenv(envSchema), Routes: []dispatch.Route{r}})
	if err != nil {
		return err
	}
	w, err := outbox.NewWorker(box, cfg)
	if err != nil {
		return err
	}
	return w.Run(context.Background())
}

// spawn starts a worker process. Its log is searched; what else it prints can be
// read from lines.
func spawn(t *testing.T, schema, url string, env ...string) (kill func(), lines <-chan string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), append(env, envWorker+"="+url, envSchema+"="+schema, envDSN+"="+pgtest.URL(t))...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	ch := make(chan string, 100)
	go func() {
		defer close(ch)
		for s := bufio.NewScanner(out); s.Scan(); {
			if line := s.Text(); strings.HasPrefix(line, "time=") {
				leaks.Suite.Note("a worker process", line)
			} else {
				ch <- line
			}
		}
	}()
	killed := false
	kill = func() {
		if killed {
			return
		}
		killed = true
		_ = cmd.Process.Signal(syscall.SIGKILL)
		_ = cmd.Wait() // "signal: killed"
	}
	t.Cleanup(kill)
	return kill, ch
}

func vendor(t *testing.T, o providertest.Options) *providertest.Vendor {
	t.Helper()
	v, err := providertest.NewVendor(o)
	require.NoError(t, err)
	t.Cleanup(v.Close)
	return v
}

// evidence counts the evidence rows of a message and how many fences they are
// for.
func evidence(t *testing.T, pool *pgxpool.Pool, schema string, key dispatch.Key) (rows, fences int) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(), `select count(*), count(distinct fence) from "`+schema+`".history where id = $1::text::uuid and sub = 0`,
		key.String()).Scan(&rows, &fences))
	return rows, fences
}

// B066: the process dies between the provider's accept and the settle.
func TestKilledBetweenAcceptAndSettle(t *testing.T) {
	t.Parallel()
	box, pool, schema := newBox(t)
	v := vendor(t, providertest.Options{Dedupe: time.Hour, Fault: func(c providertest.Call) providertest.Fault {
		if c.N == 1 {
			return providertest.Fault{Wire: providertest.Hang} // taken; the answer never comes
		}
		return providertest.Fault{}
	}})
	kill, _ := spawn(t, schema, v.URL)
	i := sms("hello")
	enqueue(t, box, i)
	require.Eventually(t, func() bool { return v.Deliveries(i.Key.String()) == 1 }, 10*time.Second, time.Millisecond)
	kill()
	h, err := box.History(t.Context(), i.Key)
	require.NoError(t, err)
	require.Equal(t, dispatch.Sending, h.State, "the kill came after the settle")

	spawn(t, schema, v.URL)
	h = reaches(t, box, i.Key, dispatch.Sent)
	require.Equal(t, 1, v.Deliveries(i.Key.String()))
	require.Len(t, v.Calls(i.Key.String()), 2)
	rows, fences := evidence(t, pool, schema, i.Key)
	require.Equal(t, []int{2, 2, 2}, []int{h.Attempts, rows, fences}, "one evidence row per attempt\n%s", h)
	require.Equal(t, "swept", h.Events[0].Kind)
}

// The process dies between claim and send: nothing left, but nobody can know.
func TestKilledBetweenClaimAndSend(t *testing.T) {
	t.Parallel()
	box, pool, schema := newBox(t)
	v := vendor(t, providertest.Options{Dedupe: time.Hour})
	kill, lines := spawn(t, schema, v.URL, envPause+"=1")
	i := sms("hello")
	enqueue(t, box, i)
	require.Equal(t, "claimed", <-lines)
	kill()

	spawn(t, schema, v.URL)
	h := reaches(t, box, i.Key, dispatch.Sent)
	require.Equal(t, 1, v.Deliveries(i.Key.String()))
	require.Len(t, v.Calls(i.Key.String()), 1)
	rows, fences := evidence(t, pool, schema, i.Key)
	require.Equal(t, []int{2, 2, 2}, []int{h.Attempts, rows, fences}, "one evidence row per attempt\n%s", h)
}

// A killed worker's attempt counts: with a budget of one, nothing is sent
// again, and the message is held for a person.
func TestKilledWorkerKeepsTheBudget(t *testing.T) {
	t.Parallel()
	r := route()
	r.Policy.Attempts = 1
	box, _, schema := newBox(t, r)
	v := vendor(t, providertest.Options{Dedupe: time.Hour, Fault: func(providertest.Call) providertest.Fault {
		return providertest.Fault{Wire: providertest.Hang}
	}})
	kill, _ := spawn(t, schema, v.URL)
	i := sms("hello")
	enqueue(t, box, i)
	require.Eventually(t, func() bool { return v.Deliveries(i.Key.String()) == 1 }, 10*time.Second, time.Millisecond)
	kill()
	spawn(t, schema, v.URL)
	h := reaches(t, box, i.Key, dispatch.Held)
	require.Equal(t, dispatch.ReasonUnresolved, h.Reason)
	require.Len(t, v.Calls(i.Key.String()), 1)
}
