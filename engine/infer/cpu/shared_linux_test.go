package cpu_test

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/infer/cpu"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
)

// TestTilesShared checks that four processes that serve one file have its weights in memory once. Their shares, with each
// page divided by the number of processes that map it, add up to the memory of one process alone.
func TestTilesShared(t *testing.T) {
	if path := os.Getenv("CPU_TEST_SHARED"); path != "" {
		serveShared(t, path)
		return
	}
	path := infertest.File(t, infertest.Spec{Type: gguf.Q8_0, Untied: true, Dim: 256, Layers: 12, FFN: 1024})
	dir := filepath.Join(t.TempDir(), "tiles")
	open(t, path, cpu.Config{TileDir: dir, TileFrom: 1}) // the file is made, and mapped here too
	files, err := filepath.Glob(filepath.Join(dir, "*.tiles"))
	if err != nil || len(files) != 1 {
		t.Fatalf("tile files: %v, %v", files, err)
	}
	size := fileKiB(t, files[0])
	var all []*sharer
	for range 3 {
		all = append(all, startSharer(t, path, dir))
	}
	total := mapped(t, "self", files[0])
	for _, s := range all {
		pss := mapped(t, fmt.Sprint(s.Process.Pid), files[0])
		if pss.rss < size*9/10 {
			t.Errorf("a process has %d KiB of the %d KiB of weights in memory: it shares nothing yet", pss.rss, size)
		}
		total.pss += pss.pss
		total.private += pss.private
	}
	if total.pss > size*11/10 {
		t.Errorf("four processes hold %d KiB of weights of %d KiB", total.pss, size)
	}
	if total.private > size/10 {
		t.Errorf("%d KiB of weights are some process's own", total.private)
	}
}

// serveShared is one of the processes: it computes once, and holds the model until its input ends.
func serveShared(t *testing.T, path string) {
	if uid, err := strconv.Atoi(os.Getenv("CPU_TEST_USER")); err == nil {
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(uid), syscall.Setuid(uid)); err != nil {
			t.Fatal(err)
		}
	}
	for path := range strings.FieldsSeq(os.Getenv("CPU_TEST_REFUSED")) { // paths that it may not read
		_, err := os.Open(path)
		_, err2 := os.OpenFile(path, os.O_WRONLY, 0)
		if !errors.Is(err, fs.ErrPermission) || !errors.Is(err2, fs.ErrPermission) || !errors.Is(os.Truncate(path, 0), fs.ErrPermission) {
			t.Fatalf("a process that has no right to %s can open it: %v, %v", path, err, err2)
		}
	}
	r := open(t, path, cpu.Config{Threads: 1, TileDir: os.Getenv("CPU_TEST_TILES"), TileFrom: 1})
	forward(t, r, infer.Item{Tokens: tokens(4, 400, 1), Blocks: blocks(0, 1), Want: infer.Last})
	files, _ := filepath.Glob(filepath.Join(os.Getenv("CPU_TEST_TILES"), "*.tiles")) // the pattern is well formed
	for _, f := range files {
		if os.Getuid() == 0 {
			break // root may read anything
		}
		if _, err := os.OpenFile(f, os.O_RDWR, 0); !errors.Is(err, fs.ErrPermission) || !errors.Is(os.Truncate(f, 0), fs.ErrPermission) {
			t.Fatalf("a process that shares the packed model can change it: %v", err)
		}
	}
	fmt.Println("ready")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
}

// TestTilesOfOthers checks that another user's process can't open the packed file, and packs the model for itself if
// it may read that. The user's own processes share the file, and can't change it.
func TestTilesOfOthers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("it takes root to be several users")
	}
	place, err := os.MkdirTemp("", "rouse-tiles") // all users can reach it, unlike t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(place) })
	model, err := os.ReadFile(infertest.File(t, infertest.Spec{Type: gguf.Q8_0, Untied: true, Dim: 256, Layers: 12, FFN: 1024}))
	if err != nil {
		t.Fatal(err)
	}
	path, dir := filepath.Join(place, "m.gguf"), filepath.Join(place, "tiles")
	err = errors.Join(os.Chmod(place, 0o755), os.WriteFile(path, model, 0o600), os.Chmod(path, 0o644), //#nosec G302 -- what is tested
		os.Mkdir(dir, 0o700), os.Chown(dir, 61001, 61001))
	if err != nil {
		t.Fatal(err)
	}
	ours := []*sharer{startSharer(t, path, dir, "CPU_TEST_USER=61001"), startSharer(t, path, dir, "CPU_TEST_USER=61001")}
	files, err := filepath.Glob(filepath.Join(dir, "*.tiles"))
	if err != nil || len(files) != 1 {
		t.Fatalf("tile files: %v, %v", files, err)
	}
	theirs := startSharer(t, path, dir, "CPU_TEST_USER=61002", "CPU_TEST_REFUSED="+files[0])
	for _, s := range ours {
		if h := mapped(t, fmt.Sprint(s.Process.Pid), files[0]); h.rss == 0 || h.private > 0 {
			t.Errorf("a process of the user has %+v KiB of the packed model", h)
		}
	}
	if h := mapped(t, fmt.Sprint(theirs.Process.Pid), files[0]); h != (held{}) {
		t.Errorf("another user's process has %+v KiB of the packed model", h)
	}
}

type sharer struct{ *exec.Cmd }

func startSharer(t *testing.T, path, dir string, env ...string) *sharer {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestTilesShared$")
	cmd.Env = append(append(os.Environ(), "CPU_TEST_SHARED="+path, "CPU_TEST_TILES="+dir), env...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "ready") {
			return &sharer{cmd}
		}
	}
	t.Fatalf("a process ends before it is ready: %v", lines.Err())
	return nil
}

func fileKiB(t *testing.T, path string) int64 {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.Size() >> 10
}

// held is the memory of a process that belongs to a mapped file, in KiB.
type held struct{ rss, pss, private int64 }

// mapped reads /proc/PID/smaps.
func mapped(t *testing.T, pid, file string) held {
	t.Helper()
	f, err := os.Open("/proc/" + pid + "/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var h held
	of := false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		var n int64
		switch key, rest, _ := strings.Cut(line, ":"); {
		case strings.Contains(key, "-") && strings.Contains(line, " "):
			of = strings.HasSuffix(line, file)
		case !of:
		case key == "Rss" || key == "Pss" || key == "Private_Clean" || key == "Private_Dirty":
			if _, err := fmt.Sscanf(rest, "%d kB", &n); err != nil {
				t.Fatal(err)
			}
			switch key {
			case "Rss":
				h.rss += n
			case "Pss":
				h.pss += n
			default:
				h.private += n
			}
		}
	}
	return h
}
