package inventory

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rouse-dev/rouse/api"
)

func hostMemory() (memory, error) {
	raw, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return memory{}, fmt.Errorf("host memory: %w", err)
	}
	m, err := parseMeminfo(string(raw))
	if err != nil {
		return memory{}, err
	}
	own, _ := os.ReadFile("/proc/self/cgroup")
	for _, g := range cgroupFiles("/sys/fs/cgroup", string(own)) {
		m = m.within(readBytes(g.limit), readBytes(g.usage))
	}
	return m, nil
}

// within applies a limit, of which usage is taken; 0: none.
func (m memory) within(limit, usage api.Bytes) memory {
	if limit <= 0 || limit > m.total {
		return m
	}
	m.total = limit
	m.available = min(m.available, max(0, limit-usage))
	return m
}

func parseMeminfo(s string) (memory, error) {
	var m memory
	for line := range strings.Lines(s) {
		name, value, _ := strings.Cut(line, ":")
		kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
		if err != nil {
			continue
		}
		switch name {
		case "MemTotal":
			m.total = api.Bytes(kib) * api.KiB
		case "MemAvailable":
			m.available = api.Bytes(kib) * api.KiB
		}
	}
	if m.total <= 0 || m.available <= 0 {
		return m, fmt.Errorf("host memory: /proc/meminfo has no MemTotal or no MemAvailable")
	}
	return m, nil
}

type cgroup struct{ limit, usage string }

// cgroupFiles lists the control groups up to root, of version 2 ("0::/path") and 1 ("n:memory:/path"). In a container
// the path may be the host's.
func cgroupFiles(root, own string) []cgroup {
	var files []cgroup
	for line := range strings.Lines(own) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		at, limit, usage := root, "memory.max", "memory.current"
		switch {
		case strings.Contains(","+parts[1]+",", ",memory,"):
			at, limit, usage = filepath.Join(root, "memory"), "memory.limit_in_bytes", "memory.usage_in_bytes"
		case parts[0] != "0" || parts[1] != "":
			continue
		}
		for dir := filepath.Clean("/" + parts[2]); ; dir = filepath.Dir(dir) {
			files = append(files, cgroup{filepath.Join(at, dir, limit), filepath.Join(at, dir, usage)})
			if dir == "/" {
				break
			}
		}
	}
	return files
}

// readBytes returns 0 if there is no number ("max").
func readBytes(path string) api.Bytes {
	raw, _ := os.ReadFile(path)
	n, _ := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
	return api.Bytes(n)
}
