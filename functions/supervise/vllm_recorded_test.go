package supervise_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/functions/runtime"
	"github.com/rouse-dev/rouse/functions/supervise"
)

// player replays the output and answers of a real vLLM.
type player struct {
	*world
	said   map[string]string
	serves atomic.Bool // its process has printed that
}

// Start starts a process that prints, a line each 100 ms, vLLM's output for such a command line.
func (p *player) Start(spec process.Spec) (supervise.Child, error) {
	refuses := slices.Contains(spec.Args, "--enable-sleep-mode")
	output := p.said["start"]
	if refuses {
		output = p.said["refusal"]
	}
	c := &child{w: p.world, pid: 100, exited: make(chan struct{})}
	p.set(func() {
		c.pid += len(p.children)
		p.children = append(p.children, c)
	})
	go func() {
		for line := range strings.Lines(output) {
			time.Sleep(100 * time.Millisecond)
			spec.Lines([]byte(strings.TrimSuffix(line, "\n")))
		}
		if refuses {
			c.end("exit status 1")
		}
		p.serves.Store(!refuses)
	}()
	return c, nil
}

// RoundTrip answers as vLLM did.
func (p *player) RoundTrip(r *http.Request) (*http.Response, error) {
	if !p.serves.Load() {
		return nil, os.NewSyscallError("connect", syscall.ENOENT)
	}
	for name, body := range p.said {
		if words := strings.Fields(name); len(words) == 3 && words[0] == r.Method && words[1] == r.URL.Path {
			status, err := strconv.Atoi(words[2])
			return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, err
		}
	}
	p.t.Errorf("%s %s is not recorded", r.Method, r.URL.Path)
	return nil, syscall.ECONNRESET
}

// TestVLLMRecorded: a start goes as a real vLLM's did (e2e/real records it), through the refusal of its sleep mode, with the same steps.
// It counts as serving no sooner than it has said so, and none of its output is taken for a failure.
func TestVLLMRecorded(t *testing.T) {
	archive, err := txtar.ParseFile(filepath.Join("..", "runtime", "testdata", "vllm.txt"))
	if err != nil {
		t.Fatal(err)
	}
	p := &player{world: &world{}, said: map[string]string{}}
	for _, f := range archive.Files {
		p.said[f.Name] = string(f.Data)
	}
	program := filepath.Join(t.TempDir(), "vllm")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	r, err := runtime.New(runtime.Config{
		Spec:  api.Runtime{Kind: api.RuntimeVLLM, Model: "/models/tiny", Command: []string{program, "serve"}},
		Model: "tiny", Dir: t.TempDir(), Transport: p, CanaryTokens: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	run(t, p.world, func(t *testing.T, s *supervise.Supervisor) {
		loads := 100 * time.Millisecond * time.Duration(strings.Count(p.said["refusal"]+p.said["start"], "\n"))
		time.Sleep(loads - 50*time.Millisecond)
		wantStates(t, p.world, "starting(starting runtime) starting(loading) starting(starting runtime) starting(loading)")
		time.Sleep(time.Minute)
		wantStates(t, p.world, "awake")
		st := s.Status()
		steps := ""
		for _, step := range st.Steps {
			steps += step.Name + "\n"
		}
		if diff := cmp.Diff(p.said["steps"], steps); diff != "" {
			t.Errorf("steps (-recorded +now):\n%s", diff)
		}
		if st.Restarts != 0 || !strings.Contains(st.Message, "no sleep mode") {
			t.Errorf("after %d restarts the state says %q", st.Restarts, st.Message)
		}
	}, func(c *supervise.Config) {
		c.Runtime, c.Start = r, p.Start
		c.Ready = func(context.Context, api.Endpoint) error { // loads the previous adapters
			time.Sleep(time.Millisecond)
			return nil
		}
	})
}
