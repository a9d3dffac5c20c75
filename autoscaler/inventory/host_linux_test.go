package inventory

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
)

func TestMeminfo(t *testing.T) {
	got, err := parseMeminfo("MemTotal:       16384 kB\nMemFree:          1 kB\nMemAvailable:    8192 kB\n")
	if want := (memory{16 * api.MiB, 8 * api.MiB}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if _, err := parseMeminfo("MemTotal: x kB\n"); err == nil {
		t.Error("a file without numbers was taken")
	}
}

func TestWithin(t *testing.T) {
	m := memory{total: 16 * api.GiB, available: 12 * api.GiB}
	for _, c := range []struct {
		name         string
		limit, usage api.Bytes
		want         memory
	}{
		{"no limit", 0, api.GiB, m},
		{"a limit beyond the machine", 64 * api.GiB, api.GiB, m},
		{"a limit", 4 * api.GiB, api.GiB, memory{4 * api.GiB, 3 * api.GiB}},
		{"a limit that is used up", 4 * api.GiB, 5 * api.GiB, memory{4 * api.GiB, 0}},
	} {
		if got := m.within(c.limit, c.usage); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestCgroupFiles(t *testing.T) {
	got := cgroupFiles("/sys/fs/cgroup", "0::/a/b\n")
	want := []cgroup{
		{"/sys/fs/cgroup/a/b/memory.max", "/sys/fs/cgroup/a/b/memory.current"},
		{"/sys/fs/cgroup/a/memory.max", "/sys/fs/cgroup/a/memory.current"},
		{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(cgroup{})); diff != "" {
		t.Errorf("version 2 (-want +got):\n%s", diff)
	}
	got = cgroupFiles("/sys/fs/cgroup", "5:cpu,memory:/x\n3:pids:/x\nnonsense\n")
	want = []cgroup{
		{"/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "/sys/fs/cgroup/memory/x/memory.usage_in_bytes"},
		{"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(cgroup{})); diff != "" {
		t.Errorf("version 1 (-want +got):\n%s", diff)
	}
}

func TestReadBytes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "memory.max")
	for content, want := range map[string]api.Bytes{"max\n": 0, "1048576\n": api.MiB, "": 0} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := readBytes(path); got != want {
			t.Errorf("%q: got %s, want %s", content, got, want)
		}
	}
	if got := readBytes(path + "x"); got != 0 {
		t.Errorf("a file that is not there: got %s, want 0", got)
	}
}
