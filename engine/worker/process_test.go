//go:build unix

package worker_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/infer/cpu"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/sample"
	"github.com/rouse-dev/rouse/engine/worker"
)

// TestKilled checks that a process that is killed, in a step or idle, is replaced; one that is asleep is replaced by
// the wake.
func TestKilled(t *testing.T) {
	s := begin(t, worker.Config{Launch: worker.Process{}.Launch, Load: simulated(t, infer.SimulatedConfig{Step: 5 * time.Millisecond})})
	prompt := []int32{1, 2, 3}
	want := run(t, s, 1, 1, prompt, 2, "")
	kill := func() {
		t.Helper()
		pids := s.PIDs()
		if len(pids) != 1 {
			t.Fatalf("processes %v", pids)
		}
		if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	for i, busy := range []bool{false, true} {
		if busy {
			s.Queue(&worker.Batch{Step: 10, Items: []worker.Item{{ID: 1, Pos: 4, Count: 1, Sample: true}}})
		}
		kill()
		if e := next(t, s); e.Lost == nil || !strings.Contains(e.Lost.Error(), "killed") {
			t.Fatalf("killed: %+v", e)
		}
		if e := next(t, s); !e.Up {
			t.Fatalf("killed: %+v", e)
		}
		if got := run(t, s, 1, uint64(20+10*i), prompt, 2, ""); !slices.Equal(got, want) {
			t.Errorf("the next one says %v, want %v", got, want)
		}
	}
	if err := s.Sleep(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	kill()
	for len(s.PIDs()) > 0 {
		time.Sleep(time.Millisecond) // the kernel delivers the signal: there is no event to wait for
	}
	if _, err := s.Wake(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := run(t, s, 1, 90, prompt, 2, ""); !slices.Equal(got, want) {
		t.Errorf("woken after a death: %v, want %v", got, want)
	}
	if s.Restarts() != 2 {
		t.Errorf("%d restarts, want 2", s.Restarts())
	}
}

// TestStopped checks that a process that is stopped sends nothing, and is replaced.
func TestStopped(t *testing.T) {
	s := begin(t, worker.Config{Launch: worker.Process{}.Launch, Load: simulated(t, infer.SimulatedConfig{}), Heartbeat: 200 * time.Millisecond})
	if err := syscall.Kill(s.PIDs()[0], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if e := next(t, s); e.Lost == nil || !strings.Contains(e.Lost.Error(), "silent") {
		t.Fatalf("stopped: %+v", e)
	}
	if e := next(t, s); !e.Up {
		t.Fatalf("stopped: %+v", e)
	}
}

// TestDiesWithEngine checks that a worker whose engine closes the connection exits.
func TestDiesWithEngine(t *testing.T) {
	r, err := worker.Process{}.Launch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.SendJSON(r, worker.KindHello, worker.Hello{Protocol: worker.Protocol}); err != nil {
		t.Fatal(err)
	}
	if kind, _, err := r.Receive(); kind != worker.KindHello || err != nil {
		t.Fatalf("a frame of kind %d, %v; want a hello", kind, err)
	}
	r.Close()
	if err := r.Wait(); err != nil {
		t.Errorf("it ends with %v", err)
	}
}

// TestDiesWithParent checks that a worker whose engine's process is killed exits.
func TestDiesWithParent(t *testing.T) {
	parent := exec.Command(os.Args[0], "parent")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil {
		t.Fatal(err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // it was killed
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return // gone, or a zombie until its new parent reaps it
		}
		if time.Now().After(end) {
			t.Fatalf("process %d outlives its parent", pid)
		}
	}
}

// TestBadStart checks that a worker that can't start or load returns the reason, and leaves nothing behind.
func TestBadStart(t *testing.T) {
	for name, test := range map[string]struct {
		cfg  worker.Config
		want string
	}{
		"no program":           {worker.Config{Launch: worker.Process{Command: []string{"/nowhere/worker"}}.Launch}, "/nowhere/worker"},
		"another program":      {worker.Config{Launch: worker.Process{Command: []string{"/bin/true"}}.Launch}, "the worker ended"},
		"a program that fails": {worker.Config{Launch: worker.Process{Command: []string{"/bin/false"}}.Launch}, "the worker ended: exit status 1"},
		"babble":               {worker.Config{Launch: worker.Process{Command: []string{"/bin/sh", "-c", "echo hello >&3"}}.Launch}, "frame"},
		"no model":             {worker.Config{Launch: worker.Process{}.Launch, Load: worker.Load{Model: "/nowhere/model.gguf"}}, "/nowhere/model.gguf"},
		"another device":       {worker.Config{Launch: worker.Process{}.Launch, Load: worker.Load{Device: "abacus"}}, "abacus"},
		"bad options":          {worker.Config{Launch: worker.Process{}.Launch, Load: worker.Load{Device: "sim", Options: []byte(`{"a":1}`)}}, "options"},
	} {
		t.Run(name, func(t *testing.T) {
			s := worker.New(test.cfg)
			if _, err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestGroup: two ranks are one worker; if one dies, both do.
func TestGroup(t *testing.T) {
	s := begin(t, worker.Config{Launch: worker.Group(2, worker.Process{}), Load: simulated(t, infer.SimulatedConfig{}), Heartbeat: time.Second})
	prompt := []int32{5, 6, 7}
	want := twin(t, prompt, 4)
	if got := run(t, s, 1, 1, prompt, 4, ""); !slices.Equal(got, want) {
		t.Errorf("two ranks say %v, want %v", got, want)
	}
	one, err := s.Memory(t.Context())
	if err != nil || one != 2*8*4096*16 {
		t.Errorf("two ranks take %d bytes, %v; want those of both", one, err)
	}
	var refused *worker.OpError
	if err := s.LoadAdapter(t.Context(), worker.Adapter{ID: 1, Path: "/nowhere/adapter"}); !errors.As(err, &refused) || !strings.Contains(err.Error(), "rank") {
		t.Errorf("an adapter that is not there: %v", err)
	}
	for rank := range 2 {
		pids := s.PIDs()
		if len(pids) != 2 {
			t.Fatalf("processes %v, want two", pids)
		}
		if err := syscall.Kill(pids[rank], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if e := next(t, s); e.Lost == nil {
			t.Fatalf("rank %d is killed: %+v", rank, e)
		}
		if e := next(t, s); !e.Up {
			t.Fatalf("rank %d is killed: %+v", rank, e)
		}
		if got := run(t, s, 1, uint64(10+10*rank), prompt, 4, ""); !slices.Equal(got, want) {
			t.Errorf("the next two say %v, want %v", got, want)
		}
	}
}

// TestGroupScores checks a prompt that has more log probabilities than fit in the memory that ranks share.
func TestGroupScores(t *testing.T) {
	load := worker.Load{Model: infertest.File(t, infertest.Spec{Context: 2 * cpu.SharedLogits}), Threads: 1, Sequences: 1}
	prompt := make([]int32, cpu.SharedLogits+100)
	var blocks []int32
	for i := range prompt {
		prompt[i] = int32(i % 250)
	}
	for i := range int32(len(prompt)/16 + 1) {
		blocks = append(blocks, i)
	}
	var want []sample.Choice
	for _, launch := range []worker.Launch{worker.InProcess(worker.Build(nil)), worker.Group(2, worker.Process{})} {
		s := begin(t, worker.Config{Launch: launch, Load: load})
		out := step(t, s, &worker.Batch{Step: 1, Items: []worker.Item{{
			ID: 1, Count: len(prompt), Begin: true, Prompt: len(prompt), Tokens: prompt, Blocks: blocks, Score: true, Sample: true,
		}}})
		if len(out.Items) != 1 || len(out.Items[0].Scores) != len(prompt)-1 {
			t.Fatalf("%d items, error %q", len(out.Items), out.Error)
		}
		if got := out.Items[0].Scores; want == nil {
			want = slices.Clone(got)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-one process +two):\n%s", diff)
		}
	}
}
