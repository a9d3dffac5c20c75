package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
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
	"github.com/rouse-dev/rouse/internal/localhttp"
)

const keptLines = 1000

const stopGrace = 5 * time.Second

// agent runs instances in this process; it implements the autoscaler's Effects. It is safe for many goroutines.
type agent struct {
	cfg       Config
	base      functions.Config
	dir       string // of sockets
	activator *activator.Activator
	far       *door.Front // may be nil
	emit      api.Emitter
	log       *slog.Logger

	starting sync.Mutex // guards serial; held while an instance starts; requests to others don't wait for it
	serial   int

	mu        sync.Mutex // guards all below
	instances map[api.InstanceID]*instance
	output    map[api.FunctionName]*process.Log
	ended     sync.WaitGroup // goroutines that wait for instances

	prewarming     sync.Mutex   // guards prewarmed; held while one is started
	prewarmed      *shim.Client // the next runtime's parent; may be nil
	prewarmedTaken bell.Bell    // rung when it is a good time for the next one
}

type instance struct {
	*functions.Instance

	id       api.InstanceID
	function api.FunctionName
	endpoint api.Endpoint
	dir      string
	gone     chan struct{} // closed once its processes are gone, and that was reported
}

// ParentArgs make cfg.Program a runtime's parent.
var ParentArgs = append([]string{"function"}, shim.Args()...)

func newAgent(cfg Config, base functions.Config, dir string, emit api.Emitter) *agent {
	base.Engine, base.Version = cfg.Program, cfg.Version
	if goruntime.GOOS == "linux" {
		base.Keep = append([]string{cfg.Program}, ParentArgs...)
	}
	return &agent{cfg: cfg, base: base, dir: dir, emit: emit, log: cfg.Logger, instances: map[api.InstanceID]*instance{}, output: map[api.FunctionName]*process.Log{},
		prewarmedTaken: bell.New()}
}

// Start returns at once.
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

func gone(id api.InstanceID, f api.FunctionName) api.InstanceStatus {
	return api.InstanceStatus{Instance: id, Function: f, State: api.Gone, Seq: math.MaxUint64, Since: time.Now()}
}

// running fails if there is no such instance, or ctx has ended.
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

func (a *agent) Wake(ctx context.Context, s api.InstanceStatus, g api.Grant) (api.InstanceStatus, error) {
	i, err := a.running(ctx, s.Instance)
	if err != nil {
		return api.InstanceStatus{}, err
	}
	return i.Wake(ctx, g)
}

func (a *agent) Sleep(ctx context.Context, s api.InstanceStatus, level api.Level, epoch uint64, drain api.Drain) (api.InstanceStatus, error) {
	i, err := a.running(ctx, s.Instance)
	if err != nil {
		return api.InstanceStatus{}, err
	}
	defer inbound.CollectLater() // no request may follow, which would
	return i.Sleep(ctx, control.SleepRequest{Level: level, Epoch: epoch, Drain: drain.Limit, Move: drain.Move})
}

func (a *agent) Fence(ctx context.Context, s api.InstanceStatus, epoch uint64) (api.InstanceStatus, error) {
	i, err := a.running(ctx, s.Instance)
	if err != nil {
		return api.InstanceStatus{}, err
	}
	return i.Fence(ctx, control.FenceRequest{Epoch: epoch})
}

// Stop returns when the instance's processes are gone; if ctx ends first, its runtime is killed.
func (a *agent) Stop(ctx context.Context, s api.InstanceStatus, drain api.Drain) error {
	i, err := a.running(context.WithoutCancel(ctx), s.Instance)
	if err != nil {
		return nil // it has ended, which was wanted
	}
	done := context.AfterFunc(ctx, i.Kill)
	defer done()
	_, _ = i.Instance.Stop(ctx, control.StopRequest{Drain: drain.Limit, Move: drain.Move})
	i.finish(stopGrace)
	<-i.gone
	return nil
}

func (i *instance) finish(grace time.Duration) {
	i.End()
	select {
	case <-i.Exited():
	case <-time.After(grace):
		i.Kill()
		<-i.Exited()
	}
}

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

func (a *agent) Grant(_ context.Context, g api.Grant) error {
	a.activator.Grant(g)
	return nil
}

func (a *agent) Revoke(ctx context.Context, g api.Grant) error { return a.activator.Revoke(ctx, g) }

func (a *agent) Fail(_ context.Context, name api.FunctionName, err *api.Error) error {
	if a.far != nil { // clusters may have it
		a.far.FailNear(name, err)
	} else {
		a.activator.Fail(name, err)
	}
	return nil
}

func (a *agent) killAll() {
	a.mu.Lock()
	var all sync.WaitGroup
	for _, i := range a.instances {
		all.Go(func() { i.finish(stopGrace) })
	}
	a.mu.Unlock()
	all.Wait()
	a.ended.Wait()
}

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

func (a *agent) forget(name api.FunctionName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.output, name)
}

func (a *agent) config(f api.Function, id api.InstanceID, g api.Grant, dir string, emit func(api.Event)) functions.Config {
	out := lines{a.logOf(f.Name)}
	cfg := a.base
	cfg.Function, cfg.Instance, cfg.Endpoint, cfg.Dir, cfg.Emit, cfg.Epoch = f, id, api.Endpoint("http://"+string(id)+instanceDomain), dir, emit, g.Epoch
	cfg.Output, cfg.Logger = out, slog.New(slog.NewTextHandler(out, nil)).With("instance", id)
	cfg.Trace, _ = api.ParseTrace(g.Trace)
	switch f.Runtime.Kind {
	case api.RuntimeEngine, api.RuntimeOllama, api.RuntimeLlamaCpp:
	default: // connections may be upgraded
		cfg.Listen = streamSocket(dir)
	}
	if f.Runtime.Kind == api.RuntimeHTTP {
		cfg.Endpoint = cfg.Listen
	}
	var gpus []string
	for _, d := range g.Devices {
		if d != api.HostMemory {
			gpus, cfg.Devices = append(gpus, string(d)), append(cfg.Devices, d)
		}
	}
	if len(gpus) > 0 {
		cfg.Env = append(slices.Clip(cfg.Env), "CUDA_VISIBLE_DEVICES="+strings.Join(gpus, ","))
	}
	return cfg
}

type lines struct{ log *process.Log }

func (l lines) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		l.log.Write(bytes.TrimRight(line, "\n"))
	}
	return len(p), nil
}

const instanceDomain = ".rouse.internal"

// prewarmAfter is the pause once an instance is awake: its first answers get the processor.
const prewarmAfter = 100 * time.Millisecond

// keepPrewarmed keeps a parent for the next runtime: starting one is most of the way to a runtime's own start.
func (a *agent) keepPrewarmed(ctx context.Context) error {
	for a.base.Keep != nil && ctx.Err() == nil {
		a.prewarming.Lock()
		if a.prewarmed == nil {
			var err error
			a.prewarmed, err = shim.Open(ctx, shim.ClientConfig{Command: a.base.Keep, Env: a.base.Env, Logger: a.log})
			if err != nil { // instances still start, only later
				a.log.Debug("no process is started ahead", "error", err)
			}
		}
		a.prewarming.Unlock()
		select {
		case <-a.prewarmedTaken:
		case <-ctx.Done():
		}
		_ = bell.Sleep(ctx, prewarmAfter)
	}
	if p := a.takePrewarmed(); p != nil {
		p.Close()
	}
	return nil
}

// takePrewarmed waits for a process that is starting; nil: none.
func (a *agent) takePrewarmed() (p *shim.Client) {
	a.prewarming.Lock()
	defer a.prewarming.Unlock()
	p, a.prewarmed = a.prewarmed, nil
	return p
}

func (a *agent) at(e api.Endpoint) (*functions.Instance, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, i := range a.instances {
		if i.endpoint == e {
			return i.Instance, nil
		}
	}
	return nil, fmt.Errorf("the instance at %s has ended: %w", e, syscall.ECONNREFUSED)
}

// streamSocket is for connections that may be upgraded.
func streamSocket(dir string) api.Endpoint {
	return api.Endpoint("unix:" + filepath.Join(dir, "fn.sock"))
}

var dialInstance = api.NewTransport(0).DialContext

func (a *agent) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, _ := net.SplitHostPort(address)
	id, here := strings.CutSuffix(host, instanceDomain)
	if !here {
		return dialInstance(ctx, network, address)
	}
	i, err := a.running(ctx, api.InstanceID(id))
	if err != nil {
		return nil, err
	}
	return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(string(streamSocket(i.dir)), "unix:"))
}

type waker struct{ agent *agent }

func (w waker) Wake(ctx context.Context, e api.Endpoint, g api.Grant) (api.InstanceStatus, error) {
	i, err := w.agent.at(e)
	if err != nil {
		return api.InstanceStatus{}, err
	}
	return i.Wake(ctx, g)
}

// idleConnection is shorter than instances keep idle connections.
const idleConnection = 90 * time.Second

type reaching struct {
	agent   *agent
	sockets *localhttp.Transport // to instances that listen
}

func (t reaching) RoundTrip(r *http.Request) (*http.Response, error) {
	return t.RoundTripCharged(r, nil)
}

// RoundTripCharged charges the header of an answer from this process once it exists.
func (t reaching) RoundTripCharged(r *http.Request, charge func(bytes int64) error) (*http.Response, error) {
	id, here := strings.CutSuffix(r.URL.Host, instanceDomain)
	if !here {
		return t.sockets.RoundTripCharged(r, charge)
	}
	i, err := t.agent.running(r.Context(), api.InstanceID(id))
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	resp, err := i.RoundTrip(r)
	if err != nil || charge == nil {
		return resp, err
	}
	size := 0
	for name, values := range resp.Header {
		for _, v := range values {
			size += len(name) + len(v)
		}
	}
	if size > largeHeader {
		if err := charge(2 * int64(size)); err != nil {
			_ = resp.Body.Close()
			return nil, err
		}
	}
	return resp, nil
}

const largeHeader = 16 << 10
