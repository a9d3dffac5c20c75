package functions

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/fetch"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/functions/runtime"
	"github.com/rouse-dev/rouse/functions/supervise"
)

// snapshotBench is a cache, a criu and a launch.
type snapshotBench struct {
	t       *testing.T
	cache   *fetch.Cache
	program string // criu
	fake    string // the folder of the fake criu
	args    []string
	env     []string
	launch  runtime.Launch // of the last begin
	now     api.Snapshot   // as last reported
}

func newSnapshotBench(t *testing.T, limit api.Bytes) *snapshotBench {
	t.Helper()
	dir := t.TempDir()
	cache, err := fetch.New(fetch.Config{Dir: filepath.Join(dir, "cache"), Limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	b := &snapshotBench{t: t, cache: cache, fake: dir, program: filepath.Join(dir, "criu"), env: []string{"SNAPSHOT_TEST=server"}}
	b.tell("criu", "#!/bin/sh\nexport SNAPSHOT_TEST=criu FAKE="+dir+"\nexec "+os.Args[0]+` "$@"`+"\n")
	return b
}

// open returns the function's snapshot for a new instance.
func (b *snapshotBench) open() *snapshot {
	b.t.Helper()
	s, err := lockSnapshot(b.t.Context(), b.cache, "default.f", b.program, slog.New(slog.DiscardHandler), func(now api.Snapshot) { b.now = now })
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// tell writes a file of the fake criu.
func (b *snapshotBench) tell(name, text string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.fake, name), []byte(text), 0o700); err != nil {
		b.t.Fatal(err)
	}
}

func (b *snapshotBench) start(s process.Spec) (supervise.Child, error) {
	p, err := process.Start(s)
	if err != nil {
		return nil, err
	}
	b.t.Cleanup(func() { p.Stop(0) })
	return p, nil
}

// restore starts the server from its snapshot; a nil child: there is none.
func (b *snapshotBench) restore(s *snapshot) (supervise.Child, supervise.Saved) {
	path := filepath.Join(s.Dir(), "s.sock")
	_ = os.Remove(path) // as Launch does
	b.launch = runtime.Launch{Path: os.Args[0], Args: append([]string{path}, b.args...), Env: b.env, Endpoint: api.Endpoint("unix:" + path)}
	child, saved := s.Restore(b.launch, b.start, nil)
	if child != nil {
		awaitServer(child, saved.Endpoint)
	}
	return child, saved
}

// begin starts the server: from its snapshot if there is one. It returns once the server answers, or has ended.
func (b *snapshotBench) begin(s *snapshot) (child supervise.Child, restored bool) {
	b.t.Helper()
	if child, _ := b.restore(s); child != nil {
		return child, true
	}
	child, err := b.start(process.Spec{Path: b.launch.Path, Args: b.launch.Args, Env: b.launch.Env})
	if err != nil {
		b.t.Fatal(err)
	}
	awaitServer(child, b.launch.Endpoint)
	return child, false
}

// awaitServer waits until the server answers, or has ended.
func awaitServer(child supervise.Child, at api.Endpoint) {
	path, _ := at.Socket()
	for {
		if c, err := net.Dial("unix", path); err == nil {
			_ = c.Close()
			return
		}
		select {
		case <-child.Exited():
			return
		case <-time.After(time.Millisecond):
		}
	}
}

func (b *snapshotBench) save(s *snapshot, c supervise.Child) error {
	return s.Save(context.Background(), api.MiB, supervise.Saved{PID: c.PID(), Canary: runtime.Answer{By: "/way", Text: "seven"}, Load: time.Minute})
}

// made returns a stopped server's snapshot.
func (b *snapshotBench) made() {
	b.t.Helper()
	s := b.open()
	c, restored := b.begin(s)
	if err := b.save(s, c); err != nil || restored {
		b.t.Fatalf("the first start: restored %t, then saved: %v", restored, err)
	}
	c.Stop(time.Second)
	s.Close()
}

func (b *snapshotBench) folder() string {
	return filepath.Join(b.cache.Dir(), "snapshots", "default.f")
}

// images returns the files of the snapshot.
func (b *snapshotBench) images() (names []string) {
	list, _ := os.ReadDir(b.folder())
	for _, f := range list {
		names = append(names, f.Name())
	}
	return names
}

func TestSnapshotLife(t *testing.T) {
	b := newSnapshotBench(t, 0)
	b.made()
	for _, path := range []string{b.folder(), filepath.Dir(b.folder())} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("the folder %s is %v (%v), want the mode 0700", path, info.Mode(), err)
		}
	}
	for _, name := range b.images() {
		if info, err := os.Stat(filepath.Join(b.folder(), name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has the mode %v (%v), want 0600", name, info.Mode(), err)
		}
	}
	first := b.launch.Endpoint
	s := b.open()
	if _, err := lockSnapshot(t.Context(), b.cache, "default.f", b.program, slog.New(slog.DiscardHandler), nil); err == nil {
		t.Error("two instances have one snapshot")
	}
	child, saved := b.restore(s)
	if child == nil {
		t.Fatal("the snapshot is not restored")
	}
	if saved.Endpoint != first || saved.Canary.Text != "seven" || saved.Load != time.Minute {
		t.Errorf("the snapshot says %+v", saved)
	}
	if b.now.Made.IsZero() || b.now.Size == 0 || b.now.Restore != 0 || b.now.Missing != "" {
		t.Errorf("before its restore it is reported as %+v", b.now)
	}
	s.Restored(time.Second, nil)
	if b.now.Restore != time.Second {
		t.Errorf("after its restore it is reported as %+v", b.now)
	}
	child.Stop(time.Second)
	s.Close()
	if fileExists(s.Dir()) {
		t.Error("the folder of its socket is left")
	}
	if !slices.Contains(b.images(), "snapshot.json") {
		t.Errorf("the snapshot has %v after its use", b.images())
	}
	raw, _ := os.ReadFile(filepath.Join(b.fake, "calls"))
	for _, want := range []string{"--leave-running --tcp-close --skip-in-flight", "[check]", "--inherit-fd fd[1]:pipe:["} {
		if !strings.Contains(string(raw), want) {
			t.Errorf("criu was not called with %s:\n%s", want, raw)
		}
	}
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// TestSnapshotValidity: a snapshot is deleted if anything of the start has changed.
func TestSnapshotValidity(t *testing.T) {
	model := filepath.Join(t.TempDir(), "m.gguf")
	write := func(text string) {
		if err := os.WriteFile(model, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, change := range map[string]func(*snapshotBench){
		"nothing":        func(*snapshotBench) {},
		"a shell's":      func(b *snapshotBench) { b.env = append(b.env, "SHLVL=3") },
		"an option":      func(b *snapshotBench) { b.args = append(b.args, "--new") },
		"a variable":     func(b *snapshotBench) { b.env = append(b.env, "A=b") },
		"the model file": func(*snapshotBench) { write("other") },
		"criu":           func(b *snapshotBench) { b.tell("criu", "#!/bin/sh\nexit 1\n") },
		"the record": func(b *snapshotBench) {
			_ = os.WriteFile(filepath.Join(b.folder(), "snapshot.json"), []byte(`{"finger`), 0o600)
		},
		"no record": func(b *snapshotBench) { _ = os.Remove(filepath.Join(b.folder(), "snapshot.json")) },
	} {
		t.Run(name, func(t *testing.T) {
			write("model")
			b := newSnapshotBench(t, 0)
			b.args = append(b.args, "--model="+model)
			b.made()
			change(b)
			s := b.open()
			defer s.Close()
			child, _ := b.restore(s)
			if want := name == "nothing" || name == "a shell's"; (child != nil) != want {
				t.Errorf("restored: %t, want %t", child != nil, want)
			}
			if child == nil && len(b.images()) > 0 {
				t.Errorf("the invalid snapshot still has %v", b.images())
			}
			missing := "changed after it was made"
			if strings.Contains(name, "record") {
				missing = "none was made yet"
			}
			if child == nil && !strings.Contains(b.now.Missing, missing) {
				t.Errorf("it is missing because %q, want %q", b.now.Missing, missing)
			}
		})
	}
}

// TestSnapshotKilled: criu is killed at each step, and what is left is never taken for a snapshot.
func TestSnapshotKilled(t *testing.T) {
	for _, at := range []string{"dump", "restore"} {
		t.Run(at, func(t *testing.T) {
			b := newSnapshotBench(t, 0)
			b.tell("dies", at)
			s := b.open()
			defer s.Close()
			c, _ := b.begin(s)
			err := b.save(s, c)
			if at == "dump" {
				if err == nil || !strings.Contains(err.Error(), "signal: killed") || len(b.images()) > 0 {
					t.Errorf("saved: %v; it has %v", err, b.images())
				}
				return
			}
			c.Stop(0)
			child, restored := b.begin(s)
			if !restored {
				t.Fatal("the snapshot is not restored")
			}
			<-child.Exited()
			s.Restored(0, errors.New(child.Status()))
			b.tell("dies", "")
			c, restored = b.begin(s) // as long as nothing of the start changes
			if err := b.save(s, c); err != nil || restored || !slices.Equal(b.images(), []string{"snapshot.json"}) {
				t.Errorf("after a failure: restored %t, saved %v, it has %v", restored, err, b.images())
			}
		})
	}
}

// TestSnapshotTornByKill: the function is killed while it makes a snapshot; the next one finds images without a record.
func TestSnapshotTornByKill(t *testing.T) {
	b := newSnapshotBench(t, 0)
	b.made()
	_ = os.Remove(filepath.Join(b.folder(), "snapshot.json"))
	_ = os.WriteFile(filepath.Join(b.folder(), "pages.img"), []byte("half"), 0o600)
	b.made()
	s := b.open()
	defer s.Close()
	if _, restored := b.begin(s); !restored {
		t.Error("the new snapshot is not used")
	}
}

// TestSnapshotSlower: a snapshot that is slower than a start is deleted, and not made again.
func TestSnapshotSlower(t *testing.T) {
	b := newSnapshotBench(t, 0)
	b.made()
	s := b.open()
	defer s.Close()
	c, _ := b.begin(s)
	s.Restored(2*time.Minute, nil)
	c.Stop(0)
	c, restored := b.begin(s)
	if err := b.save(s, c); err != nil || restored || !slices.Equal(b.images(), []string{"snapshot.json"}) {
		t.Errorf("restored %t, saved %v, it has %v", restored, err, b.images())
	}
	if want := (api.Snapshot{Missing: "its last restore failed, or was no faster than a usual start"}); b.now != want {
		t.Errorf("it is reported as %+v", b.now)
	}
}

func TestSnapshotRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		set, to, want string
		limit         api.Bytes
	}{
		"no permission":      {"fails", "check", "CAP_CHECKPOINT_RESTORE", 0},
		"an external socket": {"fails", "dump", "External socket", 0},
		"no room":            {"fails", "", "raise the limit", 1000},
	} {
		t.Run(name, func(t *testing.T) {
			b := newSnapshotBench(t, c.limit)
			b.tell(c.set, c.to)
			s := b.open()
			defer s.Close()
			child, _ := b.begin(s)
			if err := b.save(s, child); err == nil || !strings.Contains(err.Error(), c.want) || len(b.images()) > 0 {
				t.Errorf("saved: %v, want %q; it has %v", err, c.want, b.images())
			}
		})
	}
}

// TestRealCRIU saves and restores a process by criu itself: its state, its socket and its output are those of before.
func TestRealCRIU(t *testing.T) {
	criu, err := exec.LookPath("criu")
	if err != nil {
		t.Skip("there is no criu in PATH")
	}
	if out, err := exec.Command(criu, "check").CombinedOutput(); err != nil {
		t.Skipf("criu can't work here: %s", out)
	}
	b := newSnapshotBench(t, 0)
	b.program = criu
	b.made()
	s := b.open()
	defer s.Close()
	child, restored := b.begin(s)
	if !restored {
		t.Fatal("not restored")
	}
	path, _ := b.launch.Endpoint.Socket()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 10)
	n, err := c.Read(buf)
	if got, _ := strconv.Atoi(strings.TrimSpace(string(buf[:n]))); got < 3 {
		t.Errorf("it counts %d connections (%v), want those of before too", got, err)
	}
	_ = c.Close()
	child.Kill()
	<-child.Exited()
	if c, err := net.Dial("unix", path); err == nil {
		_ = c.Close()
		t.Error("the process outlives its criu")
	}
}

// TestSnapshotPortTaken: a server that listens where the restored process would is never taken for it.
func TestSnapshotPortTaken(t *testing.T) {
	b := newSnapshotBench(t, 0)
	s := b.open()
	defer s.Close()
	c, _ := b.begin(s)
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	l := runtime.Launch{Path: os.Args[0], Endpoint: api.Endpoint("http://" + other.Addr().String())}
	s.Restore(l, b.start, nil)
	if err := b.save(s, c); err != nil {
		t.Fatal(err)
	}
	if child, _ := s.Restore(l, b.start, nil); child != nil || !slices.Contains(b.images(), "pages.img") {
		t.Errorf("restored: %t; it has %v", child != nil, b.images())
	}
	_ = other.Close()
	if child, _ := s.Restore(l, b.start, nil); child == nil {
		t.Error("not restored once the port is free")
	}
}
