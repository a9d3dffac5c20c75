package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/engine"
)

// slow returns an engine whose steps take 10 ms of virtual time, with one request
// under way that takes 21 steps.
func slow(t *testing.T) (*echo, *engine.Engine, *engine.Stream) {
	m := newEcho(64, 4, 64)
	m.latency = 10 * time.Millisecond
	e := start(t, m, engine.Config{})
	s, err := e.Add(t.Context(), engine.Request{Prompt: prompt(strings.Repeat("z", 20))})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Next(); err != nil {
		t.Fatal(err)
	}
	return m, e, s
}

func TestSleepDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, e, s := slow(t)
		began := time.Now()
		slept := make(chan error, 1)
		go func() { slept <- e.Sleep(t.Context(), 1, engine.SleepWait) }()
		time.Sleep(15 * time.Millisecond)
		if got := e.Stats().State; got != engine.Draining {
			t.Errorf("while a request runs: %s, want %s", got, engine.Draining)
		}
		if _, err := e.Add(t.Context(), engine.Request{Prompt: prompt("x")}); !errors.Is(err, engine.ErrAsleep) {
			t.Errorf("add while draining: %v", err)
		}
		if err := <-slept; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 190*time.Millisecond || took > 210*time.Millisecond {
			t.Errorf("the drain took %v, want 20 steps of 10ms", took)
		}
		if texts, err := read(s); err != nil || !strings.HasSuffix(texts[0], "z|stop") {
			t.Errorf("the drained request: %q, %v", texts, err)
		}
		if got := e.Stats(); got.State != engine.Asleep || got.Level != 1 {
			t.Errorf("after the drain: %+v", got)
		}
		if _, err := e.Add(t.Context(), engine.Request{Prompt: prompt("x")}); !errors.Is(err, engine.ErrAsleep) {
			t.Errorf("add while asleep: %v", err)
		}
		// Deeper, and the same again.
		for _, level := range []int{2, 1, 2} {
			if err := e.Sleep(t.Context(), level, engine.SleepWait); err != nil {
				t.Errorf("sleep %d while asleep: %v", level, err)
			}
		}
		if got := e.Stats(); got.Level != 2 || m.Level() != 2 {
			t.Errorf("after level 2: %+v, the model at %d", got, m.Level())
		}
		token, err := e.Wake(t.Context())
		if err != nil || token != '\n' {
			t.Errorf("wake: token %d, %v; want %d, the model's answer to an empty text", token, err, '\n')
		}
		if got := ask(t, e, engine.Request{Prompt: prompt("hi")}); got != "hi|stop" {
			t.Errorf("after the wake: %q", got)
		}
		if token, err := e.Wake(t.Context()); err != nil || token != '\n' {
			t.Errorf("wake while awake: token %d, %v", token, err)
		}
	})
}

func TestSleepAborts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, e, s := slow(t)
		if err := e.Sleep(t.Context(), 2, engine.SleepAbort); err != nil {
			t.Fatal(err)
		}
		if _, err := read(s); !errors.Is(err, engine.ErrInterrupted) {
			t.Errorf("the interrupted request: %v", err)
		}
		if got := e.Stats(); got.State != engine.Asleep || got.Level != 2 || got.BlocksUsed != 0 {
			t.Errorf("asleep: %+v", got)
		}
	})
}

func TestSleepRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, e, s := slow(t)
		if err := e.Sleep(t.Context(), 1, engine.SleepRefuse); !errors.Is(err, engine.ErrBusy) {
			t.Errorf("sleep while busy: %v", err)
		}
		if texts, err := read(s); err != nil || !strings.HasSuffix(texts[0], "|stop") {
			t.Errorf("the request went on: %q, %v", texts, err)
		}
		if err := e.Sleep(t.Context(), 1, engine.SleepRefuse); err != nil {
			t.Errorf("sleep while idle: %v", err)
		}
		if diff := cmp.Diff([]int{1}, m.sleeps); diff != "" {
			t.Errorf("the model's sleeps (-want +got):\n%s", diff)
		}
		var bad *engine.RequestError
		if err := e.Sleep(t.Context(), 3, engine.SleepWait); !errors.As(err, &bad) || bad.Param != "level" {
			t.Errorf("level 3: %v", err)
		}
		if err := e.Sleep(t.Context(), 1, "later"); !errors.As(err, &bad) || bad.Param != "mode" {
			t.Errorf("mode later: %v", err)
		}
	})
}

// TestSleepGivenUp checks a caller of Sleep that leaves during the drain.
func TestSleepGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, e, s := slow(t)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := e.Sleep(ctx, 1, engine.SleepWait); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a drain that takes too long: %v", err)
		}
		time.Sleep(20 * time.Millisecond)
		if got := ask(t, e, engine.Request{Prompt: prompt("hi")}); got != "hi|stop" {
			t.Errorf("after the sleep was given up: %q", got)
		}
		if _, err := read(s); err != nil || len(m.sleeps) != 0 {
			t.Errorf("the first request: %v, sleeps %v", err, m.sleeps)
		}
	})
}

func TestWakeOvertakesSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, e, _ := slow(t)
		slept := make(chan error, 1)
		go func() { slept <- e.Sleep(t.Context(), 1, engine.SleepWait) }()
		time.Sleep(15 * time.Millisecond)
		if _, err := e.Wake(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-slept; !errors.Is(err, engine.ErrWoken) {
			t.Errorf("the overtaken sleep: %v", err)
		}
		if got := e.Stats().State; got != engine.Awake || len(m.sleeps) != 0 {
			t.Errorf("state %s, sleeps %v", got, m.sleeps)
		}
	})
}

func TestFailedWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newEcho(8, 4, 32)
		e := start(t, m, engine.Config{})
		if err := e.Sleep(t.Context(), 2, engine.SleepWait); err != nil {
			t.Fatal(err)
		}
		broken := errors.New("the file is gone")
		m.failNext(broken)
		if _, err := e.Wake(t.Context()); err == nil || !strings.Contains(err.Error(), broken.Error()) {
			t.Errorf("wake: %v", err)
		}
		if got := e.Stats(); got.State != engine.Asleep || got.Level != 2 {
			t.Errorf("after a failed wake: %+v", got)
		}
		if _, err := e.Wake(t.Context()); err != nil {
			t.Errorf("the next wake: %v", err)
		}
	})
}
