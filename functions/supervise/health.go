package supervise

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

const (
	pulseTimeout = 2 * time.Second
	// of one processor, above which a runtime counts as computing
	busyShare = 0.1
	// Failed probes in a row that are tolerated while a runtime computes without other signs of life; patienceCounted applies if its token
	// counter stands still, or if it has no requests.
	patience, patienceCounted = 10, 3
	// The longest time between probes that report readiness, and the time after a failure. unreadyAfter failures in a row mean not ready,
	// as is Kubernetes' default.
	readyEvery, unreadyEvery, unreadyAfter = 10 * time.Second, time.Second, 3
	// idlePatience is for a runtime that has no requests and does not compute either.
	idlePatience = 2
)

var errMoves = errors.New("the runtime counts tokens")

type health struct {
	cfg     *Config
	gate    *Gate
	probeAt time.Time // of the next check; zero: none
	last    traffic
	silent  int // probes in a row without an answer
	unready int // probes in a row that reported not ready
}

func (h *health) awoke() {
	*h = health{cfg: h.cfg, gate: h.gate, last: h.gate.traffic()}
	if h.cfg.ProbeInterval > 0 {
		h.putOff()
	}
}

func (h *health) putOff() {
	every := h.cfg.ProbeInterval
	switch {
	case !h.cfg.Runtime.Traits().Readiness:
	case h.unready > 0:
		every = min(every, unreadyEvery)
	default:
		every = min(every, readyEvery)
	}
	h.probeAt = time.Now().Add(every)
}

func (h *health) sawProgress() bool {
	last := h.last
	h.last = h.gate.traffic()
	if h.last.moved != last.moved || (h.last.running > 0 && last.running == 0) {
		h.silent = 0
		return true
	}
	return false
}

// judge takes the outcome of a probe and returns why the runtime has failed; empty: it has not, as far as is known.
//
//  1. It answers, something moved, or the outcome no longer matters.
//  2. Nobody listens at its endpoint, or it is about to end.
//  3. An idle runtime refuses the probe, which nothing excuses.
//  4. Requests came meanwhile: the next check decides.
//  5. It refused, so it does not hang.
//  6. Its requests or other programs may occupy the processors, which is tolerated for a while.
func (h *health) judge(op *operation, r result, ended bool, now traffic) (failure string) {
	idle := !op.busy && now.running == 0 && now.entered == h.last.entered
	switch {
	case r.err == nil || now.moved != h.last.moved || errors.Is(r.err, errMoves): // 1.
		h.silent = 0
	case ended || op.stopped: // 1.
	case refusedConnection(r.err): // 2.
		return "the runtime can't be reached: " + r.err.Error()
	case runtime.Dying(r.err): // 2.
		return "the runtime has died: " + r.err.Error()
	case idle && r.took < h.cfg.ProbeTimeout: // 3.
		return "the runtime fails: an idle one refuses a probe: " + r.err.Error()
	case !op.busy && !idle: // 4.
	case r.took < h.cfg.ProbeTimeout: // 5.
		h.silent = 0
	default: // 6.
		switch h.silent++; {
		case h.silent < op.patience:
		case idle:
			return fmt.Sprintf("the runtime hangs: an idle one has not answered %d probes in a row: %v", h.silent, r.err)
		default:
			return fmt.Sprintf("the runtime hangs: %d requests run, no part of an answer came in %v, and it answers no probe: %v",
				now.running, h.cfg.ProbeInterval+r.took, r.err)
		}
	}
	return ""
}

func (s *Supervisor) checkHealth() {
	s.health.putOff()
	if !s.health.sawProgress() || s.cfg.Runtime.Traits().Readiness {
		s.probeRuntime()
	}
}

func (s *Supervisor) checkUnreachable() {
	if s.phase == awake && s.op == nil && s.cfg.ProbeInterval > 0 {
		s.health.last = s.gate.traffic()
		s.probeRuntime()
	}
}

func (s *Supervisor) probeRuntime() {
	s.beginOperation(opProbe)
	s.op.busy = s.health.last.running > 0
	s.op.run()
}

func (s *Supervisor) finishProbe(op *operation, r result) {
	failure := ""
	if s.cfg.Runtime.Traits().Readiness && !op.stopped && !s.proc.ended && !refusedConnection(r.err) {
		s.health.noteReadiness(r.err)
	} else {
		failure = s.health.judge(op, r, s.proc.ended, s.gate.traffic())
	}
	s.health.putOff()
	if failure != "" {
		s.runtimeFailed(failure)
	}
}

func (h *health) noteReadiness(failed error) {
	was := h.unready >= unreadyAfter
	h.unready++
	if failed == nil {
		h.unready = 0
	}
	switch is := h.unready >= unreadyAfter; {
	case is == was:
	case is:
		h.cfg.Logger.Warn("runtime is not ready: requests are refused until its probe succeeds", "error", failed)
		h.gate.setReady(api.Errorf(http.StatusServiceUnavailable, api.CodeUnhealthy, "the instance is not ready: its readiness probe fails").WithRetryAfter(unreadyEvery))
	default:
		h.cfg.Logger.Info("runtime is ready again")
		h.gate.setReady(nil)
	}
}

// refusedConnection reports whether nobody listens. Other connection errors may come from too many requests.
func refusedConnection(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT)
}

// sendProbe also sets how many such probes in a row condemn the runtime.
func (o *operation) sendProbe(ctx context.Context) error {
	o.patience = 1
	if !o.busy {
		o.patience = idlePatience
	}
	before := o.pulse(ctx)
	err := o.cfg.Runtime.Probe(ctx, o.launch.Endpoint)
	if err == nil || !errors.Is(context.Cause(ctx), errTimeout) {
		return err
	}
	after := o.pulse(context.WithoutCancel(ctx))
	computes := before.timed && after.timed && after.cpu-before.cpu > time.Duration(busyShare*float64(after.at.Sub(before.at)))
	switch {
	case before.counted && after.counted && before.tokens != after.tokens:
		return errMoves
	case computes && (before.counted || !o.busy):
		o.patience = patienceCounted
	case computes:
		o.patience = patience
	}
	return err
}

type pulse struct {
	counted bool
	tokens  float64 // processed and generated since its start
	timed   bool
	cpu     time.Duration
	at      time.Time
}

// pulse reads the token counters only if requests run: they stand still in an idle runtime.
func (o *operation) pulse(ctx context.Context) pulse {
	ctx, cancel := context.WithTimeout(ctx, pulseTimeout)
	defer cancel()
	var p pulse
	if o.busy {
		if signals, err := o.cfg.Runtime.Signals(ctx, o.launch.Endpoint); err == nil && signals.GeneratedTokens >= 0 {
			p.counted, p.tokens = true, signals.GeneratedTokens+max(signals.PromptTokens, 0)
		}
	}
	if c, ok := o.child.(interface{ CPU() (time.Duration, error) }); ok {
		cpu, err := c.CPU()
		p.timed, p.cpu = err == nil, cpu
	}
	p.at = time.Now()
	return p
}

func (s *Supervisor) measureBusy() {
	running, entered := s.gate.Running()
	if running > 0 || entered != s.health.last.entered || s.reports.read().Memory.Host == 0 {
		s.meter.start(&s.proc, s.phase)
		return
	}
	s.meter.after(memoryInterval)
}
