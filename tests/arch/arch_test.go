// Package arch_test checks the boundaries that the code's layout promises.
package arch_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the repository, seen from this folder.
const root = "../.."

const domain = "turnlog.dev/"

// may says which modules a module may import; all may import themselves.
var may = map[string][]string{
	"schema":    {},
	"tokenizer": {"schema"},
	"gateway":   {"schema", "tokenizer"},
	"recorder":  {"schema", "tokenizer"},
	"exporter":  {"schema"},
	"deploy":    {"schema", "tokenizer", "gateway", "recorder", "exporter"},
	"tests":     {"schema", "tokenizer", "gateway", "recorder", "exporter", "deploy"},
}

// leaf says which packages, or trees of packages, a heavy dependency belongs to:
// one, but for what is needed in two modules that never import each other.
var leaf = map[string][]string{
	"github.com/nats-io/nats.go":     {"schema/journal/jet"},
	"github.com/nats-io/nats-server": {"deploy/natsd"},
	"github.com/klauspost/compress":  {"schema/event"},
	"github.com/labstack/echo":       {"gateway/httpapi"},
	"github.com/apache/arrow-go":     {"exporter/parquet"},
	// The exporter proves its shards with it, and the recorder cannot ask the
	// exporter to write its segments, which are no shards.
	"github.com/parquet-go/parquet-go":    {"exporter/parquet", "recorder/archive"},
	"github.com/minio/minio-go":           {"exporter/sink/s3"},
	"github.com/daulet/tokenizers":        {"tokenizer/hf"},
	"github.com/prometheus/client_golang": {"deploy"},
	"github.com/spf13/cobra":              {"deploy"},
	"go.opentelemetry.io":                 {"deploy"},
}

// catchalls are names that say nothing.
var catchalls = []string{"util", "utils", "common", "types", "helper", "helpers", "misc", "shared", "lib"}

// goPackage is what "go list" says of a package.
type goPackage struct {
	ImportPath string
	Name       string
	Standard   bool
	Imports    []string
	Deps       []string
	CgoFiles   []string
}

// module is the folder of go.work that a package of ours is in.
func (p goPackage) module() string { return module(p.ImportPath) }

func module(importPath string) string {
	m, _, _ := strings.Cut(strings.TrimPrefix(importPath, domain), "/")
	return m
}

func ours(importPath string) bool { return strings.HasPrefix(importPath, domain) }

// under reports whether an import path is one or in its tree.
func under(importPath, tree string) bool {
	return importPath == tree || strings.HasPrefix(importPath, tree+"/")
}

// list runs "go list" in the repository.
func list(t *testing.T, env []string, args ...string) (packages []goPackage) {
	t.Helper()
	for name := range may {
		args = append(args, "./"+name+"/...")
	}
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Name,Standard,Imports,Deps,CgoFiles"}, args...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages
		}
		require.NoError(t, err)
		packages = append(packages, p)
	}
}

func TestModulesImportOnlyWhatTheyMay(t *testing.T) {
	for _, p := range list(t, nil) {
		allowed := append([]string{p.module()}, may[p.module()]...)
		for _, d := range p.Deps {
			if ours(d) {
				require.Contains(t, allowed, module(d), "%s depends on %s", p.ImportPath, d)
			}
		}
	}
}

func TestHeavyDependenciesStayInTheirPackage(t *testing.T) {
	for _, p := range list(t, nil) {
		if p.module() == "tests" {
			continue
		}
		for _, i := range p.Imports {
			for heavy, homes := range leaf {
				home := func(h string) bool { return under(p.ImportPath, domain+h) }
				if under(i, heavy) {
					require.True(t, slices.ContainsFunc(homes, home), "%s imports %s, which belongs to %v", p.ImportPath, i, homes)
				}
			}
		}
	}
}

func TestWhatRunsWithoutAServerIsBuiltWithoutOne(t *testing.T) {
	for _, p := range list(t, nil) {
		if p.module() == "deploy" || p.module() == "tests" {
			continue
		}
		for _, d := range p.Deps {
			require.False(t, under(d, "github.com/nats-io/nats-server"), "%s carries a NATS server", p.ImportPath)
		}
	}
}

func TestNoPackageIsACatchall(t *testing.T) {
	for _, p := range list(t, nil) {
		require.NotContains(t, catchalls, p.Name, p.ImportPath)
		for part := range strings.SplitSeq(strings.TrimPrefix(p.ImportPath, domain), "/") {
			require.NotContains(t, catchalls, part, p.ImportPath)
		}
	}
}

func TestNothingNeedsACCompiler(t *testing.T) {
	for _, p := range list(t, []string{"CGO_ENABLED=1"}, "-deps") {
		if !p.Standard {
			require.Empty(t, p.CgoFiles, p.ImportPath)
		}
	}
}

// goMod is what "go mod edit -json" says.
type goMod struct {
	Module  struct{ Path string }
	Go      string
	Require []struct{ Path, Version string }
	Replace []struct {
		Old struct{ Path string }
		New struct{ Path string }
	}
}

func readMod(t *testing.T, name string) (m goMod) {
	t.Helper()
	cmd := exec.Command("go", "mod", "edit", "-json")
	cmd.Dir = filepath.Join(root, name)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(out, &m))
	return m
}

func TestEveryModuleRepeatsTheReplaceLines(t *testing.T) {
	requires := map[string][]string{}
	for name := range may {
		for _, r := range readMod(t, name).Require {
			if ours(r.Path) {
				requires[name] = append(requires[name], module(r.Path))
			}
		}
	}
	for name, allowed := range may {
		m := readMod(t, name)
		require.Equal(t, domain+name, m.Module.Path)
		replaced := map[string]string{}
		for _, r := range m.Replace {
			replaced[r.Old.Path] = r.New.Path
		}
		// What a required module requires counts too.
		open := slices.Clone(requires[name])
		for len(open) > 0 {
			next := open[0]
			open = append(open[1:], requires[next]...)
			require.Contains(t, allowed, next, "%s requires %s", name, next)
			require.Equal(t, "../"+next, replaced[domain+next], "%s/go.mod must replace %s", name, next)
		}
	}
}

func TestModulesAgreeOnTheLanguage(t *testing.T) {
	version := readMod(t, "schema").Go
	for name := range may {
		require.Equal(t, version, readMod(t, name).Go, name)
	}
}
