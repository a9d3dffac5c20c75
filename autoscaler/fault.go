package autoscaler

import (
	"log/slog"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/autoscaler/decide"
)

// fault counts a failed start or wake, at most once for each. It logs no warning: giving up does, with the reason, so
// the last failure is logged at debug level only. final says that no other try follows.
func (a *loop) fault(i *instance, message string, final bool, now time.Time) {
	if i.Faulted {
		return
	}
	i.Faulted = true
	f := i.f
	f.Failures++
	f.FailedAt, f.LastError, f.FailedOn = now, message, slices.Clone(i.Status.Devices)
	f.RetryAt = now.Add(backoff(f.Failures))
	level := slog.LevelInfo
	if final || f.Failures >= decide.MaxFailures {
		level = slog.LevelDebug
	}
	a.log.Log(a.calls.ctx, level, "a start failed", "function", f.Spec.Name, "instance", i.Status.Instance, "failures", f.Failures, "error", message)
}

// Backoff after consecutive failures.
const (
	backoffFirst = 100 * time.Millisecond
	backoffMost  = 30 * time.Second
)

// backoff returns the pause after the nth consecutive failure.
func backoff(n int) time.Duration {
	return min(backoffMost, backoffFirst<<min(max(0, n-1), 20))
}
