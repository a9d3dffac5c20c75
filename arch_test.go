package rouse_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/rouse-dev/rouse/"

// pkg has the fields of a package that go list prints.
type pkg struct {
	ImportPath string
	Name       string
	Imports    []string
	Deps       []string
	Standard   bool
}

// lookAtSources looks at every file of Go, so that a result that go test has cached counts only as long as none has changed:
// what go list reads, it does not know.
func lookAtSources(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		_, err = os.Stat(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// packages lists the packages of the module that match the patterns.
func packages(t *testing.T, patterns ...string) []pkg {
	t.Helper()
	lookAtSources(t)
	out, err := exec.Command("go", append([]string{"list", "-json=ImportPath,Name,Imports,Deps,Standard"}, patterns...)...).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %s", exit.Stderr)
		}
		t.Fatal(err)
	}
	var all []pkg
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) == 0 {
		t.Fatalf("no packages match %v", patterns)
	}
	return all
}

// in says whether a package lies in one of the folders of the module.
func in(path string, folders ...string) bool {
	return slices.ContainsFunc(folders, func(f string) bool {
		return path == module+f || strings.HasPrefix(path, module+f+"/")
	})
}

// rules are the imports that may not be, and why.
var rules = []struct {
	from   []string // folders of the importing package
	except []string // folders in from that may
	not    func(path string) bool
	why    string
}{
	{
		from: []string{"activator"},
		not: func(p string) bool {
			return in(p, "autoscaler", "functions", "engine")
		},
		why: "the activator meets the other parts in api: in a cluster they are other processes",
	}, {
		from: []string{"activator/queue"},
		not: func(p string) bool {
			return in(p, "activator", "internal") && !in(p, "activator/queue", "activator/route", "activator/metrics", "internal/fair", "internal/waketrace", "internal/tombstone")
		},
		why: "the queue knows no clients' protocols: what reads and sends requests calls it, never the other way",
	}, {
		from: []string{"autoscaler"},
		not: func(p string) bool {
			return in(p, "activator", "functions", "engine")
		},
		why: "the autoscaler meets the other parts in api: in a cluster they are other processes",
	}, {
		from: []string{"functions"},
		not: func(p string) bool {
			return in(p, "activator", "autoscaler", "engine")
		},
		why: "a function meets the other parts in api, and its runtime over HTTP",
	}, {
		from: []string{"engine"},
		not: func(p string) bool {
			return in(p, "activator", "autoscaler", "functions", "internal", "config", "api") && !in(p, "internal/jsonfield", "internal/inbound", "internal/ggufname", "internal/lazyregexp")
		},
		why: "the engine is a model server like any other and knows nothing of Rouse",
	}, {
		from: []string{"internal/jsonfield", "internal/inbound", "internal/ggufname", "internal/lazyregexp"},
		not:  func(p string) bool { return in(p, "api", "activator", "autoscaler", "functions", "engine", "config") },
		why:  "the engine needs it, and nothing of Rouse",
	}, {
		from: []string{"internal"},
		not: func(p string) bool {
			return in(p, "activator", "autoscaler", "functions", "engine", "config", "manifests", "cmd")
		},
		why: "internal holds leaves: what composes the parts is below cmd",
	}, {
		from: []string{"api"},
		not:  func(p string) bool { return strings.Contains(p, ".") && !in(p, "api") },
		why:  "contracts need the standard library only, so that everybody can import them",
	}, {
		from: []string{"config"},
		not: func(p string) bool {
			return strings.HasPrefix(p, module) && !in(p, "api", "config", "internal/names", "internal/ggufname", "internal/disk")
		},
		why: "configuration is values of api, made from files",
	}, {
		from:   []string{"activator", "autoscaler", "functions", "engine", "config", "api", "internal", "cmd"},
		except: []string{"internal/cloudevent"},
		not:    func(p string) bool { return strings.HasPrefix(p, "github.com/cloudevents/") },
		why:    "only internal/cloudevent knows the CloudEvents SDK; the others pass api.Event",
	}, {
		from:   []string{"activator", "autoscaler", "functions", "engine", "config", "api", "internal", "cmd", "manifests"},
		except: []string{"activator/knative", "autoscaler/knative", "autoscaler/leader", "autoscaler/settings", "autoscaler/replicas", "autoscaler/inject", "cmd/internal/chart", "cmd/internal/kn", "cmd/rouse-activator", "cmd/rouse-autoscaler", "cmd/kn-rouse", "manifests"},
		not: func(p string) bool {
			return strings.HasPrefix(p, "k8s.io/") || strings.HasPrefix(p, "sigs.k8s.io/") || strings.HasPrefix(p, "knative.dev/")
		},
		why: "Kubernetes and Knative are known in named folders only, so that all else runs and is tested without them",
	}, {
		from:   []string{"engine/kernel"},
		except: []string{"engine/kernel/internal/emulate"}, // a program for its developers
		not: func(p string) bool {
			return slices.Contains([]string{"log", "log/slog", "net", "os/exec"}, p) // ROUSE_CPU is in the environment
		},
		why: "it computes: it does no I/O",
	}, {
		from: []string{"engine/sched", "engine/block", "engine/sample", "activator/route", "activator/parse", "autoscaler/decide", "autoscaler/rhythm", "autoscaler/simulate"},
		not: func(p string) bool {
			return slices.Contains([]string{"log", "log/slog", "net", "os", "os/exec"}, p)
		},
		why: "it decides or computes: it returns reasons instead of logging, and does no I/O",
	},
}

func TestImports(t *testing.T) {
	for _, p := range packages(t, "./...") {
		for _, r := range rules {
			if !in(p.ImportPath, r.from...) || in(p.ImportPath, r.except...) {
				continue
			}
			for _, i := range p.Imports {
				if r.not(i) {
					t.Errorf("%s imports %s: %s", p.ImportPath, i, r.why)
				}
			}
		}
	}
}

// TestLocalModeReachesNoKubernetes follows every import of the programs that run without a cluster.
func TestLocalModeReachesNoKubernetes(t *testing.T) {
	for _, p := range packages(t, "./cmd/rouse", "./cmd/rouse-function") {
		if p.Name != "main" {
			t.Errorf("%s is no program", p.ImportPath)
		}
		for _, d := range p.Deps {
			if strings.HasPrefix(d, "k8s.io/") || strings.HasPrefix(d, "knative.dev/") {
				t.Errorf("%s reaches %s: one machine needs no Kubernetes code", p.ImportPath, d)
			}
		}
	}
}

// TestProgramsOfAClusterAreApart follows every import of the programs of a cluster: each is one part, not all of them.
func TestProgramsOfAClusterAreApart(t *testing.T) {
	for program, others := range map[string][]string{
		"./cmd/rouse-activator":  {"autoscaler", "functions", "engine", "cmd/internal"},
		"./cmd/rouse-autoscaler": {"activator", "functions", "engine", "cmd/internal"},
		"./cmd/kn-rouse":         {"activator", "functions", "engine", "cmd/internal/local", "autoscaler/knative", "autoscaler/leader", "autoscaler/server"},
	} {
		for _, p := range packages(t, program) {
			for _, d := range p.Deps {
				if in(d, others...) {
					t.Errorf("%s reaches %s: what both need belongs in api", p.ImportPath, d)
				}
			}
		}
	}
}

// TestProgramsWithoutOpenTelemetry: it would cost them megabytes, and the function time at each start.
func TestProgramsWithoutOpenTelemetry(t *testing.T) {
	for _, p := range packages(t, "./cmd/rouse-function", "./cmd/kn-rouse") {
		for _, d := range p.Deps {
			if strings.HasPrefix(d, "go.opentelemetry.io/") {
				t.Errorf("%s reaches %s: what it knows of a wake it reports, and the caller makes spans of it", p.ImportPath, d)
			}
		}
	}
}

// TestSharedVersions: modules of the tests that need what Rouse needs have it in the same version, so that it is compiled once.
func TestSharedVersions(t *testing.T) {
	requirement := regexp.MustCompile(`(?m)^\t(\S+) (v\S+)`)
	versions := func(path string) map[string]string {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]string{}
		for _, m := range requirement.FindAllStringSubmatch(string(raw), -1) {
			all[m[1]] = m[2]
		}
		return all
	}
	ours := versions("go.mod")
	for _, path := range []string{"e2e/cluster/build/coredns/go.mod", "e2e/cluster/build/k8s/go.mod", "e2e/cluster/build/kn/go.mod", "e2e/cluster/build/knative/go.mod", "internal/release/go.mod"} {
		shared := 0
		for name, version := range versions(path) {
			domain, _, _ := strings.Cut(name, "/")
			if ours[name] == "" || version == "v0.0.0" || name == "golang.org/x/tools" || !slices.Contains([]string{"k8s.io", "knative.dev", "golang.org", "google.golang.org", "go.opentelemetry.io"}, domain) {
				continue
			}
			if shared++; version != ours[name] {
				t.Errorf("%s has %s %s, and go.mod %s", path, name, version, ours[name])
			}
		}
		if shared < 5 {
			t.Errorf("%s shares %d modules with go.mod: the test reads it wrongly", path, shared)
		}
	}
}

// TestOneWayToLog: lines of JSON are written by package jsonlog, so that a duration is one in all of them. The page's list of requests has none.
func TestOneWayToLog(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || path == "internal/jsonlog/jsonlog.go" || path == "cmd/internal/local/page.go" {
			return err
		}
		raw, err := os.ReadFile(path)
		if bytes.Contains(raw, []byte("slog.NewJSONHandler(")) {
			t.Errorf("%s makes a handler of its own: use jsonlog.New", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestExpressionsCompileOnUse: rouse compiles no regular expression before it needs one. Its parents of runtimes start while requests
// wait, and need none.
func TestExpressionsCompileOnUse(t *testing.T) {
	early := regexp.MustCompile(`(?m)^(var |\t)\w+ += regexp\.MustCompile\(`)
	for _, p := range packages(t, "-deps", "./cmd/rouse") {
		folder, own := strings.CutPrefix(p.ImportPath, module)
		if !own {
			continue
		}
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(file, "_test.go") && early.Match(raw) {
				t.Errorf("%s compiles a regular expression at every start: use lazyregexp.New", file)
			}
		}
	}
}

// TestListenersAreBounded: a file that serves a listener bounds its silent connections, or a reason is here.
func TestListenersAreBounded(t *testing.T) {
	serves, reasons := regexp.MustCompile(`\.(Serve\([\w.]+\)|ServeTLS\(|ListenAndServe)`), map[string]string{
		"functions/userhandler.go":                    "for one program of the operator, on the loopback address",
		"activator/federation/protocol/linkserver.go": "its connections are those that it dials",
	}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "e2e/") || reasons[path] != "" {
			return err
		}
		raw, err := os.ReadFile(path)
		if serves.Match(raw) && !bytes.Contains(raw, []byte("inbound.Bound(")) && !bytes.Contains(raw, []byte("inbound.NewListener(")) {
			t.Errorf("%s serves a listener without a bound: use inbound.Bound, or give a reason", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
