package pgtest

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"
)

// childEnv makes this test program a mere owner of a server, to be killed by the test that started it; logEnv one whose
// tests log this line.
const (
	childEnv = "PGTEST_CHILD"
	logEnv   = "PGTEST_LOG"
)

// owned is what the child tells about its server.
type owned struct {
	URL string `json:"url"`
	Dir string `json:"dir"`
}

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		ownUntilKilled()
	}
	if line := os.Getenv(logEnv); line != "" {
		os.Exit(run(func() int {
			slog.Debug("sent", "line", line)
			return 0
		}))
	}
	Main(m)
}

func ownUntilKilled() {
	s, err := Start(context.Background(), Options{Own: true})
	if err != nil {
		panic(err)
	}
	// Whoever runs the tests in the background may have these ignored, and a child inherits that.
	died := make(chan os.Signal, 1)
	signal.Notify(died, syscall.SIGINT, syscall.SIGHUP)
	go func() {
		<-died
		os.Exit(1)
	}()
	if err := json.NewEncoder(os.Stdout).Encode(owned{URL: s.URL(), Dir: s.cluster.dir}); err != nil {
		panic(err)
	}
	// The parent kills us, or its death ends our standard input.
	_, _ = os.Stdin.Read(make([]byte, 1))
	os.Exit(1)
}
