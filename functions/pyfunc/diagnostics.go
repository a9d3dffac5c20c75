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

	"github.com/rouse-dev/rouse/internal/lazyregexp"
)

const disabled = "Diagnostics are disabled please set environment variable on your deployment ENABLE_DIAGNOSTICS=true to enable them."

const allDiagnostics = "all"

const (
	diagnosticTime  = 5 * time.Second
	diagnosticBytes = 64 << 10
)

// Commands are fixed, and no shell reads them.
type diagnostic struct {
	key, desc string
	command   string // its words; empty: read is called
	read      func(h *Handler) (string, error)
}

// In mlflow-extensions' order. A command that would show more than its name says is replaced.
var diagnostics = []diagnostic{
	{key: "nvidia-smi", desc: "NVIDIA System Management Interface", command: "nvidia-smi"},
	{key: "nvidia-topology", desc: "NVIDIA GPU Topology", command: "nvidia-smi topo -m"},
	{key: "disk-space", desc: "Disk Space", command: "df -h"},
	{key: "current-user", desc: "Current User", read: userName},
	{key: "active-procs", desc: "Processes, by name and memory", command: "ps -eo pid,ppid,rss,comm"},
	{key: "check-shm", desc: "Shared Memory", command: "df -h /dev/shm"},
	{key: "pip-list", desc: "Installed Python Packages", command: "pip list --disable-pip-version-check"},
	{key: "python-version", desc: "Python Version", command: "python3 --version"},
	{key: "os-details", desc: "Linux Distribution", read: file("/etc/os-release")},
	{key: "arch-details", desc: "Machine Architecture", command: "uname -m"},
	{key: "env", desc: "Environment Variables", read: (*Handler).environment},
	{key: "cpu-count", desc: "Number of Processors", read: func(*Handler) (string, error) { return strconv.Itoa(runtime.NumCPU()), nil }},
	{key: "memory-count", desc: "Memory Usage", read: file("/proc/meminfo")},
}

type result struct {
	Command string  `json:"command"`
	Desc    string  `json:"command_desc,omitempty"`
	Stdout  *string `json:"stdout"`
	Stderr  string  `json:"stderr"`
	Code    int     `json:"returncode"`
}

func (h *Handler) diagnose(key string) string {
	if !h.cfg.Diagnostics {
		return disabled
	}
	h.diagnosing.Lock()
	defer h.diagnosing.Unlock()
	all := make([]result, len(diagnostics))
	var details any = all
	var ran sync.WaitGroup
	if key != allDiagnostics {
		details = result{Command: key, Stderr: "Command " + key + " not found", Code: -1}
	}
	for i, d := range diagnostics {
		switch key {
		case allDiagnostics:
			ran.Go(func() { all[i] = h.result(d) })
		case d.key:
			details = h.result(d)
		}
	}
	ran.Wait()
	raw, _ := json.Marshal(struct {
		Details any      `json:"compute_details"`
		Command []string `json:"command"`
	}{details, []string{}})
	return string(raw)
}

func (h *Handler) result(d diagnostic) result {
	r := result{Command: d.key, Desc: d.desc}
	var out string
	var err error
	if d.read != nil {
		out, err = d.read(h)
	} else {
		r.Command = d.command
		out, r.Stderr, err = execute(strings.Fields(d.command))
	}
	if exit, is := errors.AsType[*exec.ExitError](err); is {
		r.Code = exit.ExitCode()
	} else if err != nil {
		r.Stderr, r.Code = err.Error(), -1
		return r
	}
	r.Stdout, r.Stderr = new(h.redact(out)), h.redact(r.Stderr)
	return r
}

// execute gives a command an environment without secrets.
func execute(argv []string) (stdout, stderr string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), diagnosticTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.WaitDelay = time.Second
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "LC_ALL=C"}
	var out, bad capped
	cmd.Stdout, cmd.Stderr = &out, &bad
	err = cmd.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("it took longer than %v", diagnosticTime)
	}
	return string(bytes.ToValidUTF8(out, nil)), string(bytes.ToValidUTF8(bad, nil)), err
}

type capped []byte

func (c *capped) Write(p []byte) (int, error) {
	*c = append(*c, p[:min(len(p), diagnosticBytes-len(*c))]...)
	return len(p), nil
}

func userName(*Handler) (string, error) {
	u, err := user.Current()
	if err != nil {
		return strconv.Itoa(os.Getuid()), nil
	}
	return u.Username, nil
}

func file(path string) func(*Handler) (string, error) {
	return func(*Handler) (string, error) {
		raw, err := os.ReadFile(path)
		return string(raw[:min(len(raw), diagnosticBytes)]), err
	}
}

var harmless = strings.Fields(`HOST PORT PATH HOME USER LANG TZ HOSTNAME PWD SHELL CUDA_VERSION CUDA_HOME CUDA_VISIBLE_DEVICES
	NVIDIA_VISIBLE_DEVICES NVIDIA_DRIVER_CAPABILITIES LD_LIBRARY_PATH PYTHONPATH VIRTUAL_ENV NCCL_SHM_DISABLE NCCL_DEBUG
	OMP_NUM_THREADS TOKENIZERS_PARALLELISM HF_HOME HF_HUB_OFFLINE OLLAMA_HOST OLLAMA_MODELS ENABLE_DIAGNOSTICS`)

const hidden = "***"

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

// HF_TOKEN and API_KEY hold a secret, TOKENIZER and MAX_BATCHED_TOKENS don't.
var secretName = lazyregexp.New(`(?i)(key|token|secret|password|passwd|credentials?|auth|cookie|private)([-_.]|$)`)

func (h *Handler) redact(s string) string {
	s = strings.TrimSpace(s)
	for _, e := range h.cfg.Env {
		if name, value, _ := strings.Cut(e, "="); secretName().MatchString(name) && len(value) >= 4 {
			s = strings.ReplaceAll(s, value, hidden)
		}
	}
	return s
}
