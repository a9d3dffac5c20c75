package pyfunc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const disabled = "Diagnostics are disabled please set environment variable on your deployment ENABLE_DIAGNOSTICS=true to enable them."

// allDiagnostics is the key of every diagnostic.
const allDiagnostics = "all"

// Bounds of one command.
const (
	diagnosticTime  = 5 * time.Second
	diagnosticBytes = 64 << 10
)

// diagnostic is one thing that can be asked for. What can't be asked for is a
// command of the caller's: argv is fixed, and no shell reads it.
type diagnostic struct {
	key, desc string
	argv      []string
	read      func(h *Handler) (string, error) // instead of argv
}

// diagnostics are those of mlflow-extensions, in its order. Where its command
// would tell more than its name says, ours is another.
var diagnostics = []diagnostic{
	{key: "nvidia-smi", desc: "NVIDIA System Management Interface", argv: []string{"nvidia-smi"}},
	{key: "nvidia-topology", desc: "NVIDIA GPU Topology", argv: []string{"nvidia-smi", "topo", "-m"}},
	{key: "disk-space", desc: "Disk Space", argv: []string{"df", "-h"}},
	{key: "current-user", desc: "Current User", read: func(*Handler) (string, error) { return userName() }},
	{key: "active-procs", desc: "Processes, by name and memory", argv: []string{"ps", "-eo", "pid,ppid,rss,comm"}},
	{key: "check-shm", desc: "Shared Memory", argv: []string{"df", "-h", "/dev/shm"}},
	{key: "pip-list", desc: "Installed Python Packages", argv: []string{"pip", "list", "--disable-pip-version-check"}},
	{key: "python-version", desc: "Python Version", argv: []string{"python3", "--version"}},
	{key: "os-details", desc: "Linux Distribution", read: file("/etc/os-release")},
	{key: "arch-details", desc: "Machine Architecture", argv: []string{"uname", "-m"}},
	{key: "env", desc: "Environment Variables", read: (*Handler).environment},
	{key: "cpu-count", desc: "Number of Processors", read: func(*Handler) (string, error) { return strconv.Itoa(runtime.NumCPU()), nil }},
	{key: "memory-count", desc: "Memory Usage", read: file("/proc/meminfo")},
}

// result is the answer to one diagnostic.
type result struct {
	Command string  `json:"command"`
	Desc    string  `json:"command_desc,omitempty"`
	Stdout  *string `json:"stdout"`
	Stderr  string  `json:"stderr"`
	Code    int     `json:"returncode"`
}

// diagnose is the answer to COMPUTE_DIAGNOSTICS with a key.
func (h *Handler) diagnose(key string) string {
	if !h.cfg.Diagnostics {
		return disabled
	}
	h.diagnosing.Lock()
	defer h.diagnosing.Unlock()
	var details any
	if key == allDiagnostics {
		all := make([]result, len(diagnostics))
		var ran sync.WaitGroup
		for i, d := range diagnostics {
			ran.Go(func() { all[i] = h.result(d) })
		}
		ran.Wait()
		details = all
	} else if i := slices.IndexFunc(diagnostics, func(d diagnostic) bool { return d.key == key }); i >= 0 {
		details = h.result(diagnostics[i])
	} else {
		details = result{Command: key, Stderr: "Command " + key + " not found", Code: -1}
	}
	raw, _ := json.Marshal(struct { // strings and numbers always marshal
		Details any      `json:"compute_details"`
		Command []string `json:"command"`
	}{details, []string{}}) // the runtime's command line is not told
	return string(raw)
}

// result finds out one diagnostic.
func (h *Handler) result(d diagnostic) result {
	r := result{Command: d.key, Desc: d.desc}
	var out string
	var err error
	if d.read != nil {
		out, err = d.read(h)
	} else {
		r.Command = strings.Join(d.argv, " ")
		out, r.Stderr, err = execute(d.argv)
	}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		r.Code = exit.ExitCode()
	case err != nil:
		r.Stderr, r.Code = err.Error(), -1
		return r
	}
	out, r.Stderr = h.redact(strings.TrimSpace(out)), h.redact(strings.TrimSpace(r.Stderr))
	r.Stdout = &out
	return r
}

// execute runs a command with a bound on its time and its output, and an
// environment without secrets.
func execute(argv []string) (stdout, stderr string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), diagnosticTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...) // argv is one of the table above
	cmd.WaitDelay = time.Second
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "LC_ALL=C"}
	var out, bad capped
	cmd.Stdout, cmd.Stderr = &out, &bad
	err = cmd.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("it took longer than %v", diagnosticTime)
	}
	return string(bytes.ToValidUTF8(out.b, nil)), string(bytes.ToValidUTF8(bad.b, nil)), err
}

// capped keeps the beginning of what is written to it.
type capped struct{ b []byte }

// Write never fails.
func (c *capped) Write(p []byte) (int, error) {
	c.b = append(c.b, p[:min(len(p), diagnosticBytes-len(c.b))]...)
	return len(p), nil
}

func userName() (string, error) {
	u, err := user.Current()
	if err != nil {
		return strconv.Itoa(os.Getuid()), nil // a container need not know the user's name
	}
	return u.Username, nil
}

func file(path string) func(*Handler) (string, error) {
	return func(*Handler) (string, error) {
		raw, err := os.ReadFile(path)
		return string(raw[:min(len(raw), diagnosticBytes)]), err
	}
}

// harmless are names of the environment whose values are shown.
var harmless = []string{
	"HOST", "PORT", "PATH", "HOME", "USER", "LANG", "TZ", "HOSTNAME", "PWD", "SHELL", "CUDA_VERSION", "CUDA_HOME", "CUDA_VISIBLE_DEVICES",
	"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "NCCL_SHM_DISABLE", "NCCL_DEBUG",
	"OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM", "HF_HOME", "HF_HUB_OFFLINE", "OLLAMA_HOST", "OLLAMA_MODELS", "ENABLE_DIAGNOSTICS",
}

const hidden = "***"

// environment shows the harmless names with their values, and of the others the name.
func (h *Handler) environment() (string, error) {
	lines := make([]string, 0, len(h.cfg.Env))
	for _, e := range h.cfg.Env {
		name, value, _ := strings.Cut(e, "=")
		if !slices.Contains(harmless, name) {
			value = hidden
		}
		lines = append(lines, name+"="+value)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n"), nil
}

// secretWords end a word of the names of what is kept secret.
var secretWords = []string{"key", "token", "secret", "password", "passwd", "credential", "credentials", "auth", "cookie", "private"}

// secretName says whether a variable holds a secret: HF_TOKEN and API_KEY do,
// TOKENIZER and MAX_BATCHED_TOKENS don't.
func secretName(name string) bool {
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return r == '-' || r == '_' || r == '.' })
	return slices.ContainsFunc(words, func(word string) bool {
		return slices.ContainsFunc(secretWords, func(end string) bool { return strings.HasSuffix(word, end) })
	})
}

// redact hides the values of secrets of the environment wherever they stand.
func (h *Handler) redact(s string) string {
	for _, e := range h.cfg.Env {
		if name, value, _ := strings.Cut(e, "="); secretName(name) && len(value) >= 4 {
			s = strings.ReplaceAll(s, value, hidden)
		}
	}
	return s
}
