package cluster

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestKeyFollowsEveryInput(t *testing.T) {
	pinned := set{Name: "kn", Module: "kn", Programs: named("knative.dev/client/cmd/", "kn")}
	own := set{Name: "own", Module: "knative", Programs: named(module+"/e2e/cluster/build/knative/cmd/", "hello")}
	files := map[string]string{
		"go.mod": "module m", "go.sum": "a h1:1", "cmd/hello/main.go": "package main",
		"cmd/hello/main_test.go": "package main", "README.md": "text",
	}
	tests := []struct {
		name      string
		set       set
		file      string // changed
		toolchain string
		ldflags   string
		changes   bool
	}{
		{name: "nothing", set: own, changes: false},
		{name: "the module's requirements", set: pinned, file: "go.mod", changes: true},
		{name: "the module's sums", set: pinned, file: "go.sum", changes: true},
		{name: "the toolchain", set: pinned, toolchain: "go1.99", changes: true},
		{name: "a flag", set: pinned, ldflags: "-X a=b", changes: true},
		{name: "a file of an own program", set: own, file: "cmd/hello/main.go", changes: true},
		{name: "a file that a pinned program is not made of", set: pinned, file: "cmd/hello/main.go", changes: false},
		{name: "a test", set: own, file: "cmd/hello/main_test.go", changes: false},
		{name: "a text", set: own, file: "README.md", changes: false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, files)
			before := key(t, tt.set, dir, "go1.26")
			if tt.file != "" {
				write(t, dir, map[string]string{tt.file: files[tt.file] + "\nchanged"})
			}
			after := tt.set
			after.LDFlags = tt.ldflags
			toolchain := "go1.26"
			if tt.toolchain != "" {
				toolchain = tt.toolchain
			}
			if changed := key(t, after, dir, toolchain) != before; changed != tt.changes {
				t.Errorf("the key changed: got %v, want %v", changed, tt.changes)
			}
		})
	}
}

func key(t *testing.T, s set, dir, toolchain string) string {
	t.Helper()
	k, err := s.key(dir, toolchain)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, body := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(body), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// One call of go build makes all programs that are called as their packages are;
// etcd's package is called v3.
func TestOutputs(t *testing.T) {
	s := set{Programs: map[string]string{"bridge": "x/main/bridge", "portmap": "x/meta/portmap", "etcd": "etcd/server/v3"}}
	want := map[string][]string{"/tmp/o/": {"x/main/bridge", "x/meta/portmap"}, "/tmp/o/etcd": {"etcd/server/v3"}}
	if diff := cmp.Diff(want, s.outputs("/tmp/o")); diff != "" {
		t.Errorf("outputs (-want +got):\n%s", diff)
	}
}

// Every module in build/ pins, as tools, what the sets build from others' modules,
// so that its go.mod stays complete.
func TestToolsArePinned(t *testing.T) {
	for _, s := range sets() {
		body, err := os.ReadFile(filepath.Join("build", s.Module, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range slices.Sorted(maps.Keys(s.Programs)) {
			if pkg := s.Programs[name]; !s.own() && !slices.Contains(tools(string(body)), pkg) {
				t.Errorf("build/%s/go.mod has no tool %s", s.Module, pkg)
			}
		}
	}
}
