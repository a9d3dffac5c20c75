package autoscaler

import (
	"log/slog"
	"slices"
	"time"
)

// fault counts a failed start or wake, once for each rise. It is no warning yet: giving up is one, which says
// why, so that the last failure is not told here. final says that no other try follows.
func (a *Autoscaler) fault(i *instance, message string, final bool, now time.Time) {
	if i.faulted {
		return
	}
	i.faulted = true
	f := i.f
	f.Failures++
	f.FailedAt, f.LastError, f.FailedOn = now, message, slices.Clone(i.Status.Devices)
	f.RetryAt = now.Add(backoff(f.Failures))
	level := slog.LevelInfo
	if final || f.Failures >= a.cfg.Policy.MaxFailures {
		level = slog.LevelDebug
	}
	a.log.Log(a.opsCtx, level, "a start failed", "function", f.Spec.Name, "instance", i.Status.Instance, "failures", f.Failures, "error", message)
}

// Backoff after failures in a row.
const (
	backoffFirst = 100 * time.Millisecond
	backoffMost  = 30 * time.Second
)

// backoff is the pause after the nth failure in a row.
func backoff(n int) time.Duration {
	return min(backoffMost, backoffFirst<<min(max(0, n-1), 20))
}
