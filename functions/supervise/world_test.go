package supervise_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/functions/runtime"
	"github.com/rouse-dev/rouse/functions/supervise"
)

// world is a runtime and its processes, all scripted. Time is the bubble's.
type world struct {
	runtime.Plain
	t      *testing.T
	log    *process.Log
	traits runtime.Traits
	attach bool // the runtime is a sidecar
	canary bool // of succeed: Config.Canary

	supervisor *supervise.Supervisor

	mu                 sync.Mutex // guards the fields below
	load, rise, fall   time.Duration
	suspending         time.Duration // duration of a suspension where succeed runs it
	shows              time.Duration // duration of a wake's answer
	wakeErr, sleepErr  error
	probeErr, startErr error
	findErr            error    // the program is missing
	exits              bool     // each process ends right after its start
	hangs              bool     // the first process answers no probe
	answers            []string // to the canary, in order
	canaryErr          error
	adapters           map[api.ModelName][]string // each one's answers, in order; the last one stays
	adapterErr         error
	reloads            bool   // it can reload its weights in place
	prints             string // each process prints it at its start
	print              func(line []byte)
	calls              []string
	children           []*child
	reports            []api.InstanceStatus
}

type child struct {
	w      *world
	pid    int
	exited chan struct{}
	once   sync.Once
	status string
}

func (c *child) PID() int                { return c.pid }
func (c *child) Exited() <-chan struct{} { return c.exited }
func (c *child) Status() string          { return c.status }

// weights are the memory that each child shares with others.
var weights = api.SharedMemory{File: "fd:01 77", Bytes: 512 * api.KiB}

func (c *child) Memory() (api.Bytes, api.SharedMemory, error) {
	return api.MiB, weights, nil
}
func (c *child) Kill()             { c.end("signal: killed") }
func (c *child) end(status string) { c.once.Do(func() { c.status = status; close(c.exited) }) }
func (c *child) Stop(grace time.Duration) {
	c.w.call(fmt.Sprintf("stop %d after %v", c.pid, grace))
	c.end("signal: terminated")
}

func (w *world) call(s string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, s)
}

func (w *world) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *world) Find() error { return w.findErr }

func (w *world) Traits() runtime.Traits { return w.traits }

func (w *world) Launch(model string) (runtime.Launch, error) {
	if model != "" {
		w.call("launch " + model)
	}
	return runtime.Launch{Path: "srv", Endpoint: "http://runtime", Attach: w.attach}, nil
}

func (w *world) start(spec process.Spec) (supervise.Child, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.startErr != nil {
		return nil, w.startErr
	}
	c := &child{w: w, pid: 100 + len(w.children), exited: make(chan struct{})}
	w.children = append(w.children, c)
	w.calls = append(w.calls, fmt.Sprintf("start %d", c.pid))
	w.print = spec.Lines
	spec.Lines([]byte(w.line()))
	if w.exits {
		c.end("exit status 3")
	}
	return c, nil
}

// line returns what a process prints at its start.
func (w *world) line() string {
	if w.prints == "" {
		return "a line of output"
	}
	return w.prints
}

// nap waits in the bubble's time, or until ctx ends.
func nap(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *world) Probe(ctx context.Context, _ api.Endpoint) error {
	w.mu.Lock()
	load, err, hangs := w.load, w.probeErr, w.hangs && len(w.children) == 1
	w.load = 0
	w.mu.Unlock()
	if hangs {
		load = 24 * time.Hour
	}
	if napErr := nap(ctx, load); napErr != nil {
		return napErr
	}
	return err
}

func (w *world) Sleep(ctx context.Context, _ api.Endpoint, level api.Level) error {
	w.call(fmt.Sprintf("sleep %d", level))
	if err := nap(ctx, w.fall); err != nil {
		return err
	}
	return w.sleepErr
}

func (w *world) Wake(ctx context.Context, _ api.Endpoint, level api.Level, serves func()) (runtime.Answer, error) {
	w.call(fmt.Sprintf("wake from %d", level))
	if err := nap(ctx, w.rise); err != nil {
		return runtime.Answer{}, err
	}
	if serves != nil {
		serves()
	}
	if err := nap(ctx, w.shows); err != nil {
		return runtime.Answer{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.says(), w.wakeErr
}

func (w *world) Canary(_ context.Context, _ api.Endpoint, adapter api.ModelName) (runtime.Answer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if adapter != "" {
		w.calls = append(w.calls, "canary of "+string(adapter))
		if err := w.adapterErr; err != nil {
			return runtime.Answer{}, err
		}
		said := w.adapters[adapter]
		w.adapters[adapter] = said[min(1, len(said)-1):]
		return runtime.Answer{By: "/way", Text: said[0]}, nil
	}
	if len(w.answers) > 0 {
		w.calls = append(w.calls, "canary")
	}
	return w.says(), w.canaryErr
}

func (w *world) Reload(context.Context, api.Endpoint) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.reloads {
		return errors.ErrUnsupported
	}
	w.calls = append(w.calls, "reload")
	return nil
}

// says returns the next answer to the canary; the last one stays; empty: no answer; none: it has no canary.
func (w *world) says() runtime.Answer {
	if len(w.answers) == 0 {
		return runtime.Answer{}
	}
	text := w.answers[0]
	if len(w.answers) > 1 {
		w.answers = w.answers[1:]
	}
	if text == "" {
		return runtime.Answer{}
	}
	return runtime.Answer{By: "/way", Text: text}
}

func (w *world) report(s api.InstanceStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.reports); n > 0 && s.Seq <= w.reports[n-1].Seq {
		w.t.Errorf("report %d has number %d, the one before %d", n, s.Seq, w.reports[n-1].Seq)
	}
	w.reports = append(w.reports, s)
}

// states returns the reported states since the last call, levels with the sleeps.
func (w *world) states() string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, r := range w.reports {
		s := string(r.State)
		if r.State == api.Asleep {
			s += fmt.Sprint(r.Level)
		}
		if r.Stage != "" {
			s += "(" + r.Stage + ")"
		}
		if n := len(out); n == 0 || out[n-1] != s {
			out = append(out, s)
		}
	}
	w.reports = nil
	return strings.Join(out, " ")
}

// made returns the calls to the runtime since the last call.
func (w *world) made() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() { w.calls = nil }()
	return slices.Clone(w.calls)
}

const (
	comesUp = "starting(starting runtime) starting(loading) awake"
	second  = time.Second
)

// run runs a supervisor on w in a bubble, with the test's steps in f.
func run(t *testing.T, w *world, f func(t *testing.T, s *supervise.Supervisor), change ...func(*supervise.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w.t, w.log = t, process.NewLog(50, nil)
		cfg := supervise.Config{
			Status:  api.InstanceStatus{Instance: "i", Function: "default/f", Concurrency: 2, Epoch: 1},
			Runtime: w, Start: w.start, Log: w.log, Report: w.report,
		}
		for _, c := range change {
			c(&cfg)
		}
		s, err := supervise.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		w.supervisor = s
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		synctest.Wait()
		f(t, s)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for _, c := range w.children {
			select {
			case <-c.exited:
			default:
				t.Errorf("process %d is left", c.pid)
			}
		}
		if got := s.Status().State; got != api.Gone {
			t.Errorf("state at the end %q, want gone", got)
		}
	})
}

func wantStates(t *testing.T, w *world, want string) {
	t.Helper()
	if got := w.states(); got != want {
		t.Errorf("states:\n got %s\nwant %s", got, want)
	}
}

func wantCalls(t *testing.T, w *world, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, w.made()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// wantCode checks that err is an api.Error with a code; "": no error.
func wantCode(t *testing.T, what string, err error, code string) {
	t.Helper()
	var e *api.Error
	switch {
	case code == "" && err != nil:
		t.Errorf("%s: %v", what, err)
	case code != "" && (!errors.As(err, &e) || e.Code != code):
		t.Errorf("%s: %v, want code %s", what, err, code)
	}
}

func wake(s *supervise.Supervisor, epoch uint64) error {
	_, err := s.Wake(context.Background(), api.Grant{Instance: "i", Epoch: epoch, Expires: time.Now().Add(time.Minute)})
	return err
}

func sleep(s *supervise.Supervisor, epoch uint64, level api.Level, drain time.Duration) error {
	_, err := s.Sleep(context.Background(), control.SleepRequest{Level: level, Epoch: epoch, Drain: drain})
	return err
}

// later runs f in a goroutine and returns a channel for its error.
func later(f func() error) <-chan error {
	c := make(chan error, 1)
	go func() { c <- f() }()
	synctest.Wait()
	return c
}

var inPlace = runtime.Traits{Sleeps: true, Deepens: true}
