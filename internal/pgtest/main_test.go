package pgtest

import (
	"context"
	"encoding/json"
	"os"
	"testing"
)

// childEnv makes this test program a mere owner of a server, to be killed by the test that started it.
const childEnv = "PGTEST_CHILD"

// owned is what the child tells about its server.
type owned struct {
	URL string `json:"url"`
	Dir string `json:"dir"`
}

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		ownUntilKilled()
	}
	Main(m)
}

func ownUntilKilled() {
	s, err := Start(context.Background(), Options{Own: true})
	if err != nil {
		panic(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(owned{URL: s.URL(), Dir: s.cluster.dir}); err != nil {
		panic(err)
	}
	// Longer than any test: the parent kills us, or its death ends our standard input.
	_, _ = os.Stdin.Read(make([]byte, 1))
	os.Exit(1)
}
