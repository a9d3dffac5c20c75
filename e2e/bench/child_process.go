// The files child_* are the programs that benchmarks start.
//
// Start returns once the process has said a word, or has ended. The end of its output is kept for Until and errors.
//
// Methods of a Process are safe for many goroutines, but only one of Stop and Kill is called at a time.

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

type Process struct {
	Began time.Time // just before the exec

	cmd    *exec.Cmd
	waited chan struct{} // closed once it was reaped
	said   *words
}

// words keeps the end of both outputs.
type words struct {
	mu   sync.Mutex // guards what follows
	all  []byte
	news chan struct{} // closed by the next write
}

func newWords() *words { return &words{news: make(chan struct{})} }

// kept is the least that is kept of a program's words.
const kept = 1 << 20

// Write implements io.Writer.
func (w *words) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all = append(w.all, p...); len(w.all) > 2*kept {
		w.all = append(w.all[:0], w.all[len(w.all)-kept:]...)
	}
	close(w.news)
	w.news = make(chan struct{})
	return len(p), nil
}

// Start returns the first line of the outputs that holds word. The command's context ends the process.
func Start(cmd *exec.Cmd, word string) (*Process, string, error) {
	p := &Process{cmd: cmd, waited: make(chan struct{}), said: newWords()}
	cmd.SysProcAttr, cmd.Stdout, cmd.Stderr = dieWithParent(), p.said, p.said
	p.Began = time.Now()
	if err := cmd.Start(); err != nil {
		return nil, "", fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	go func() {
		defer close(p.waited)
		_ = cmd.Wait()
	}()
	line, err := p.Until(context.Background(), word)
	return p, line, err
}

// Until returns the first line that holds word.
func (p *Process) Until(ctx context.Context, word string) (string, error) {
	for over := false; ; {
		p.said.mu.Lock()
		news := p.said.news
		p.said.mu.Unlock()
		for line := range strings.Lines(p.Log()) {
			if strings.Contains(line, word) && strings.HasSuffix(line, "\n") {
				return line, nil
			}
		}
		if over {
			return "", fmt.Errorf("%s ended before it said %q: %s", p.cmd.Path, word, p.Words())
		}
		select {
		case <-news:
		case <-p.waited:
			over = true // one look more
		case <-ctx.Done():
			return "", fmt.Errorf("%s does not say %q: %w: %s", p.cmd.Path, word, context.Cause(ctx), p.Words())
		}
	}
}

func (w *words) log() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.all)
}

// Log returns what is kept of the output, Words the end of it.
func (p *Process) Log() string { return p.said.log() }

func (p *Process) Words() string {
	all := p.Log()
	return strings.TrimSpace(all[max(0, len(all)-4<<10):])
}

func (p *Process) PID() int { return p.cmd.Process.Pid }

func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.waited
}

// Stop ends it, and kills it where that takes a minute.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.waited:
	case <-time.After(time.Minute):
		p.Kill()
	}
}

// Memory returns the process's own share (Pss) and all of its resident memory (Rss), in MiB. It and the following
// methods are for Linux.
func (p *Process) Memory() (pss, rss float64, err error) {
	of, err := kib(p.PID(), "smaps_rollup", "Pss:", "Rss:")
	return of[0] / 1024, of[1] / 1024, err
}

// kib reads lines "KEY N kB" of a file of /proc.
func kib(pid int, file string, keys ...string) ([]float64, error) {
	of := make([]float64, len(keys))
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		return of, err
	}
	for k, key := range keys {
		_, rest, found := strings.Cut("\n"+string(raw), "\n"+key)
		if _, err := fmt.Sscan(rest, &of[k]); !found || err != nil {
			return of, fmt.Errorf("the kernel does not say %s of a process", key)
		}
	}
	return of, nil
}

// ticks is the kernel's unit of processor time on every Linux of Go's.
const ticks = 100

func (p *Process) ProcessorTime() (float64, error) { return processorTime(p.PID()) }

func processorTime(pid int) (float64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(raw), ") ") // the name may hold spaces
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0, errors.New("read the processor time: the line is too short")
	}
	user, err := strconv.ParseFloat(f[11], 64)
	system, err2 := strconv.ParseFloat(f[12], 64)
	return (user + system) / ticks, errors.Join(err, err2)
}

// FamilyTime is in seconds, Private in MB; model servers are left out.
func (p *Process) FamilyTime() (float64, error) { return family(p.PID(), modelServer, processorTime) }

func (p *Process) Private() (float64, error) {
	return family(p.PID(), modelServer, func(pid int) (float64, error) {
		of, err := kib(pid, "smaps_rollup", "Private_Clean:", "Private_Dirty:")
		return (of[0] + of[1]) * 1024 / 1e6, err
	})
}

var modelServer = regexp.MustCompile("^[^\x00]*\x00(engine|fake-runtime)\x00")

// Resident is for it and its descendants, in MB.
func (p *Process) Resident() (float64, error) {
	return family(p.PID(), nil, func(pid int) (float64, error) {
		of, err := kib(pid, "status", "VmRSS:")
		return of[0] * 1024 / 1e6, err
	})
}

// family adds up something of a process and its descendants, but those whose command lines match without, which may be
// nil.
func family(pid int, without *regexp.Regexp, of func(pid int) (float64, error)) (float64, error) {
	all, err := of(pid)
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, path := range threads {
		raw, _ := os.ReadFile(path) // the thread may have ended
		for _, field := range strings.Fields(string(raw)) {
			line, _ := os.ReadFile("/proc/" + field + "/cmdline")
			if below, _ := strconv.Atoi(field); without == nil || !without.Match(line) {
				v, _ := family(below, without, of) // it may have ended
				all += v
			}
		}
	}
	return all, err
}
