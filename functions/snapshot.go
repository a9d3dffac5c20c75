package functions

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/fetch"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/functions/runtime"
	"github.com/rouse-dev/rouse/functions/supervise"
	"github.com/rouse-dev/rouse/internal/disk"
	"github.com/rouse-dev/rouse/internal/localhttp"
)

// snapshot keeps a runtime's process on the node's disk, made by CRIU, so that the next start need not load the model again. It
// implements [supervise.Snapshots], which one goroutine calls at a time.
//
// It is valid for the same command line, environment, program, model files, CRIU and boot. criu stays the parent of the restored process,
// and the kernel kills that with it. A folder without the record, which is written last, is no snapshot.
//
// A snapshot holds the process's secrets too: the folder has the mode 0700, its files 0600.
type snapshot struct {
	cache    *fetch.Cache
	program  string
	log      *slog.Logger
	report   func(api.Snapshot)
	dir, run string // of the images, and of the instance
	release  func()
	launch   runtime.Launch
	record   snapshotRecord
}

// lockSnapshot locks the snapshot called name until Close, against eviction and other instances; it fails if one has it. program is the
// path of criu. report receives changes from the first Restore on.
func lockSnapshot(ctx context.Context, cache *fetch.Cache, name, program string, log *slog.Logger, report func(api.Snapshot)) (*snapshot, error) {
	folder, err := cache.HoldFolder(ctx, fetch.Snapshots, name, true)
	if err != nil {
		return nil, err
	}
	s := &snapshot{cache: cache, program: program, log: log, report: report, dir: folder.Path, release: folder.Release}
	s.run = filepath.Join(os.TempDir(), fmt.Sprintf("rouse-%x", sha256.Sum256([]byte(s.dir)))[:22])
	if err = os.MkdirAll(s.run, 0o700); err == nil {
		err = localhttp.CheckFolder(s.run)
	}
	if err != nil {
		s.release()
		return nil, err
	}
	return s, nil
}

// Dir returns the folder for the instance's sockets. It is the same at each start: a restored process listens where it did.
func (s *snapshot) Dir() string { return s.run }

func (s *snapshot) Close() {
	_ = os.RemoveAll(s.run)
	s.release()
}

type snapshotRecord struct {
	supervise.Saved
	Fingerprint string
	Args        []string      // of criu
	Restore     time.Duration // of the last restore, at least Load after a failure; 0: none yet
	Made        time.Time
	Size        api.Bytes
}

// useless reports whether the last restore failed or was no faster than a usual start.
func (r snapshotRecord) useless() bool { return r.Load > 0 && r.Restore >= r.Load }

func (s *snapshot) Restore(l runtime.Launch, start func(process.Spec) (supervise.Child, error), lines func([]byte)) (child supervise.Child, of supervise.Saved) {
	s.launch, s.record = l, snapshotRecord{}
	raw, err := os.ReadFile(s.path("snapshot.json"))
	if err == nil {
		err = json.Unmarshal(raw, &s.record)
	}
	if err != nil || s.record.Fingerprint != s.fingerprint(l) {
		missing := "the command line, environment, program, model files or criu changed after it was made, or the machine was booted"
		if err != nil {
			missing = "none was made yet"
		}
		s.record = snapshotRecord{}
		s.clear()
		s.report(api.Snapshot{Missing: missing})
		return nil, of
	}
	s.reportRecord()
	if s.record.useless() {
		return nil, of
	}
	if u, _ := url.Parse(string(s.record.Endpoint)); u != nil && u.Host != "" {
		free, err := net.Listen("tcp", u.Host)
		if err != nil { // who listens there would be taken for the restored process
			s.log.Info("starting without the snapshot: its port is in use", "reason", err)
			return nil, of
		}
		_ = free.Close()
	}
	child, err = start(process.Spec{Path: s.program, Args: s.record.Args, Env: []string{"PATH=" + os.Getenv("PATH")}, Dir: s.dir, Lines: lines})
	if err != nil {
		s.Restored(0, err)
		return nil, of
	}
	s.log.Info("restoring a snapshot", "age", time.Since(s.record.Made).Round(time.Second))
	return child, s.record.Saved
}

func (s *snapshot) Restored(took time.Duration, failed error) {
	if s.record.Restore = took; failed != nil {
		s.record.Restore = s.record.Load
	}
	if s.record.useless() {
		s.log.Warn("deleting the snapshot: it can't be restored, or is slower than a usual start", "error", failed, "restore", took, "start", s.record.Load, "criu", firstError(s.path("restore.log")))
		s.clear()
	}
	s.write()
}

func (s *snapshot) Save(ctx context.Context, memory api.Bytes, of supervise.Saved) error {
	if s.record.useless() {
		return nil
	}
	if err := s.criu(ctx, "check"); err != nil {
		return fmt.Errorf("criu can't work here: it needs root or CAP_CHECKPOINT_RESTORE, and options of the kernel that criu check names: %w", err)
	}
	if err := s.cache.MakeRoom(ctx, memory); err != nil {
		return err
	}
	s.clear()
	of.Endpoint = s.launch.Endpoint
	s.record = snapshotRecord{
		Saved: of, Fingerprint: s.fingerprint(s.launch), Made: time.Now(),
		Args: []string{"restore", "-D", s.dir, "-o", "restore.log", "--tcp-close", "--file-locks"},
	}
	pid := strconv.Itoa(of.PID)
	args := []string{"dump", "-t", pid, "-D", s.dir, "-o", "dump.log", "--leave-running", "--tcp-close", "--skip-in-flight", "--file-locks", "--ghost-limit", "1G"}
	if out, _ := os.Readlink("/proc/" + pid + "/fd/1"); strings.HasPrefix(out, "pipe:") {
		args = append(args, "--external", out)
		s.record.Args = append(s.record.Args, "--inherit-fd", "fd[1]:"+out)
	}
	if err := s.criu(ctx, args...); err != nil {
		err = fmt.Errorf("make a snapshot: %w: %s", err, firstError(s.path("dump.log")))
		s.clear()
		return err
	}
	files, _ := os.ReadDir(s.dir)
	for _, f := range files {
		if info, err := f.Info(); err == nil {
			s.record.Size += api.Bytes(info.Size())
		}
	}
	s.log.Info("made a snapshot", "memory", memory.String(), "took", time.Since(s.record.Made).Round(time.Millisecond), "folder", s.dir)
	s.write()
	return nil
}

func (s *snapshot) criu(ctx context.Context, args ...string) error {
	return exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", `umask 077; exec "$0" "$@"`, s.program}, args...)...).Run()
}

// clear removes the record first: without it there is no snapshot.
func (s *snapshot) clear() {
	_ = os.Remove(s.path("snapshot.json"))
	_ = os.RemoveAll(s.dir)
	_ = os.Mkdir(s.dir, 0o700)
}

func (s *snapshot) reportRecord() {
	now := api.Snapshot{Made: s.record.Made, Size: s.record.Size, Restore: s.record.Restore}
	if s.record.useless() {
		now = api.Snapshot{Missing: "its last restore failed, or was no faster than a usual start"}
	}
	s.report(now)
}

func (s *snapshot) write() {
	s.reportRecord()
	raw, _ := json.Marshal(s.record)
	if err := disk.WriteFile(s.path("snapshot.json"), raw, 0o600); err != nil {
		s.log.Warn("writing the record of a snapshot failed", "error", err)
	}
}

func (s *snapshot) path(name string) string { return filepath.Join(s.dir, name) }

// firstError returns the first error in a log of criu, but for a harmless one.
func firstError(path string) string {
	raw, _ := os.ReadFile(path)
	for line := range strings.Lines(string(raw)) {
		if strings.Contains(line, "Error (") && !strings.Contains(line, "rlimit:") {
			return strings.TrimSpace(line)
		}
	}
	return "no error in its log"
}

// fingerprint returns a digest of all that must be the same at a restore, but for the port. Over a boot of the machine a process's clocks
// would go backwards.
func (s *snapshot) fingerprint(l runtime.Launch) string {
	varies := []string{}
	if u, err := url.Parse(string(l.Endpoint)); err == nil && u.Port() != "" {
		varies = append(varies, u.Port(), "$(PORT)")
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	h := sha256.New()
	fmt.Fprintf(h, "%s%d", boot, os.Getuid())
	same := strings.NewReplacer(varies...)
	for _, kv := range slices.Sorted(slices.Values(l.Env)) {
		if name, _, _ := strings.Cut(kv, "="); !slices.Contains([]string{"_", "SHLVL", "PWD", "OLDPWD"}, name) { // a shell's own
			fmt.Fprintf(h, "%q", same.Replace(kv))
		}
	}
	for _, word := range append([]string{s.program, l.Path}, l.Args...) {
		fmt.Fprintf(h, "%q", same.Replace(word))
		if _, value, found := strings.Cut(word, "="); found {
			word = value
		}
		files := []string{word}
		for _, pattern := range []string{"*.json", "*.safetensors"} {
			found, _ := filepath.Glob(filepath.Join(word, pattern))
			files = append(files, found...)
		}
		for _, path := range files {
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				fmt.Fprintf(h, "%q %d %d", path, info.Size(), info.ModTime().UnixNano())
			}
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}
