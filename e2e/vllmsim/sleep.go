package vllmsim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/e2e/vllmsim/device"
)

// in the order in which they come back
const (
	tagWeights = "weights"
	tagKV      = "kv_cache"
)

// sleepLine is vLLM's.
const sleepLine = "Sleep mode freed %s GiB memory, %s GiB memory is still in use."

// errOOM is vLLM's when it can't map memory again (vllm-project/vllm#13941).
var errOOM = errors.New("CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:62")

func (e *engine) takeTurn(ctx context.Context) error {
	select {
	case e.turn <- struct{}{}:
		return nil
	case <-e.died:
		return errDead
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (e *engine) endTurn() { <-e.turn; e.wakeLoop() }

// halt ends all requests in mode abort, and lets the running ones finish in mode wait. The turn is held.
func (e *engine) halt(ctx context.Context, mode string) error {
	e.mu.Lock()
	var drained chan struct{}
	switch mode {
	case "", "abort":
		e.abortAll()
	case "wait":
		if len(e.jobs) > e.waitingFresh() {
			drained = make(chan struct{})
			e.drained = drained
		}
	default:
		e.mu.Unlock()
		return said("Invalid pause mode: %s", mode)
	}
	e.paused = true
	e.mu.Unlock()
	e.wakeLoop()
	if drained == nil {
		return nil
	}
	select {
	case <-drained:
		return nil
	case <-e.died:
		return errDead
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Level 0 only stops scheduling, 1 keeps the weights in host memory, 2 drops them. It continues when its client
// leaves, as in vLLM.
func (s *Server) sleep(ctx context.Context, level int, mode string) error {
	e := s.engine
	ctx = s.outlive(ctx)
	if err := e.takeTurn(ctx); err != nil {
		return err
	}
	defer e.endTurn()
	if err := e.halt(ctx, mode); err != nil || level < 1 {
		return err
	}
	return s.release(ctx, level, []string{tagWeights, tagKV})
}

// The turn is held and nothing runs.
func (s *Server) release(ctx context.Context, level int, tags []string) error {
	e := s.engine
	e.mu.Lock()
	if e.cfg.Surface == VLLM && len(e.asleep) > 0 {
		e.mu.Unlock()
		logf(e.cfg.Log, "WARNING", "abstract.py:320", "Executor is already sleeping.")
		return nil // so level 1 does not deepen to level 2
	}
	if level == 1 {
		e.batch.Reset()
	} else {
		e.batch.Spoil()
	}
	fresh := slices.DeleteFunc(slices.Clone(tags), func(t string) bool { return e.asleep[t] })
	for _, t := range fresh {
		e.asleep[t] = true
	}
	if slices.Contains(fresh, tagWeights) {
		e.level = level
	}
	first := 1.0
	if level == 1 && !e.pinned {
		first, e.pinned = e.cfg.FirstSleep, true
	}
	e.mu.Unlock()
	if slices.Contains(fresh, tagWeights) && level == 1 {
		d := e.duration(e.cfg.SleepTime, float64(e.cfg.Weights)/hostBandwidth)
		if err := e.pass(ctx, time.Duration(float64(d)*first)); err != nil {
			return err
		}
	} else if err := e.pass(ctx, max(0, e.cfg.SleepTime)); err != nil {
		return err
	}
	before, _ := s.memory.room()
	if e.cfg.Sleep {
		if err := s.memory.resize(s.wanted()); err != nil {
			return err
		}
	}
	e.mu.Lock()
	if slices.Contains(fresh, tagWeights) && level == 2 && e.cfg.Sleep {
		e.garbage = true
	}
	garbage := e.garbage
	e.mu.Unlock()
	s.mu.Lock()
	for i := range s.adapters { // vLLM behaves as if they were loaded
		s.adapters[i].lost = s.adapters[i].lost || garbage
	}
	s.mu.Unlock()
	if e.cfg.Surface == VLLM {
		after, total := s.memory.room() // of all processes: vLLM asks cudaMemGetInfo
		logf(e.cfg.Log, "INFO", "gpu_worker.py:144", sleepLine, gib(after-before), gib(total-after))
	}
	return nil
}

// No tags: all that sleeps. A tag that does not sleep makes wake do nothing, as in vLLM (vllm-project/vllm#31618).
func (s *Server) wake(ctx context.Context, tags []string) error {
	e := s.engine
	ctx = s.outlive(ctx)
	if err := e.takeTurn(ctx); err != nil {
		return err
	}
	defer e.endTurn()
	if s.Faults.happens("hang-wake") {
		select {
		case <-e.died:
			return errDead
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := s.regain(ctx, tags); errors.Is(err, errOOM) {
		return said("Call to wake_up method failed: %v", err)
	} else if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.asleep) == 0 { // a partial wake does not start scheduling (vllm-project/vllm#44779)
		e.paused = false
	}
	return nil
}

// The turn is held.
func (s *Server) regain(ctx context.Context, tags []string) error {
	e := s.engine
	sleeping := s.sleepingTags()
	if len(tags) == 0 {
		tags = sleeping
	}
	if slices.ContainsFunc(tags, func(t string) bool { return !slices.Contains(sleeping, t) }) {
		logf(e.cfg.Log, "WARNING", "abstract.py:335", "One of the tags %v is not in sleeping tags %v", tags, sleeping)
		return nil
	}
	if err := s.allocate(tags); err != nil || !slices.Contains(tags, tagWeights) {
		return err
	}
	seconds := 0.0
	if e.level == 1 { // which changes with the turn alone
		seconds = float64(e.cfg.Weights) / hostBandwidth
	}
	if err := e.pass(ctx, e.duration(e.cfg.WakeTime, seconds)); err != nil {
		return err
	}
	garbage, unapplied := s.Faults.happens("garbage-wake"), s.Faults.happens("unapplied-wake")
	e.mu.Lock()
	e.garbage = e.garbage || garbage
	e.mu.Unlock()
	s.mu.Lock()
	for i := range s.adapters {
		s.adapters[i].unapplied = s.adapters[i].unapplied || unapplied
	}
	s.mu.Unlock()
	return nil
}

// allocate takes the memory of all tags, or of none.
func (s *Server) allocate(tags []string) error {
	e := s.engine
	e.mu.Lock()
	for _, t := range tags {
		delete(e.asleep, t)
	}
	e.mu.Unlock()
	if !e.cfg.Sleep {
		return nil
	}
	err := s.memory.resize(s.wanted())
	if err == nil {
		return nil
	}
	e.mu.Lock()
	for _, t := range tags {
		e.asleep[t] = true
	}
	e.mu.Unlock()
	if errors.Is(err, device.ErrOutOfMemory) {
		logf(e.cfg.Log, "ERROR", "core.py:1050", "Invocation of wake_up method failed: %v", err)
		return errOOM
	}
	return err
}

// sleepingTags are in the order of their return.
func (s *Server) sleepingTags() (tags []string) {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	for _, t := range []string{tagWeights, tagKV} {
		if s.engine.asleep[t] {
			tags = append(tags, t)
		}
	}
	return tags
}

func (s *Server) wanted() (bytes int64) {
	e := s.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	bytes = e.cfg.Residue
	if !e.asleep[tagWeights] {
		bytes += e.cfg.Weights
	}
	if !e.asleep[tagKV] {
		bytes += s.kv
	}
	return bytes
}

func (s *Server) reload(ctx context.Context) error {
	e := s.engine
	ctx = s.outlive(ctx)
	if err := e.takeTurn(ctx); err != nil {
		return err
	}
	defer e.endTurn()
	e.mu.Lock()
	released := e.asleep[tagWeights]
	if released {
		e.die("CUDA error: an illegal memory access was encountered (reload_weights while the weights are released)")
	}
	e.mu.Unlock()
	if released {
		return errDead
	}
	if err := e.pass(ctx, e.duration(e.cfg.ReloadTime, float64(e.cfg.Weights)/diskBandwidth)); err != nil {
		return err
	}
	still := s.Faults.happens("garbage-reload")
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.garbage {
		e.garbage = still
		e.batch.Spoil() // what was computed meanwhile is garbage
	}
	return nil
}

func (e *engine) sleeping() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.paused || len(e.asleep) > 0
}

func (e *engine) duration(set time.Duration, seconds float64) time.Duration {
	if set != 0 {
		return max(0, set)
	}
	return time.Duration(seconds * float64(time.Second))
}

func gib(n int64) string { return fmt.Sprintf("%.2f", float64(n)/(1<<30)) }
