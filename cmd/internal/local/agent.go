package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/federation/door"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/functions/shim"
	"github.com/rouse-dev/rouse/internal/bell"
	"github.com/rouse-dev/rouse/internal/inbound"
)

// keptLines is how many lines of output are kept per function.
const keptLines = 1000

// stopGrace is how long an instance may take to end after the order.
const stopGrace = 5 * time.Second

// agent runs instances in this process and carries out the autoscaler's decisions: it implements Effects on one
// machine. Its methods are safe for concurrent use.
type agent struct {
	cfg       Config
	base      functions.Config // common to all instances
	dir       string           // the server's folder of sockets
	activator *activator.Activator
	far       *door.Front // nil: none
	emit      api.Emitter
	log       *slog.Logger

	starting sync.Mutex // guards serial; held while an instance starts; requests to others don't wait for it
	serial   int

	mu        sync.Mutex // guards all below
	instances map[api.InstanceID]*instance
	output    map[api.FunctionName]*process.Log
	ended     sync.WaitGroup // the goroutines that wait for instances

	prewarming     sync.Mutex   // guards prewarmed; held while one is started
	prewarmed      *shim.Client // the parent of the next runtime; nil: none
	prewarmedTaken bell.Bell    // received by keepPrewarmed: now is a good time for the next one
}

// instance is one instance in this process.
type instance struct {
	*functions.Instance

	id       api.InstanceID
	function api.FunctionName
	endpoint api.Endpoint
	dir      string
	gone     chan struct{} // closed once its processes are gone and that was reported
}

// ParentArgs are the arguments with which cfg.Program is a runtime's parent.
var ParentArgs = append([]string{"function"}, shim.Args()...)

func newAgent(cfg Config, base functions.Config, dir string, emit api.Emitter) *agent {
	base.Engine, base.Version = cfg.Program, cfg.Version
	if goruntime.GOOS == "linux" {
		base.Keep = append([]string{cfg.Program}, ParentArgs...)
	}
	return &agent{cfg: cfg, base: base, dir: dir, emit: emit, log: cfg.Logger, instances: map[api.InstanceID]*instance{}, output: map[api.FunctionName]*process.Log{},
		prewarmedTaken: bell.New()}
}

// Start starts an instance of that ID and returns at once.
func (a *agent) Start(ctx context.Context, f api.Function, id api.InstanceID, g api.Grant) (api.InstanceID, error) {
	a.starting.Lock()
	defer a.starting.Unlock()
	if _, err := a.running(context.WithoutCancel(ctx), id); err == nil {
		return id, nil
	}
	a.serial++
	dir := filepath.Join(a.dir, strconv.Itoa(a.serial))
	known := make(chan struct{}) // closed once the instance can be reached
	cfg := a.config(f, id, g, dir, func(e api.Event) { <-known; a.emit.Emit(e) })
	running, err := functions.Start(cfg, a.takePrewarmed())
	if err != nil {
		_ = os.RemoveAll(dir)
		return "", fmt.Errorf("start %s: %w", id, err)
	}
	i := &instance{running, id, f.Name, cfg.Endpoint, dir, make(chan struct{})}
	a.mu.Lock()
	a.instances[id] = i
	a.mu.Unlock()
	close(known)
	a.ended.Go(func() { a.await(i) })
	return id, nil
}

// await reports the end of an instance, whatever its cause.
func (a *agent) await(i *instance) {
	<-i.Exited()
	a.mu.Lock()
	delete(a.instances, i.id)
	a.mu.Unlock()
	_ = os.RemoveAll(i.dir)
	status := gone(i.id, i.function)
	if err := i.Err(); err != nil {
		status.Message = err.Error()
	}
	a.emit.Emit(api.NewEvent(api.EventInstanceState, "/node", i.function, status))
	close(i.gone)
}

// gone returns the last status of an instance.
func gone(id api.InstanceID, f api.FunctionName) api.InstanceStatus {
	return api.InstanceStatus{Instance: id, Function: f, State: api.Gone, Seq: math.MaxUint64, Since: time.Now()}
}

// running returns an instance, and an error if there is none of that ID, or ctx has ended.
func (a *agent) running(ctx context.Context, id api.InstanceID) (*instance, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := a.instances[id]; i != nil {
		return i, nil
	}
	return nil, fmt.Errorf("instance %s has ended: %w", id, syscall.ECONNREFUSED)
}

// Wake wakes a sleeping instance and returns when it is awake.
func (a *agent) Wake(ctx context.Context, s api.InstanceStatus, g api.Grant) (api.InstanceStatus, error) {
	i, err := a.running(ctx, s.Instance)
	if err != nil {
		return api.InstanceStatus{}, err
	}
	return i.Wake(ctx, g)
}

// Sleep drains an instance and puts it to sleep.
func (a *agent) Sleep(ctx context.Context, s api.InstanceStatus, level api.Level, epoch uint64, drain api.Drain) (api.InstanceStatus, error) {
	i, err := a.running(ctx, s.Instance)
	if err != nil {
		return api.InstanceStatus{}, err
	}
	defer inbound.CollectLater() // nothing else would, if no request follows
	return i.Sleep(ctx, control.SleepRequest{Level: level, Epoch: epoch, Drain: drain.Limit, Move: drain.Move})
}

// Fence makes every order and grant with a lower epoch void.
func (a *agent) Fence(ctx context.Context, s api.InstanceStatus, epoch uint64) (api.InstanceStatus, error) {
	i, err := a.running(ctx, s.Instance)
	if err != nil {
		return api.InstanceStatus{}, err
	}
	return i.Fence(ctx, control.FenceRequest{Epoch: epoch})
}

// Stop drains an instance, ends it, and returns when its processes are gone. If ctx ends first, its runtime is killed.
func (a *agent) Stop(ctx context.Context, s api.InstanceStatus, drain api.Drain) error {
	i, err := a.running(context.WithoutCancel(ctx), s.Instance)
	if err != nil {
		return nil //nolint:nilerr // it has ended, which was wanted
	}
	done := context.AfterFunc(ctx, i.Kill)
	defer done()
	_, _ = i.Instance.Stop(ctx, control.StopRequest{Drain: drain.Limit, Move: drain.Move}) // killed if ctx has ended
	i.finish(stopGrace)
	<-i.gone
	return nil
}

// finish has an instance end within grace.
func (i *instance) finish(grace time.Duration) {
	i.End()
	select {
	case <-i.Exited():
	case <-time.After(grace):
		i.Kill()
		<-i.Exited()
	}
}

// Adapt sends an instance the list of its adapters.
func (a *agent) Adapt(ctx context.Context, s api.InstanceStatus, list []api.Adapter) error {
	_, err := a.adapters(ctx, s.Instance, list)
	return err
}

func (a *agent) adapters(ctx context.Context, id api.InstanceID, list []api.Adapter) (api.InstanceStatus, error) {
	i, err := a.running(ctx, id)
	if err != nil {
		return api.InstanceStatus{}, err
	}
	return i.Adapters(ctx, control.AdaptersRequest{Adapters: list})
}

// State polls an instance for its status.
func (a *agent) State(ctx context.Context, s api.InstanceStatus) (api.InstanceStatus, error) {
	i, err := a.running(ctx, s.Instance)
	switch {
	case ctx.Err() != nil:
		return api.InstanceStatus{}, err
	case err != nil:
		return gone(s.Instance, s.Function), nil
	}
	return i.State(), nil
}

// Grant lets the activator wake an instance by itself.
func (a *agent) Grant(_ context.Context, g api.Grant) error {
	a.activator.Grant(g)
	return nil
}

// Revoke withdraws a grant.
func (a *agent) Revoke(ctx context.Context, g api.Grant) error { return a.activator.Revoke(ctx, g) }

// Fail makes the activator answer requests that wait for a function with err.
func (a *agent) Fail(_ context.Context, name api.FunctionName, err *api.Error) error {
	if a.far != nil { // clusters may have it
		a.far.FailNear(name, err)
	} else {
		a.activator.Fail(name, err)
	}
	return nil
}

// killAll ends all remaining instances and waits for them.
func (a *agent) killAll() {
	a.mu.Lock()
	var left []*instance
	for _, i := range a.instances {
		left = append(left, i)
	}
	a.mu.Unlock()
	var all sync.WaitGroup
	for _, i := range left {
		all.Go(func() { i.finish(stopGrace) })
	}
	all.Wait()
	a.ended.Wait()
}

// logOf returns the kept output of a function, creating it if needed.
func (a *agent) logOf(name api.FunctionName) *process.Log {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.output[name]
	if l == nil {
		l = process.NewLog(keptLines, nil)
		a.output[name] = l
	}
	return l
}

// followLog calls f with the last n lines of a function's output and, if more is set, each further one.
func (a *agent) followLog(ctx context.Context, name api.FunctionName, n int, more bool, f func(string) error) error {
	l := a.logOf(name)
	if more {
		err := l.Follow(ctx, n, f)
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	}
	for _, line := range l.Tail(n) {
		if err := f(line); err != nil {
			return err
		}
	}
	return nil
}

// forget drops the kept output of a removed function.
func (a *agent) forget(name api.FunctionName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.output, name)
}
