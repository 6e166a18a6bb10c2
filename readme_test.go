package dispatch_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The Go of the README is that of a program that compiles.
func TestReadmeShowsCodeThatCompiles(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	program, err := os.ReadFile("examples/readme/main.go")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	require.Len(t, blocks, 3)
	for _, b := range blocks {
		require.Contains(t, string(program), strings.TrimSpace(b[1]))
	}
}

// Each make target that the README names is there.
func TestReadmeNamesTargetsThatExist(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	makefile, err := os.ReadFile("Makefile")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`make ([a-z]+)`).FindAllStringSubmatch(string(readme), -1) {
		require.Regexp(t, `(?m)^`+m[1]+`:`, string(makefile))
	}
}
