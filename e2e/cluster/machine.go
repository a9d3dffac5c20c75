package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// runDir holds what the host must know of its one cluster: two would have the same addresses.
const runDir = "/run/rouse-cluster"

// Unable says why this machine can't run a cluster, whatever is installed on it.
func Unable() error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("the cluster needs Linux, and this is %s", runtime.GOOS)
	}
	if os.Geteuid() != 0 {
		return errors.New("the cluster needs root, for namespaces, links and mounts")
	}
	if err := privileges(); err != nil {
		return fmt.Errorf("the cluster needs all that root may do, and here it may not: %w", err)
	}
	return nil
}

// needs are programs of the host, and their Debian packages.
var needs = []struct{ program, pkg string }{
	{"go", "golang"}, {"ip", "iproute2"}, {"nsenter", "util-linux"}, {"iptables", "iptables"},
	{"conntrack", "conntrack"}, {"gcc", "gcc"}, {"pkg-config", "pkg-config"}, {"openssl", "openssl"},
}

// lacking says which packages are to be installed.
func lacking(look func(string) (string, error), seccomp func() error) error {
	var programs, packages []string
	for _, n := range needs {
		if _, err := look(n.program); err != nil {
			programs, packages = append(programs, n.program), append(packages, n.pkg)
		}
	}
	if !slices.Contains(programs, "pkg-config") && seccomp() != nil || slices.Contains(programs, "gcc") {
		programs, packages = append(programs, "the headers of libseccomp"), append(packages, "libseccomp-dev", "libc6-dev")
	}
	if len(programs) == 0 {
		return nil
	}
	return fmt.Errorf("this machine lacks %s; on Debian: apt-get install --no-install-recommends %s",
		strings.Join(programs, ", "), strings.Join(packages, " "))
}

func seccompHeaders() error { return exec.Command("pkg-config", "--exists", "libseccomp").Run() }

// lookPath also looks in folders that a user's PATH may lack.
func lookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/local/sbin"} {
		if err == nil {
			break
		}
		path, err = exec.LookPath(filepath.Join(dir, name))
	}
	return path, err
}

// groups are a kubelet's control groups, in either of the kernel's layouts.
func groups() (all []string) {
	for _, pattern := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		for _, name := range []string{"kubepods", "k8s.io"} {
			found, _ := filepath.Glob(filepath.Join(pattern, name))
			all = append(all, found...)
		}
	}
	return all
}

// record has what is needed to take a node down. It is written before the host is changed.
type record struct {
	Checkout string            `json:"checkout"`
	Cache    string            `json:"cache"`
	Node     string            `json:"node"`
	Boot     string            `json:"boot"`  // the kernel's name for this run of it: after the next, PID means nothing
	PID      int               `json:"pid"`   // of the node's first process, as the host counts; 0: not started
	Start    string            `json:"start"` // when the kernel started it: a number is used again
	Sysctls  map[string]string `json:"sysctls"`
	Made     []string          `json:"made"` // folders to remove, the deepest first
	Ready    bool              `json:"ready"`
}

func recordFile() string { return filepath.Join(runDir, "record.json") }
func socketFile() string { return filepath.Join(runDir, "init.sock") }

func readRecord() (*record, error) {
	b, err := os.ReadFile(recordFile())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what cluster runs here: %w", err)
	}
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("read what cluster runs here: %s: %w", recordFile(), err)
	}
	return &r, nil
}

func (r *record) write() error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	tmp := recordFile() + ".tmp"
	if err := os.WriteFile(tmp, append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("note the cluster: %w", err)
	}
	return os.Rename(tmp, recordFile())
}

func (r *record) alive() bool {
	return r.PID != 0 && r.Boot == bootID() && r.Start == startOf(r.PID)
}

func bootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}

// startOf is when the kernel started a process; empty if it has ended.
func startOf(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The name, in parentheses, may hold anything.
	_, rest, ok := strings.Cut(string(b[strings.LastIndexByte(string(b), ')')+1:]), " ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return ""
	}
	return fields[19]
}
