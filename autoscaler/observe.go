package autoscaler

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
	"github.com/rouse-dev/rouse/autoscaler/rhythm"
	"github.com/rouse-dev/rouse/internal/tombstone"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// PutFunction declares a function. If what an instance runs has changed, new instances replace the existing ones.
func (a *Autoscaler) PutFunction(spec api.Function) { a.put(&functionPut{Spec: spec}) }

// withoutBounds returns the part of f that a start can fail by. In a cluster the rest changes because starts fail.
func withoutBounds(f api.Function) api.Function {
	f.MinScale, f.MaxScale, f.SleepAfter, f.UnloadAfter = 0, 0, 0, 0
	return f
}

// RemoveFunction stops all instances of a function and forgets it.
func (a *Autoscaler) RemoveFunction(name api.FunctionName) { a.put(&functionRemoved{Name: name}) }

// SetDevices replaces the memories to allocate, the host's first. Instances on a GPU that its node has lost end. A list
// that [Config.Validate] would refuse is ignored.
func (a *Autoscaler) SetDevices(devices []inventory.Device) {
	devices = slices.Clone(devices)
	if err := checkDevices(devices); err != nil {
		a.log.Error("the new devices are ignored", "error", err)
		return
	}
	a.put(&devicesSet{Devices: devices})
}

// renamed does not write to ids.
func renamed(ids []api.DeviceID, now map[api.DeviceID]api.DeviceID) []api.DeviceID {
	for k, id := range ids {
		if _, found := now[id]; found {
			ids = slices.Clone(ids)
			for ; k < len(ids); k++ {
				if to, found := now[ids[k]]; found {
					ids[k] = to
				}
			}
			return ids
		}
	}
	return ids
}

// ObserveInstance takes in a report. Reports may be repeated, late and out of order.
func (a *Autoscaler) ObserveInstance(s api.InstanceStatus) {
	a.put(&instanceReported{Status: plain(s)})
}

// plain has the precision that is recorded.
func plain(s api.InstanceStatus) api.InstanceStatus {
	s.Since = s.Since.Truncate(time.Microsecond)
	if s.Load != nil {
		l := *s.Load
		l.KVUsage, l.TokensPerSecond, l.PromptTokensPerSecond = thousandth(l.KVUsage), thousandth(l.TokensPerSecond), thousandth(l.PromptTokensPerSecond)
		l.TTFT = l.TTFT.Truncate(time.Millisecond)
		s.Load = &l
	}
	return s
}

func thousandth(v float64) float64 {
	const digits = 1<<42 - 1 // of 52; these are cleared
	return math.Float64frombits(math.Float64bits(v) &^ digits)
}

// ObserveDemand takes in what one activator sees of one function.
func (a *Autoscaler) ObserveDemand(d api.Demand) {
	d.At, d.LastRequest = d.At.Truncate(time.Microsecond), d.LastRequest.Truncate(time.Microsecond)
	d.OldestAge = d.OldestAge.Truncate(time.Microsecond)
	a.put(&demandReported{Demand: d})
}

func judgement(r *rhythm.Rhythm) string {
	v, score := r.Last(), "the next is acted upon"
	if !r.Trusted() {
		score = "forecasts are not acted upon until more of them are right"
	}
	verdict := "wrong: none came then"
	if v.Right {
		verdict = "right: one came at " + v.Came.UTC().Format("15:04:05.000 MST")
	}
	return fmt.Sprintf("%s; that was %s; %s, and %s", v.Window, verdict, r.Scored(), score)
}

// ObserveWoken takes in an activator's trace of a wake.
func (a *Autoscaler) ObserveWoken(o api.WakeTrace) {
	a.do(func() {
		f := a.functions[o.Function]
		if f == nil || f.Undeclared {
			return
		}
		var came api.Path
		if i := a.instances[o.Instance]; i != nil {
			came = api.Path(i.path())
		}
		a.wakes.Woken(o, came, time.Now())
	})
}

// NotePodSteps is [wakeStore.PodSteps].
func (a *Autoscaler) NotePodSteps(name api.FunctionName, pod api.InstanceID, path api.Path, steps ...waketrace.Step) {
	a.wakes.PodSteps(name, pod, path, steps...)
}

// WakeTraces returns the last wakes of a function, the newest last.
func (a *Autoscaler) WakeTraces(name api.FunctionName) []api.WakeTrace { return a.wakes.List(name) }

const mostLate = 30 * time.Second

func (a *loop) merge(s api.InstanceStatus, now time.Time) {
	i := a.instances[s.Instance]
	if i != nil {
		i.Heard, i.Misses = now, 0
	}
	switch {
	case i == nil && s.State == api.Gone:
		a.tombstones.Add(s.Instance, tombstone.Final, time.Time{}) // Start may be about to return this ID
		return
	case i == nil && a.tombstones.Holds(s.Instance, 0, now):
		return
	case i == nil:
		a.adopt(s, now)
		return
	case i.Reported && !s.Supersedes(i.Status), s.Function != i.Status.Function:
		return
	case s.State == api.Gone:
		a.died(i, s, now)
		return
	}
	old := i.Status
	if len(s.Devices) == 0 && !(s.State == api.Asleep && s.Level == api.Suspended) {
		if s.Devices = old.Devices; len(s.Devices) == 0 {
			s.Devices = i.Grant.Devices // those that it was restored onto
		}
	}
	if s.Node == "" {
		s.Node = old.Node
	}
	a.complete(i.f, &s, old)
	i.Status, i.Reported = s, true
	a.share(i, old)
	if old.OnItsWay() && !s.OnItsWay() {
		i.Since = now
	}
	i.noteUnloaded()
	a.noteOrders(i, old, now)
	changed := s.State != old.State || s.Level != old.Level
	if changed {
		a.changed(i, old, now)
	}
	if s.State != api.Asleep || !s.Memory.Assumed {
		i.Doubt = ""
	}
	switch {
	case beingMeasured(s):
		if changed {
			i.Settles = now.Add(firstSettleTime)
		}
	case changed && s.State == api.Asleep && s.Memory.Host > 0 && s.Memory.Host == old.Memory.Host: // it reports what it used awake
		i.Settles = now.Add(settleTime)
	case changed || s.Memory != old.Memory || s.Measuring != old.Measuring:
		i.Settles = time.Time{}
		a.exceeds(i, now)
		i.f.Past = i.f.Past.Measured(s)
	}
	if s.Load != nil {
		i.f.Past = i.f.Past.Loaded(*s.Load)
	}
	i.f.Past.Snapshot = cmp.Or(s.Snapshot, i.f.Past.Snapshot)
	a.calls.adapt(i)
	i.f.Observe(now)
}

// noteUnloaded records whether a sleeper has to load: its process may end.
func (i *instance) noteUnloaded() {
	if i.Status.State == api.Asleep {
		i.Unloaded = i.f.Spec.Unloaded(i.Status)
	}
}

// exceeds reports host memory above the declared amount, each time that it has grown by a tenth.
func (a *loop) exceeds(i *instance, now time.Time) {
	f, uses := i.f, i.Status.Memory.Host
	declared := f.Spec.Memory.Host
	if known := max(declared, f.Past.Awake.Host); declared == 0 || i.Status.State != api.Awake || uses <= known+known/10 {
		return
	}
	d := api.Decision{At: now, Function: f.Spec.Name, Instance: i.Status.Instance, Action: "exceed",
		Reason: fmt.Sprintf("it uses %s of host memory and declares %s: what was measured counts; raise rouse.dev/memory", uses, declared)}
	a.log.Warn("an instance uses more than its function declares", "function", f.Spec.Name, "instance", d.Instance, "uses", uses, "declares", declared)
	a.tell(d)
}

// settleTime limits the measurement of a sleeper, firstSettleTime the first one of its GPUs.
const (
	settleTime      = 300 * time.Millisecond
	firstSettleTime = 3 * time.Second
)

func (a *loop) adopt(s api.InstanceStatus, now time.Time) {
	f := a.record(s.Function)
	a.complete(f, &s, api.InstanceStatus{State: s.State, DeviceUse: s.DeviceUse})
	i := a.addInstance(f, s, now)
	a.share(i, api.InstanceStatus{Node: s.Node})
	i.Reported, i.From = true, inventory.Stopped
	if !s.Since.IsZero() && s.Since.Before(now) {
		i.Since = s.Since
	}
	if s.State == api.Asleep {
		i.From, i.Slept = s.Level, true
	}
	if beingMeasured(s) {
		i.Settles = now.Add(firstSettleTime)
	}
	i.noteUnloaded()
	a.noteOrders(i, s, now)
	a.assumeGranted(i, now)
	f.Observe(now)
	a.calls.adapt(i)
	a.log.Info("an instance is adopted", "function", s.Function, "instance", s.Instance, "state", s.State)
}

// noteOrders takes in the epoch of a new status. An instance that has forgotten it may obey any earlier order.
func (a *loop) noteOrders(i *instance, old api.InstanceStatus, now time.Time) {
	s := i.Status
	if a.calls.epochs.Beyond(s.Epoch) {
		if i.Lost == "" {
			a.log.Error("an instance obeys orders that are later than ours: another autoscaler leads, or it lies", "instance", s.Instance, "epoch", s.Epoch)
			i.Lost = "it obeys orders that are later than those of this autoscaler, which goes on leading"
			i.RetryAt = now.Add(deposedAfter) // a replaced leader has ended by then
		}
		return
	}
	i.Epoch = max(i.Epoch, s.Epoch)
	if decide.ForgotEpoch(old, s) {
		a.assumeGranted(i, now)
		return
	}
	i.Grant = decide.SettleGrant(i.Grant, s)
}

// deposedAfter is longer than a leader keeps running without its lease.
const deposedAfter = 30 * time.Second

// assumeGranted reserves memory for an instance to be awake until it has seen a later epoch.
func (a *loop) assumeGranted(i *instance, now time.Time) {
	i.Grant = decide.AssumeGranted(i.Status, a.calls.newEpoch(i), now.Add(a.cfg.Policy.GrantLife))
}

func (a *loop) changed(i *instance, old api.InstanceStatus, now time.Time) {
	f, s := i.f, i.Status
	a.tellChange(i, old, now)
	rose := f.Changed(&i.Instance, old, now)
	if s.CanaryMismatches > old.CanaryMismatches && old.Seq > 0 {
		reason, _, _ := strings.Cut(s.Message, "; its last output:")
		reason = cmp.Or(reason, "the model did not answer as it did before it slept: its weights were read anew")
		a.tell(api.Decision{At: now, Function: f.Spec.Name, Instance: s.Instance, Action: "reload", Reason: reason})
	}
	switch s.State {
	case api.Starting:
		if old.State != api.Starting {
			i.RoseAt, i.Faulted = now, false
		}
	case api.Awake:
		if rose {
			a.metrics.woke(&f.Spec, i.path(), now.Sub(i.RoseAt))
			a.wakes.Awake(i.Status, api.Path(i.path()), time.Now())
			i.Faulted = false
		}
	case api.Unhealthy:
		if old.State != api.Awake && old.State != api.Draining {
			a.fault(i, s.Message, s.GaveUp, now)
			if s.NoRoom {
				a.doubt(i)
			}
			f.Hopeless = s.GaveUp && f.Failures < decide.MaxFailures
			return
		}
		a.log.Warn("an instance is unhealthy", "function", f.Spec.Name, "instance", s.Instance, "was", old.State, "message", s.Message)
	}
}

// tellChange records changes that the autoscaler did not order.
func (a *loop) tellChange(i *instance, old api.InstanceStatus, now time.Time) {
	s := i.Status
	d := api.Decision{At: now, Function: i.f.Spec.Name, Instance: s.Instance}
	switch {
	case old.State == api.Asleep && (s.State == api.Starting || s.State == api.Awake) && i.Doing == decide.Nothing && (i.Waking || i.GrantedAt.After(i.RoseAt)):
		d.Action, d.Reason = "woken", "a request came, and the activator that holds it woke it under the grant"
	case s.State == api.Unhealthy && (old.State == api.Awake || old.State == api.Draining):
		reason, _, _ := strings.Cut(s.Message, "; its last output:")
		d.Action, d.Reason = "unhealthy", cmp.Or(reason, "it does not answer")
	default:
		return
	}
	a.tell(d)
}

func (a *loop) died(i *instance, s api.InstanceStatus, now time.Time) {
	if i.Doing != decide.DoingStop {
		if st := i.Status.State; !s.Taken && (st == api.Starting || st == api.Unhealthy || i.Doing == decide.DoingWake) {
			a.fault(i, "the process ended while it was starting"+because(s.Message), false, now)
		}
		level := slog.LevelWarn
		if s.Taken {
			level = slog.LevelInfo
		}
		a.log.Log(a.calls.ctx, level, "an instance is gone", "function", i.f.Spec.Name, "instance", s.Instance, "was", i.Status.State, "message", s.Message)
	}
	a.dropInstance(i, now)
	a.finishRemoval(i.f)
}

func because(message string) string {
	if message == "" {
		return ""
	}
	return ": " + message
}

// mostMisses in a row make an instance count as lost.
const mostMisses = 3

// probe polls f's silent instances. It returns when the next poll is due; zero: none is.
func (a *loop) probe(f *function, now time.Time) (next time.Time) {
	for _, known := range f.Instances {
		i := a.instances[known.Status.Instance]
		if i.Probing || i.Doing != decide.Nothing || !i.Reported || !i.matters() {
			continue
		}
		if t := i.Heard.Add(probeAfter); t.After(now) {
			next = earlier(next, t)
			continue
		}
		a.calls.poll(i)
	}
	return next
}

func (i *instance) matters() bool {
	switch i.Status.State {
	case api.Awake:
		return i.f.Waiting > 0
	case api.Asleep:
		return i.f.Waiting > 0 || i.f.Running > 0 && !i.f.Serving
	}
	return true
}

func (a *calls) poll(i *instance) {
	i.Probing, i.Heard = true, a.now
	s := i.Status
	a.call(&call{Kind: callState, Function: i.f.Spec.Name, i: i}, a.cfg.CallTimeout, func(ctx context.Context) returned {
		got, err := a.fx.State(ctx, s)
		return returned{Status: got, Err: newFailure(err)}
	})
}

func (a *calls) polled(c *call, s api.InstanceStatus, err error) {
	i := c.i
	if i == nil {
		return
	}
	i.Probing = false
	if a.instances[c.Asked] != i {
		return
	}
	if err == nil {
		a.merge(s, a.now)
		return
	}
	a.log.Debug("an instance does not answer", "function", c.Function, "instance", c.Asked, "error", err)
	// A starting instance may not answer yet.
	if i.Misses++; i.Misses >= mostMisses && i.Status.State != api.Starting {
		i.Lost = err.Error()
	}
}
