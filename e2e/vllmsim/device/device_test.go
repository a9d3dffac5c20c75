package device

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const gib = int64(1) << 30

// TestMain is also the process that holds memory until its input ends.
func TestMain(m *testing.M) {
	if dir := os.Getenv("HOLD_IN"); dir != "" {
		c, err := Open(Config{Dir: dir, Name: "holder"})
		if err == nil {
			err = c.Resize(30 * gib)
		}
		if err != nil {
			os.Stdout.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Stdout.WriteString("held\n")
		_, _ = os.Stdin.Read(make([]byte, 1))
		select {} // killed, or it has failed the test
	}
	os.Exit(m.Run())
}

func folderOf(t *testing.T, memory ...int64) string {
	t.Helper()
	dir := t.TempDir()
	for i, m := range memory {
		if err := Create(dir, New(i, m)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func openOne(t *testing.T, cfg Config) *Client {
	t.Helper()
	c, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func used(t *testing.T, dir string) (all []int64) {
	t.Helper()
	devices, err := List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range devices {
		all = append(all, d.Used()/gib)
	}
	return all
}

func TestTwoShareOneDevice(t *testing.T) {
	dir := folderOf(t, 80*gib)
	a, b := openOne(t, Config{Dir: dir, Name: "a"}), openOne(t, Config{Dir: dir, Name: "b"})
	if err := a.Resize(50 * gib); err != nil {
		t.Fatal(err)
	}
	if err := b.Resize(50 * gib); !errors.Is(err, ErrOutOfMemory) {
		t.Errorf("50 + 50 of 80 GiB: %v, want out of memory", err)
	}
	if err := b.Resize(30 * gib); err != nil {
		t.Errorf("50 + 30 of 80 GiB: %v", err)
	}
	if err := a.Resize(1 * gib); err != nil { // asleep
		t.Fatal(err)
	}
	if err := b.Resize(79 * gib); err != nil {
		t.Errorf("1 + 79 of 80 GiB: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if got := used(t, dir); got[0] != 79 {
		t.Errorf("%v GiB used, want 79", got)
	}
}

func TestVisible(t *testing.T) {
	dir := folderOf(t, 80*gib, 80*gib)
	s := func(s string) *string { return &s }
	for _, tt := range []struct {
		visible *string
		memory  int64
		want    int // index of the device; -1: no such device
	}{
		{nil, 0, 0}, {s("1"), 0, 1}, {s("1,0"), 0, 1}, {s(New(1, 1).UUID), 0, 1}, {s("GPU-"), 0, 0},
		{s(""), 0, -1}, {s("7"), 0, -1}, {s("GPU-none"), gib, -1}, {s("-1"), gib, -1},
		{s("5"), gib, 5}, // made, since its memory is known
	} {
		c, err := Open(Config{Dir: dir, Visible: tt.visible, Memory: tt.memory})
		if tt.want < 0 {
			if !errors.Is(err, ErrNoDevice) {
				t.Errorf("%v of 2: %v, want no such device", *tt.visible, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%+v: %v", tt, err)
			continue
		}
		if c.index != tt.want {
			t.Errorf("%+v: device %d", tt, c.index)
		}
		_ = c.Close()
	}
	if c := openOne(t, Config{Dir: filepath.Join(t.TempDir(), "new"), Visible: s("0")}); c == nil {
		t.Error("an empty folder gets its first device")
	}
}

func TestBadFiles(t *testing.T) {
	dir := folderOf(t, 80*gib)
	if err := os.WriteFile(filepath.Join(dir, "gpu0.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), "gpu0.json") {
		t.Errorf("%v, want the file named", err)
	}
	for _, d := range []Device{{}, {Index: -1, UUID: "x", Memory: 1}, {UUID: "../x", Memory: 1}} {
		if err := Create(dir, d); err == nil {
			t.Errorf("%+v is created", d)
		}
	}
	if _, err := Open(Config{}); err == nil {
		t.Error("no folder is accepted")
	}
}

func TestLostDevice(t *testing.T) {
	dir := folderOf(t, 80*gib)
	c := openOne(t, Config{Dir: dir})
	if err := Remove(dir, 0); err != nil {
		t.Fatal(err)
	}
	if err := c.Resize(gib); !errors.Is(err, ErrNoDevice) {
		t.Errorf("%v, want no such device", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// TestKilledProcessHoldsNothing also shows that a lock works between processes.
func TestKilledProcessHoldsNothing(t *testing.T) {
	dir := folderOf(t, 80*gib)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "HOLD_IN="+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 100)
	n, _ := out.Read(line)
	if got := string(line[:n]); got != "held\n" {
		t.Fatalf("the other process says %q", got)
	}
	mine := openOne(t, Config{Dir: dir})
	if err := mine.Resize(60 * gib); !errors.Is(err, ErrOutOfMemory) {
		t.Errorf("beside 30 GiB of another process: %v, want out of memory", err)
	}
	var smi bytes.Buffer
	if code := NvidiaSMI(dir, "", []string{"--query-compute-apps=process_name,used_memory", "--format=csv,noheader,nounits"}, &smi, &smi); code != 0 || smi.String() != "holder, 30720\n" {
		t.Errorf("nvidia-smi (%d):\n%s", code, smi.String())
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err := mine.Resize(60 * gib); err != nil {
		t.Errorf("after the other was killed: %v", err)
	}
	if left, _ := os.ReadDir(filepath.Join(dir, clients)); len(left) != 1 {
		t.Errorf("%d client files, want only this test's", len(left))
	}
}

func TestNvidiaSMI(t *testing.T) {
	dir := folderOf(t, 80*gib, 24*gib)
	if err := openOne(t, Config{Dir: dir}).Resize(10 * gib); err != nil {
		t.Fatal(err)
	}
	first, second := New(0, 1).UUID, New(1, 1).UUID
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"--query-gpu=uuid,name,memory.total,memory.used --format=csv,noheader,nounits", 0,
			first + ", Simulated GPU, 81920, 10240\n" + second + ", Simulated GPU, 24576, 0\n"},
		{"--query-gpu=index,memory.total --format=csv", 0, "index, memory.total [MiB]\n0, 81920 MiB\n1, 24576 MiB\n"},
		{"--query-gpu=colour --format=csv", 2, "Field \"colour\" is not a valid field to query.\n\n"},
	} {
		var out, errs bytes.Buffer
		if code := NvidiaSMI(dir, "", strings.Fields(tt.args), &out, &errs); code != tt.code || out.String() != tt.want {
			t.Errorf("nvidia-smi %s: %d\n%swant %d\n%s", tt.args, code, out.String(), tt.code, tt.want)
		}
	}
	var none bytes.Buffer
	if code := NvidiaSMI(dir, "7", []string{"--query-gpu=uuid", "--format=csv"}, &none, &none); code != 6 || none.String() != "No devices were found\n" {
		t.Errorf("a device that is not there: %d %s", code, none.String())
	}
	for _, args := range []string{"", "--query-gpu=uuid", "--no-such"} {
		var out bytes.Buffer
		if code := NvidiaSMI(dir, "", strings.Fields(args), &out, &out); code == 0 || out.Len() == 0 {
			t.Errorf("nvidia-smi %s: %d %q, want a failure that says why", args, code, out.String())
		}
	}
}
