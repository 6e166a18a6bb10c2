//go:build !unix

package pgtest

import (
	"context"
	"errors"
	"os"
	"os/exec"
)

var errNotHere = errors.New("pgtest: starting a server needs a Unix: set DATABASE_URL")

type account struct{}

func serverAccount() (*account, error) { return nil, errNotHere }

func (*account) run(*exec.Cmd) {}

func (*account) own(string) error { return nil }

func (*account) tempBase() string { return os.TempDir() }

func lockPackages(context.Context) (unlock func(), err error) { return nil, errNotHere }
