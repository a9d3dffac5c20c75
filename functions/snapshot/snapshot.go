package snapshot

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/fetch"
	"github.com/rouse-dev/rouse/functions/owner"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/functions/runtime"
	"github.com/rouse-dev/rouse/functions/supervise"
	"github.com/rouse-dev/rouse/internal/disk"
)

// mostFailures is how many restores in a row may fail before no more snapshots are made.
const mostFailures = 2

// Config configures a [Snapshot].
type Config struct {
	// Cache is the cache of models, whose limit bounds snapshots too.
	Cache *fetch.Cache
	// Name tells the function's snapshot from others'; it is a file name.
	Name string
	// Dir is the folder of the instance. It may differ from start to start.
	Dir string
	// Program is the path of criu.
	Program string
	Logger  *slog.Logger
}

// Snapshot is a function's snapshot; it is a [supervise.Snapshots].
type Snapshot struct {
	cfg     Config
	dir     string // of the images
	release func() // unlocks dir; nil: it is not locked
	made    string // a folder that Restore created for the socket; empty: none
	launch  runtime.Launch
	record  record
}

// record describes the images beside it.
type record struct {
	Fingerprint string         `json:"fingerprint"`
	Endpoint    api.Endpoint   `json:"endpoint"`
	PID         int            `json:"pid"`
	Output      string         `json:"output"` // the pipe of its output, as /proc names it
	Canary      runtime.Answer `json:"canary"`
	Load        time.Duration  `json:"load"`               // of the usual start
	Restore     time.Duration  `json:"restore,omitempty"`  // of the last restore; 0: none yet
	Failures    int            `json:"failures,omitempty"` // restores in a row
	Size        api.Bytes      `json:"size"`
	Made        time.Time      `json:"made"`
}

// New returns the function's snapshot. It touches no file.
func New(cfg Config) *Snapshot { return &Snapshot{cfg: cfg} }

// useless reports whether the images would not be used again.
func (r record) useless() bool {
	return r.Failures >= mostFailures || r.Restore > 0 && r.Restore >= r.Load
}

// Restore implements [supervise.Snapshots].
func (s *Snapshot) Restore(l runtime.Launch, start func(process.Spec) (supervise.Child, error), lines func([]byte)) (supervise.Child, supervise.Saved) {
	if s.release == nil {
		dir, release, err := s.cfg.Cache.HoldSnapshot(s.cfg.Name)
		if err != nil {
			s.cfg.Logger.Info("starting without a snapshot", "reason", err)
			return nil, supervise.Saved{}
		}
		s.dir, s.release = dir, release
	}
	s.launch = l
	now := s.fingerprint(l)
	raw, err := os.ReadFile(s.path("snapshot.json"))
	r := record{}
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	if err != nil || r.Fingerprint != now {
		s.record = record{Fingerprint: now}
		s.clear()
		return nil, supervise.Saved{}
	}
	s.record = r
	if r.useless() || r.Size == 0 {
		return nil, supervise.Saved{}
	}
	child, err := s.start(start, lines)
	if err != nil {
		s.Restored(0, err)
		return nil, supervise.Saved{}
	}
	s.cfg.Logger.Info("restoring a snapshot", "size", r.Size.String(), "age", time.Since(r.Made).Round(time.Second))
	return child, supervise.Saved{Endpoint: r.Endpoint, Canary: r.Canary, Load: r.Load}
}

func (s *Snapshot) start(start func(process.Spec) (supervise.Child, error), lines func([]byte)) (supervise.Child, error) {
	if err := s.makeSocketFolder(); err != nil {
		return nil, err
	}
	args := []string{"restore", "-D", s.dir, "-o", "restore.log", "--tcp-close", "--file-locks"}
	if s.record.Output != "" {
		args = append(args, "--inherit-fd", "fd[1]:"+s.record.Output)
	}
	child, err := start(process.Spec{Path: s.cfg.Program, Args: args, Env: []string{"PATH=" + os.Getenv("PATH")}, Dir: s.dir, Lines: lines})
	if err != nil {
		return nil, err
	}
	return restored{child, s.record.PID}, nil
}

// makeSocketFolder makes the folder of the process's Unix socket, if it has one, and removes what an earlier process left at its path.
func (s *Snapshot) makeSocketFolder() error {
	path, unix := s.record.Endpoint.Socket()
	if !unix {
		return nil
	}
	dir, missing := filepath.Dir(path), ""
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Lstat(d); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		missing = d
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	s.made = cmp.Or(missing, s.made)
	if err := owner.CheckFolder(dir); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Restored implements [supervise.Snapshots].
func (s *Snapshot) Restored(took time.Duration, failed error) {
	if failed != nil {
		s.record.Failures++
		s.record.Restore = 0
		s.cfg.Logger.Warn("deleting the snapshot: it could not be restored", "reason", failed, "criu", firstError(s.path("restore.log")))
		s.clear()
	} else {
		s.record.Failures, s.record.Restore = 0, took
		if s.record.useless() {
			s.cfg.Logger.Info("deleting the snapshot: it is slower than a usual start", "restore", took, "start", s.record.Load)
			s.clear()
		}
	}
	s.write()
}

// Save implements [supervise.Snapshots].
func (s *Snapshot) Save(ctx context.Context, pid int, memory api.Bytes, load time.Duration, canary runtime.Answer) error {
	if s.release == nil || s.record.useless() {
		return nil
	}
	if err := s.check(ctx); err != nil {
		return err
	}
	if err := s.cfg.Cache.MakeRoom(ctx, memory); err != nil {
		return err
	}
	s.clear()
	began := time.Now()
	r := record{Fingerprint: s.fingerprint(s.launch), Endpoint: s.launch.Endpoint, PID: pid, Canary: canary, Load: load, Failures: s.record.Failures, Made: began}
	args := []string{"dump", "-t", strconv.Itoa(pid), "-D", s.dir, "-o", "dump.log", "--leave-running", "--tcp-close", "--skip-in-flight", "--file-locks", "--ghost-limit", "1G"}
	if out, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/fd/1"); err == nil && strings.HasPrefix(out, "pipe:") {
		r.Output = out
		args = append(args, "--external", out)
	}
	err := s.criu(ctx, args...)
	if err == nil {
		r.Size, err = s.protect()
	}
	if err != nil {
		err = fmt.Errorf("make a snapshot: %w: %s", err, firstError(s.path("dump.log")))
		s.clear()
		return err
	}
	s.record = r
	s.write()
	s.cfg.Logger.Info("made a snapshot", "size", r.Size.String(), "took", time.Since(began).Round(time.Millisecond), "folder", s.dir)
	return nil
}

// check reports an error unless criu is version 4 or newer and may work here.
func (s *Snapshot) check(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, s.cfg.Program, "--version").Output()
	version, _, _ := strings.Cut(strings.TrimPrefix(string(out), "Version: "), ".")
	if n, bad := strconv.Atoi(version); err == nil && (bad != nil || n < 4) {
		err = fmt.Errorf("%s is older than CRIU 4: install a newer one", s.cfg.Program)
	}
	if err == nil {
		if err = s.criu(ctx, "check"); err != nil {
			err = fmt.Errorf("criu can't work here (it needs root or CAP_CHECKPOINT_RESTORE, and its kernel options): %w", err)
		}
	}
	return err
}

func (s *Snapshot) criu(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, s.cfg.Program, args...)
	cmd.WaitDelay = time.Second
	return cmd.Run()
}

// protect sets the modes of the images, and returns their size.
func (s *Snapshot) protect() (size api.Bytes, err error) {
	return size, filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		size += api.Bytes(info.Size())
		return os.Chmod(path, 0o600)
	})
}

// clear removes all files but the folder itself, the record first.
func (s *Snapshot) clear() {
	_ = os.Remove(s.path("snapshot.json"))
	_ = os.RemoveAll(s.dir)
	_ = os.Mkdir(s.dir, 0o700) // the next write reports a failure
	s.record.Size = 0
}

// write writes the record.
func (s *Snapshot) write() {
	raw, err := json.Marshal(s.record)
	if err == nil {
		err = disk.WriteFile(s.path("snapshot.json"), raw, 0o600)
	}
	if err != nil {
		s.cfg.Logger.Warn("deleting the snapshot: its record could not be written", "error", err)
		s.clear()
	}
}

func (s *Snapshot) path(name string) string { return filepath.Join(s.dir, name) }

// Release implements [supervise.Snapshots].
func (s *Snapshot) Release() {
	if s.made != "" {
		_ = os.RemoveAll(s.made)
		s.made = ""
	}
	if s.release != nil {
		s.release()
		s.release = nil
	}
}

// firstError returns the first error in a log of criu, beside one that does no harm.
func firstError(path string) string {
	raw, _ := os.ReadFile(path)
	for line := range strings.Lines(string(raw)) {
		if strings.Contains(line, "Error (") && !strings.Contains(line, "rlimit:") {
			return strings.TrimSpace(line)
		}
	}
	return "no error in its log"
}
