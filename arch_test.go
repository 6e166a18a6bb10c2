package dispatch_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/seed-8098fbb7/dispatch"

// pkg is what go list says of a package, tests left out.
type pkg struct {
	ImportPath string   `json:"ImportPath"`
	Standard   bool     `json:"Standard"`
	Dir        string   `json:"Dir"`
	GoFiles    []string `json:"GoFiles"`
	Imports    []string `json:"Imports"`
	Deps       []string `json:"Deps"`
}

// packages lists the module's packages and all that they need. A package that
// an arrow below begins at and that isn't there fails the test.
func packages(t *testing.T) map[string]pkg {
	t.Helper()
	all := map[string]pkg{}
	dec := json.NewDecoder(bytes.NewReader(run(t, "go", "list", "-deps", "-json=ImportPath,Standard,Dir,GoFiles,Imports,Deps", "./...")))
	for {
		var p pkg
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		all[p.ImportPath] = p
	}
	for _, name := range []string{"", "/internal/canon", "/internal/form", "/internal/decide", "/internal/engine", "/outbox", "/render", "/provider/exchange", "/provider/httpapi"} {
		require.Contains(t, all, module+name, "the package is missing")
	}
	return all
}

func run(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s %v: %s", name, args, stderr.String())
	return out
}

// below reports whether path is the package or lies in its folder.
func below(path, folder string) bool { return path == folder || strings.HasPrefix(path, folder+"/") }

// foreign is what a package needs, in the end, that is neither from the
// standard library nor one of the given modules.
func foreign(all map[string]pkg, name string, allowed ...string) (list []string) {
	for _, d := range all[name].Deps {
		if all[d].Standard || slices.ContainsFunc(allowed, func(a string) bool { return below(d, a) }) {
			continue
		}
		list = append(list, d)
	}
	return list
}

func TestImports(t *testing.T) {
	all := packages(t)
	const uuid = "github.com/google/uuid"

	t.Run("the root is std, uuid and at most canon", func(t *testing.T) {
		assert.Empty(t, foreign(all, module, uuid, module+"/internal/canon"))
	})
	t.Run("canon knows nothing of ours", func(t *testing.T) {
		assert.Empty(t, foreign(all, module+"/internal/canon"))
	})
	t.Run("form knows content and canon", func(t *testing.T) {
		for _, d := range all[module+"/internal/form"].Imports {
			assert.True(t, all[d].Standard || d == module || d == module+"/internal/canon", d)
		}
	})
	t.Run("render knows the root", func(t *testing.T) {
		assert.Empty(t, foreign(all, module+"/render", uuid, module))
		assert.NotContains(t, all[module].Deps, "text/template", "who doesn't render has no templates")
	})
	t.Run("a program without a database has no driver", func(t *testing.T) {
		for _, name := range []string{module, module + "/provider/exchange", module + "/provider/httpapi"} {
			assert.Empty(t, foreign(all, name, uuid, module), name)
			for _, d := range all[name].Deps {
				assert.NotContains(t, d, "jackc", name)
				assert.NotEqual(t, "database/sql", d, name)
			}
		}
	})
	t.Run("providers and outbox don't know each other", func(t *testing.T) {
		for name, p := range all {
			for _, d := range p.Deps {
				switch {
				case below(name, module+"/provider"):
					assert.False(t, below(d, module+"/outbox") || strings.HasPrefix(d, "github.com/jackc/"), "%s needs %s", name, d)
				case below(name, module+"/outbox"):
					assert.False(t, below(d, module+"/provider"), "%s needs %s", name, d)
				}
			}
		}
	})
	t.Run("decisions and engine know no storage and no vendor", func(t *testing.T) {
		for _, name := range []string{"/internal/decide", "/internal/engine"} {
			for _, d := range all[module+name].Deps {
				assert.False(t, strings.Contains(d, "jackc") || d == "database/sql" || d == "net/http/httptest" || below(d, module+"/outbox") || below(d, module+"/provider"), "%s needs %s", name, d)
			}
		}
		assert.NotContains(t, all[module+"/internal/decide"].Deps, module+"/internal/engine")
	})
}

// clock are the functions of package time that read a clock or wait for it.
var clock = []string{"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "Tick", "NewTicker", "NewTimer"}

// Decisions and engine are steps: who calls them owns goroutines and clock, so
// that a simulation can own them too.
func TestDecisionsAndEngineArePure(t *testing.T) {
	all := packages(t)
	for _, name := range []string{"/internal/decide", "/internal/engine"} {
		p := all[module+name]
		require.NotEmpty(t, p.GoFiles, name)
		for _, file := range p.GoFiles {
			for _, fault := range impure(t, filepath.Join(p.Dir, file)) {
				t.Errorf("%s/%s", name, fault)
			}
		}
	}
	for _, file := range all[module].GoFiles {
		for _, fault := range impure(t, filepath.Join(all[module].Dir, file)) {
			assert.NotContains(t, fault, "goroutine", "the root starts none")
		}
	}
}

func impure(t *testing.T, path string) (faults []string) {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	timePkg := ""
	for _, i := range file.Imports {
		if p, err := strconv.Unquote(i.Path.Value); err == nil && p == "time" {
			timePkg = "time"
			if i.Name != nil {
				timePkg = i.Name.Name
			}
		}
	}
	if timePkg == "." {
		return []string{filepath.Base(path) + ": imports time with a dot"}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		at := func() string {
			p := set.Position(n.Pos())
			return filepath.Base(path) + ":" + strconv.Itoa(p.Line)
		}
		switch n := n.(type) {
		case *ast.GoStmt:
			faults = append(faults, at()+": starts a goroutine")
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && timePkg != "" && x.Name == timePkg && slices.Contains(clock, n.Sel.Name) {
				faults = append(faults, at()+": reads the clock, time."+n.Sel.Name)
			}
		}
		return true
	})
	return faults
}

// Whoever embeds the library gets three modules, and what these need.
func TestDirectRequirements(t *testing.T) {
	var mod struct {
		Module struct {
			Path string `json:"Path"`
		} `json:"Module"`
		Require []struct {
			Path     string `json:"Path"`
			Indirect bool   `json:"Indirect"`
		} `json:"Require"`
		Replace []any `json:"Replace"`
		Exclude []any `json:"Exclude"`
	}
	require.NoError(t, json.Unmarshal(run(t, "go", "mod", "edit", "-json"), &mod))
	assert.Equal(t, module, mod.Module.Path)
	var direct []string
	for _, r := range mod.Require {
		if !r.Indirect {
			direct = append(direct, r.Path)
		}
	}
	assert.Equal(t, []string{"github.com/google/uuid", "github.com/jackc/pgx/v5", "github.com/stretchr/testify"}, direct)
	assert.Empty(t, mod.Replace)
	assert.Empty(t, mod.Exclude)
}
