package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReleasesAreExact(t *testing.T) {
	for _, r := range releases {
		if r.pkg != "" {
			require.Regexp(t, `@`+r.major+`\.\d+\.\d+-[a-z]+\.\d+$`, r.pkg)
			require.Regexp(t, regexp.MustCompile(`^sha512-.{86}==$`), r.integrity)
		}
	}
	list, err := pick("14,18")
	require.NoError(t, err)
	require.Equal(t, []release{releases[0], releases[4]}, list)
	list, err = pick("")
	require.NoError(t, err)
	require.Equal(t, releases, list)
	for _, majors := range []string{"13", "14,", "1"} {
		_, err = pick(majors)
		require.ErrorContains(t, err, "none of the versions")
	}
}

func TestCount(t *testing.T) {
	passed, skipped := count([]byte("=== RUN   TestA\n    --- PASS: TestA/b (0.00s)\n--- PASS: TestA (0.00s)\n--- PASS: TestC (0.00s)\n    --- SKIP: TestC/d (0.00s)\nPASS\n"))
	require.Equal(t, []int{2, 1}, []int{passed, skipped})
}

func TestLinks(t *testing.T) {
	root := t.TempDir()
	lib := filepath.Join(root, "native", "lib")
	require.NoError(t, os.MkdirAll(lib, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(lib, "libpq.so.5.18"), []byte("x"), 0o600))
	require.NoError(t, links(root, []link{{Source: "native/lib/libpq.so.5.18", Target: "native/lib/libpq.so.5"}}))
	text, err := os.ReadFile(filepath.Join(lib, "libpq.so.5"))
	require.NoError(t, err)
	require.Equal(t, "x", string(text))
	for _, l := range []link{{Source: "/etc/passwd", Target: "native/lib/a"}, {Source: "native/lib/libpq.so.5.18", Target: "../a"}, {}} {
		require.ErrorContains(t, links(root, []link{l}), "leads out of the package")
	}
}
