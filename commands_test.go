package dispatch_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
	"github.com/seed-8098fbb7/dispatch/outbox"
	"github.com/seed-8098fbb7/dispatch/outbox/outboxtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// way is how a command of the docs is shown to work.
type way func(t *testing.T, command string)

// ways has every command of the docs.
var ways = map[string]way{
	"make test":          inCI("test"),
	"make check":         inCI("check"),
	"make quickstart":    inCI("quickstart"),
	"make bench SMOKE=1": inCI("bench SMOKE=1"),
	"make bench QUICK=1": inCI("bench SMOKE=1"),
	"make chaos-test":    inCI("chaos-test"),
	"make chaos":         inCI("chaos MESSAGES=2000 SECONDS=30"),
	"make chaos MESSAGES=20000 SECONDS=150 SEED=7": inCI("chaos MESSAGES=2000 SECONDS=30"),

	// They take many minutes, or a browser, or packages of npm.
	"make fleet":           beforeRelease,
	"make browser":         beforeRelease,
	"make pooler":          beforeRelease,
	"make matrix":          beforeRelease,
	"make matrix ONLY=18":  beforeRelease,
	"make soak":            beforeRelease,
	"make soak MINUTES=12": beforeRelease,

	"make help":                     ends(""),
	"make simulate":                 ends("RESULT ", "HISTORIES=2000"),
	"go run ./examples/otp":         ends("RESULT sms=dead email=sent"),
	"go run ./examples/contactform": ends("RESULT deliveries=2 queue=sales superseded=cancelled"),
	"go run ./examples/shards":      ends("RESULT messages=48 deliveries=48"),

	"make console":                           serves("/outbox/", "<html"),
	"go run ./examples/stubprovider -lose 2": serves("/deliveries/none", `"deliveries":0`),

	"go run ./examples/dispatchctl stats --check":                                                                 onAnOutbox("rejected"),
	"go run ./examples/dispatchctl history KEY":                                                                   onAnOutbox("is dead (rejected)"),
	"go run ./examples/dispatchctl drain --timeout 5m":                                                            onAnOutbox("0 in motion, 0 held, 1 dead"),
	`go run ./examples/dispatchctl pause provider acme --by ada --why "answers 500"`:                              onAnOutbox("provider acme is paused"),
	`go run ./examples/dispatchctl requeue --state dead --route sms --by ada --why "the vendor's outage is over"`: onAnOutbox("requeue: 1 pending"),

	// They would come from a module proxy.
	"go get " + module:                    func(*testing.T, string) {},
	"go get " + module + "/provider/smtp": func(*testing.T, string) {},
}

var (
	comment = regexp.MustCompile(`\s+#.*`)
	typed   = regexp.MustCompile(`^(make|go|curl) \S`)
	quoted  = regexp.MustCompile("`((?:make|go|curl) [^`\n]+)`")
)

// commandsOf returns what a document tells its reader to type: the lines of sh
// blocks, those of text blocks that begin with a program, and what stands
// between backquotes and begins with one.
func commandsOf(text string) (found []string) {
	for _, block := range fence.FindAllStringSubmatch(text, -1) {
		for line := range strings.Lines(block[2]) {
			line = strings.TrimSpace(comment.ReplaceAllString(line, ""))
			if block[1] == "sh" && line != "" || block[1] == "text" && typed.MatchString(line) {
				found = append(found, line)
			}
		}
	}
	for _, m := range quoted.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		found = append(found, m[1])
	}
	return found
}

// Each command of the docs runs, here or in .ci/run.
func TestCommandsOfTheDocs(t *testing.T) {
	named := map[string]bool{}
	for path, text := range documents(t) {
		for _, command := range commandsOf(text) {
			require.NotNil(t, ways[command], "%s: say in ways how %q is shown to work", path, command)
			named[command] = true
		}
	}
	for command, show := range ways {
		require.True(t, named[command], "no document names %s", command)
		t.Run(command, func(t *testing.T) { show(t, command) })
	}
}

// inCI is a step of .ci/run, which may have another size.
func inCI(step string) way {
	return func(t *testing.T, _ string) {
		t.Helper()
		ci, err := os.ReadFile(".ci/run")
		require.NoError(t, err)
		require.Regexp(t, `(?m)^\s*make (--no-print-directory )?`+regexp.QuoteMeta(step)+`(\s|$)`, string(ci))
	}
}

// beforeRelease is not for every change. .ci/run says so, and make knows it.
func beforeRelease(t *testing.T, command string) {
	t.Helper()
	ci, err := os.ReadFile(".ci/run")
	require.NoError(t, err)
	_, later, _ := strings.Cut(strings.ReplaceAll(string(ci), "\n# ", " "), "Before a release also: ")
	later, _, _ = strings.Cut(later, ".\n")
	target := strings.Fields(command)[1]
	require.Contains(t, strings.Split(later, ", "), "make "+target)
	sh(t, strings.Replace(command, "make ", "make -n ", 1))
}

// ends is a program that ends by itself, with a last line that begins so.
func ends(line string, env ...string) way {
	return func(t *testing.T, command string) {
		t.Helper()
		out := strings.TrimSpace(sh(t, command, env...))
		last := out[strings.LastIndex(out, "\n")+1:]
		require.True(t, strings.HasPrefix(last, line), "the last line is %q", last)
	}
}

func sh(t *testing.T, command string, env ...string) string {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", command)
	// Under `make test` a make here would be a part of that one, and say so.
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "MAKE") || strings.HasPrefix(v, "MFLAGS=") }), env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", command, out)
	return string(out)
}

// serves is a program that serves until it is interrupted: where the docs say,
// or on a free port here.
func serves(path, want string) way {
	return func(t *testing.T, command string) {
		t.Helper()
		if strings.HasPrefix(command, "make ") {
			command = strings.TrimSpace(sh(t, "make -n --no-print-directory "+strings.TrimPrefix(command, "make ")))
		}
		args := strings.Fields(strings.TrimPrefix(command, "go run "))
		program := filepath.Join(t.TempDir(), "program")
		sh(t, "go build -o '"+program+"' "+args[0])
		require.Contains(t, sh(t, "'"+program+"' -h"), `(default "127.0.0.1:8025")`)
		require.Contains(t, documents(t)["README.md"], "http://127.0.0.1:8025")

		ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
		defer stop()
		cmd := exec.CommandContext(ctx, program, append(args[1:], "-addr", "127.0.0.1:0")...)
		cmd.Stderr = t.Output()
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		url := ""
		lines := bufio.NewScanner(out)
		for url == "" && lines.Scan() {
			url = regexp.MustCompile(`http://[0-9.:]+`).FindString(lines.Text())
		}
		require.NotEmpty(t, url)
		go func() { _, _ = io.Copy(io.Discard, out) }() // ends with the program
		require.Contains(t, get(t, url+path), want)
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		require.NoError(t, cmd.Wait())
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	res, err := client.Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	require.Equal(t, http.StatusOK, res.StatusCode)
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return string(body)
}

// onAnOutbox runs a command on an outbox whose route sms has one message, KEY:
// the provider acme has refused it.
func onAnOutbox(want string) way {
	return func(t *testing.T, command string) {
		t.Helper()
		server, _, box := ownBox(t, "acme")
		key := dispatch.NewKey()
		require.NoError(t, box.InTx(t.Context(), func(tx pgx.Tx) error {
			_, err := box.Enqueue(t.Context(), tx, dispatch.Intent{Key: key, Content: dispatch.SMS{To: "+15555550123", Body: "hello"}})
			return err
		}))
		refuse := func(context.Context, dispatch.Envelope, func() dispatch.Accepted) (dispatch.Accepted, error) {
			ev := dispatch.Evidence{Stage: dispatch.Answered, Status: 400, OwnBody: true}
			return dispatch.Accepted{}, &dispatch.Fault{Evidence: ev, Verdict: dispatch.Classify(ev)}
		}
		worker, err := outbox.NewWorker(box, outbox.WorkerConfig{
			Providers: []dispatch.Provider{&outboxtest.Provider{Promise: dispatch.Contract{Name: "acme"}, Respond: refuse}},
		})
		require.NoError(t, err)
		running, stop := context.WithCancel(t.Context())
		defer stop()
		done := make(chan error, 1)
		go func() { done <- worker.Run(running) }()
		require.Eventually(t, func() bool {
			h, err := box.History(t.Context(), key)
			return err == nil && h.State == dispatch.Dead
		}, time.Minute, 20*time.Millisecond)
		stop()
		require.NoError(t, <-done)
		out := sh(t, strings.Replace(command, "KEY", key.String(), 1), "DATABASE_URL="+server.URL())
		require.Contains(t, out, want)
	}
}
