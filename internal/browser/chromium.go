// Package browser tests the console in a real browser. It is a module of its own
// so that the library doesn't require what drives one.
package browser

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// programs are the names and places of a browser that can be driven.
var programs = []string{
	"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome",
	"/Applications/Google Chrome.app/Contents/MacOS/Google Chrome", "/Applications/Chromium.app/Contents/MacOS/Chromium",
}

// errNone is the one line for whoever has no browser.
var errNone = errors.New("browser: no Chromium found: install it (apt-get install chromium fonts-noto-core)")

// chromium finds a browser, or installs Debian's, with letters for names in all
// scripts, where that needs no password.
func chromium(ctx context.Context) (path string, err error) {
	if path, ok := look(); ok {
		return path, nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return "", errNone
	}
	var command []string
	if os.Geteuid() != 0 {
		if err := exec.CommandContext(ctx, "sudo", "-n", "true").Run(); err != nil {
			return "", errNone
		}
		command = []string{"sudo", "-n"}
	}
	command = append(command, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-o", "DPkg::Lock::Timeout=300")
	for _, args := range [][]string{{"update"}, {"install", "-y", "--no-install-recommends", "chromium", "fonts-noto-core"}} {
		args = append(command[:len(command):len(command)], args...)
		//nolint:gosec // the commands stand above
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			return "", fmt.Errorf("%w (%s: %w: %s)", errNone, strings.Join(args, " "), err, lines[len(lines)-1])
		}
	}
	if path, ok := look(); ok {
		return path, nil
	}
	return "", errNone
}

func look() (path string, ok bool) {
	for _, name := range programs {
		if path, err := exec.LookPath(name); err == nil {
			return path, true
		}
	}
	return "", false
}
