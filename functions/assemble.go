package functions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/adapters"
	"github.com/rouse-dev/rouse/functions/fetch"
	"github.com/rouse-dev/rouse/functions/metrics"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/functions/proxy"
	"github.com/rouse-dev/rouse/functions/pyfunc"
	"github.com/rouse-dev/rouse/functions/resume"
	"github.com/rouse-dev/rouse/functions/runtime"
	"github.com/rouse-dev/rouse/functions/shim"
	"github.com/rouse-dev/rouse/functions/supervise"
	"github.com/rouse-dev/rouse/functions/translate"
	"github.com/rouse-dev/rouse/internal/cloudevent"
	"github.com/rouse-dev/rouse/internal/inbound"
	"github.com/rouse-dev/rouse/internal/localhttp"
)

// otherNames returns the model's other names: aliases, and those of function, service and variant.
func otherNames(f api.Function) []api.ModelName {
	names := slices.Clone(f.Aliases)
	service := f.ServiceName()
	for _, n := range []api.ModelName{api.ModelName(service.Name()), api.ModelName(service), api.ModelName(f.Name.Name()), api.ModelName(f.Name)} {
		if n != f.Model && !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	if n := f.VariantOf; n != "" && n != f.Model && !slices.Contains(names, n) {
		names = append(names, n)
	}
	return names
}

// assemble starts nothing. agent is nil outside of a cluster.
func assemble(cfg Config, log *process.Log, kept *shim.Client, agent *registrar) (*function, error) {
	f := &function{
		cfg: cfg, log: log, shim: kept, agent: agent, transport: localhttp.New(cfg.Function.Concurrency+2, idleConnection),
		settled: make(chan struct{}),
	}
	f.ending, f.end = context.WithCancel(context.Background())
	f.settle = sync.OnceFunc(func() { close(f.settled) })
	if kept == nil {
		f.settle()
	}
	for _, part := range []func() error{f.makeModels, f.openSnapshot, f.makeRuntime, f.makeEvents, f.makeSupervisor, f.makeAdapters, f.makeProxy, f.makePyfunc} {
		if err := part(); err != nil {
			f.close()
			return nil, err
		}
	}
	return f, nil
}

func (f *function) makeModels() (err error) {
	f.models, err = newModels(f.cfg)
	return err
}

// openSnapshot makes the instance's folder the snapshot's.
func (f *function) openSnapshot() error {
	fn := f.cfg.Function
	if !fn.Snapshot {
		return nil
	}
	criu, err := exec.LookPath("criu")
	if err == nil && (len(f.cfg.Devices) > 0 || fn.Memory.Devices > 0 || f.cfg.Workers != "" || canaryTokens(fn) == 0 || fn.Runtime.Endpoint != "" || fn.Runtime.Kind == api.RuntimeSGLang) {
		err = errors.New("it has a GPU, several workers, a server key, no canary, or a server that is not started here")
	}
	var cache *fetch.Cache
	if err == nil {
		cache, err = f.models.open()
	}
	if err == nil {
		f.snapshot, err = lockSnapshot(f.ending, cache, fileName(fn.Name), criu, f.cfg.Logger, func(now api.Snapshot) { f.supervisor.Reports().SetSnapshot(now) })
	}
	if err != nil {
		f.cfg.Logger.Warn("the function has no snapshots", "reason", err)
		f.noSnapshot = &api.Snapshot{Missing: err.Error()}
		return nil
	}
	f.cfg.Dir = f.snapshot.Dir()
	return nil
}

func (f *function) makeRuntime() (err error) {
	f.runtime, err = runtime.New(runtime.Config{
		Spec: f.cfg.Function.Runtime, Model: f.cfg.Function.Model, Aliases: otherNames(f.cfg.Function),
		Instance: string(f.cfg.Instance), Alone: len(f.cfg.Keep) == 0 || f.cfg.Workers != "" || f.snapshot != nil, Dir: f.cfg.Dir, Concurrency: f.cfg.Function.Concurrency, MaxBody: f.cfg.MaxBody, Devices: cmp.Or(len(f.cfg.Devices), f.cfg.Function.Memory.Devices),
		CanaryTokens: canaryTokens(f.cfg.Function), Port: f.cfg.RuntimePort, ProbePath: f.cfg.ProbePath, ProbeCommand: f.cfg.ProbeCommand, Engine: f.cfg.Engine, Tiles: f.models.tiles(), Transport: f.transport,
		Env: slices.Concat(f.models.compiled(f.ending, f.cfg.Function.Name), f.cfg.Env),
	})
	return err
}

func (f *function) toRuntime() http.RoundTripper {
	if k, keyed := f.runtime.(runtime.Keyed); keyed {
		return runtime.WithKey(f.transport, k)
	}
	return f.transport
}

func canaryTokens(fn api.Function) int {
	switch {
	case fn.CanaryTokens < 0, fn.Runtime.Kind == api.RuntimeHTTP:
		return 0
	case fn.CanaryTokens > 0:
		return fn.CanaryTokens
	case fn.Runtime.Kind == api.RuntimeVLLM, fn.Runtime.Kind == api.RuntimeSGLang:
		return 4
	}
	return 1
}

func (f *function) makeEvents() (err error) {
	if f.emit = f.cfg.Emit; f.emit != nil {
		return nil
	}
	if f.events, err = sender(f.cfg, f.agent); f.events != nil {
		f.emit = f.events.Emit
	}
	return err
}

// sender returns nil if nobody wants the events.
func sender(cfg Config, agent *registrar) (*cloudevent.Sender, error) {
	to, by := cfg.Events, http.RoundTripper(nil)
	switch {
	case agent != nil:
		to, by = cfg.Join.Control, agent.Transport()
	case to == "":
		return nil, nil
	default:
		by = localhttp.New(1, idleConnection)
	}
	return cloudevent.NewSender(cloudevent.SenderConfig{URL: to.URL(control.PathEvents), Transport: by, Logger: cfg.Logger})
}

func (f *function) makeSupervisor() (err error) {
	fn := f.cfg.Function
	cfg := supervise.Config{
		Status: api.InstanceStatus{
			Instance: f.cfg.Instance, Function: fn.Name, Endpoint: cmp.Or(f.cfg.Endpoint, f.cfg.Listen), Devices: f.cfg.Devices,
			Concurrency: fn.Concurrency, Epoch: f.cfg.Epoch, Seq: f.cfg.Seq, Snapshot: f.noSnapshot,
		},
		Asleep: f.cfg.Asleep, Runtime: f.runtime, Model: fn.Runtime.Model, Canary: canaryTokens(fn) > 0, Ready: f.ready, Adapters: func() map[api.ModelName]time.Time { return f.adapters.Loaded() }, Early: f.early, Log: f.log, Report: f.report, Closed: f.transport.CloseIdleConnections,
		StartTimeout: fn.StartTimeout, WakeTimeout: fn.WakeTimeout, Trace: f.cfg.Trace, Leave: func(ctx context.Context, _ api.Endpoint) { f.metrics.Poll(ctx) },
		StopGrace: f.cfg.StopGrace, ProbeInterval: f.cfg.ProbeInterval, ProbeTimeout: f.cfg.ProbeTimeout, Logger: f.cfg.Logger,
	}
	if len(f.cfg.Devices) > 0 || fn.Memory.Devices > 0 {
		cfg.GPUs, cfg.SleepLevel, cfg.Moves = process.GPUMemory, fn.SleepLevel, f.cfg.Join == nil && len(f.cfg.Devices) > 0 && !strings.HasPrefix(string(f.cfg.Devices[0]), "MIG-")
		var err error
		if cfg.Suspender, err = f.suspender(); err != nil {
			cfg.Status.NoSuspend = err.Error()
		}
	}
	if f.models.fetches() {
		cfg.Prepare = f.models.prepare
	}
	cfg.Start = process.StartChild
	if f.shim != nil {
		cfg.Start, cfg.Adopt, cfg.Save = f.shim.Start, f.adopt, f.shim.Save
	}
	if d, is := f.runtime.(runtime.Deployer); is {
		own := cfg.Start
		cfg.Start = func(s process.Spec) (supervise.Child, error) { return d.Deploy(s, own, f.startApart) }
	}
	if f.snapshot != nil { // a nil *Snapshot would be a non-nil interface
		cfg.Snapshots = f.snapshot
	}
	f.supervisor, err = supervise.New(cfg)
	return err
}

// startApart starts a process that ends with this process, not with the instance.
func (f *function) startApart(s process.Spec) (supervise.Child, error) {
	parent, err := shim.Open(context.Background(), keeping(f.cfg, f.log))
	if err != nil {
		return nil, err
	}
	child, err := parent.Start(s)
	if err != nil {
		parent.Close()
		return nil, err
	}
	go func() {
		<-child.Exited()
		parent.Close()
	}()
	return child, nil
}

func (f *function) suspender() (supervise.Suspender, error) {
	self, err := os.Executable()
	switch fn := f.cfg.Function; {
	case fn.Suspend == api.SuspendOff:
		return nil, errors.New("the annotation rouse.dev/suspend is off")
	case fn.Runtime.Endpoint != "":
		return nil, errors.New("others start its server, so its processes are not known: let the function start it")
	case err != nil:
		return nil, err
	}
	program := filepath.Join(filepath.Dir(self), "rouse-suspend")
	if _, err = os.Stat(program); err != nil {
		return nil, fmt.Errorf("it needs the program rouse-suspend beside this one: %w", err)
	}
	return process.Suspender{Program: program, Library: process.Variable(f.cfg.Env, "LD_LIBRARY_PATH")}, nil
}

func (f *function) makeAdapters() (err error) {
	rt := f.cfg.Function.Runtime
	f.adapters, err = adapters.New(adapters.Config{
		Model: f.cfg.Function.Model, Aliases: otherNames(f.cfg.Function), Root: rt.AdapterRoot, Declared: rt.Adapters,
		Loader: f.runtime, Gate: f.supervisor.Gate(), Fixed: !f.runtime.Traits().Adapts, Room: f.runtime.Traits().Room, Brings: f.runtime.Traits().Brings, Fetch: f.models.adapter, Changed: f.supervisor.Reports().SetAdapters, Most: func() int { return f.metrics.MaxAdapters() }, Transport: f.toRuntime(), Logger: f.cfg.Logger,
	})
	return err
}

// makeProxy's handler sends requests to the user's handler if there is one, else to the runtime.
func (f *function) makeProxy() (err error) {
	measured := metrics.Config{
		Model: f.cfg.Function.Model, Status: f.supervisor.Status, Signals: f.signals,
		Load: func() proxy.Load { return f.proxy.Load() },
	}
	if p, is := f.runtime.(runtime.Publisher); is && p.CacheEvents() != "" {
		f.kv = metrics.NewFollower(p.CacheEvents(), f.cfg.Logger)
		measured.Cached = f.kv.Tokens
	}
	if f.metrics, err = metrics.New(measured); err != nil {
		return err
	}
	gate := f.supervisor.Gate()
	f.door = inbound.New(inbound.Config{MaxBody: int64(f.cfg.MaxBody)})
	direct := proxy.Config{
		Gate: gate, Dialect: f.runtime, Adapter: f.adapters.Of, Hold: f.adapters.Hold, Transport: f.toRuntime(), Host: toldHost(f.cfg.Listen), Door: f.door,
		Timeout: f.cfg.Function.RequestTimeout, Observe: f.metrics.Observe, Logger: f.cfg.Logger,
		Tenants: f.cfg.Function.Runtime.Kind == api.RuntimeEngine, Prefixes: prefixes(f.cfg.Function), Credentials: f.cfg.Function.PassCredentials,
		MediaHosts: f.cfg.Function.Runtime.MediaHosts, Everything: f.plain(), Single: f.cfg.Function.Runtime.ReuseConnections != nil && !*f.cfg.Function.Runtime.ReuseConnections,
	}
	f.tellStreams(&direct)
	if argv := f.cfg.Function.Handler; len(argv) > 0 {
		inner := direct
		inner.Gate, inner.Observe, inner.Timeout, inner.Inside = inside{gate, gate}, nil, 0, true
		start, err := f.handlerStart()
		if err != nil {
			return err
		}
		f.handler, err = newUserHandler(userHandlerConfig{
			Command: argv, Env: f.cfg.Env, Runtime: proxy.New(inner), Model: f.cfg.Function.Model,
			Log: process.NewLog(logLines, prefixed{f.log}), Start: start, StopGrace: f.cfg.StopGrace, Logger: f.cfg.Logger,
		})
		if err != nil {
			return err
		}
		direct.Gate, direct.Dialect, direct.Tenants, direct.Transport = handled{gate, f.handler}, nil, false, f.transport
	}
	f.proxy = proxy.New(direct)
	f.clients = f.proxy
	if kind := f.cfg.Function.Runtime.Kind; (kind == api.RuntimeEngine || kind == api.RuntimeRayServe) && f.handler == nil {
		f.clients = &translate.Handler{
			Next: f.proxy, Door: f.door, Client: proxy.Client, Names: append(otherNames(f.cfg.Function), f.cfg.Function.Model),
			Reports: kind == api.RuntimeEngine,
		}
	}
	if f.cfg.Wrap != nil {
		f.clients = f.cfg.Wrap(f.clients)
	}
	return nil
}

// handlerStart returns nil if this process adopts orphans itself; else the handler's program gets a shim.
func (f *function) handlerStart() (func(process.Spec) (process.Child, error), error) {
	if f.cfg.OwnProcess || len(f.cfg.Keep) == 0 {
		return process.StartChild, nil
	}
	var err error
	f.handlerShim, err = shim.Open(f.ending, keeping(f.cfg, f.log))
	return f.handlerShim.Start, err
}

// tellStreams has the proxy record the state of streams, for runtimes that can't report it but can continue a stream.
func (f *function) tellStreams(cfg *proxy.Config) {
	t, is := f.runtime.(runtime.Tellable)
	if !is || !f.cfg.Function.Resumes() {
		return
	}
	spec := f.cfg.Function.Runtime
	cfg.States = true
	cfg.Transport = resume.New(resume.Config{
		Next: cfg.Transport, Logger: f.cfg.Logger,
		Model: func() resume.Model {
			path, times := t.Started()
			return resume.Model{Name: spec.Model, Path: path, Starts: times, Args: spec.Args, Env: spec.Env, Attached: spec.Endpoint != ""}
		},
		Adapter: func(name string) (string, bool) { return f.adapters.Path(api.ModelName(name)) },
	})
}

// plain reports whether all paths belong to clients.
func (f *function) plain() bool { return f.cfg.Function.Runtime.Kind == api.RuntimeHTTP }

// prefixes returns how the runtime keeps clients' cached prompts apart. Commands and Ollama have no known way.
func prefixes(fn api.Function) proxy.Prefixes {
	if fn.SharedPrefixes {
		return proxy.PrefixesAsTheyAre
	}
	switch fn.Runtime.Kind {
	case api.RuntimeEngine, api.RuntimeVLLM, api.RuntimeSGLang, api.RuntimeRayServe:
		return proxy.PrefixesSalted
	case api.RuntimeLlamaCpp:
		return proxy.PrefixesForgotten
	}
	return proxy.PrefixesAsTheyAre
}

func (f *function) makePyfunc() error {
	timeout, err := pyfunc.TimeoutFrom(f.cfg.Env)
	if err != nil {
		return err
	}
	f.pyfunc = pyfunc.New(pyfunc.Config{
		Next: http.HandlerFunc(f.client), Status: f.supervisor.Status, Refusal: f.supervisor.Gate().Refusal, Model: f.cfg.Function.Model, Version: f.cfg.Version,
		Engine: pyfunc.EngineName(f.cfg.Function.Runtime.Kind), Door: f.door, Timeout: timeout,
		Parallel: f.cfg.Function.Concurrency, Credentials: f.cfg.Function.PassCredentials, Diagnostics: f.cfg.Diagnostics, Env: slices.Concat(f.cfg.Env, f.cfg.Function.Runtime.Env), Logger: f.cfg.Logger,
	})
	return nil
}

func (f *function) adopt() (supervise.Child, runtime.Launch, supervise.Note, bool) {
	child, launch, note, found := f.shim.Adopt()
	if !found {
		f.settle()
	}
	return child, launch, note, found
}

// ready runs when the runtime has generated a token, before the instance counts as awake.
func (f *function) ready(ctx context.Context, e api.Endpoint) error {
	f.endpoint.Store(&e)
	f.describe(e)
	f.reuseConnections(e)
	if f.handler != nil {
		if err := f.handler.Await(ctx); err != nil {
			return err
		}
	}
	return f.adapters.Restore(ctx, e) // last: requests are let in soon after it
}

func (f *function) describe(e api.Endpoint) {
	d, can := f.runtime.(runtime.Describer)
	if !can || f.supervisor.Status().Model != nil {
		return
	}
	f.trying.Go(func() {
		facts, err := d.Describe(f.ending, e)
		if err != nil {
			f.cfg.Logger.Debug("model not described", "error", err)
			return
		}
		f.supervisor.Reports().SetModel(facts)
	})
}

// trySecond is how long a command may take to answer on a second connection.
var trySecond = time.Second

// reuseConnections tries a command in the background; until it answers, each request has its own connection.
func (f *function) reuseConnections(e api.Endpoint) {
	rt := f.cfg.Function.Runtime
	switch {
	case f.transport.Reuses(e):
	case rt.ReuseConnections != nil:
		if *rt.ReuseConnections {
			f.transport.Reuse(e)
		}
	case f.runtime.Traits().Reuses:
		f.transport.Reuse(e)
	case rt.Kind == api.RuntimeCommand:
		f.trying.Go(func() {
			ctx, cancel := context.WithTimeout(f.ending, trySecond)
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, e.URL("/v1/models"), nil)
			if err == nil && f.transport.Concurrent(r) {
				f.transport.Reuse(e)
			}
		})
	}
}

// early reports whether ready has nothing to do.
func (f *function) early() bool { return f.handler == nil && f.adapters.Empty() }

func (f *function) signals(ctx context.Context) (runtime.Signals, error) {
	e := f.endpoint.Load()
	if e == nil {
		return runtime.Signals{}, fmt.Errorf("the runtime has not started yet: %w", errors.ErrUnsupported)
	}
	return f.runtime.Signals(ctx, *e)
}

type handled struct {
	*supervise.Gate
	handler *userHandler
}

func (g handled) Enter() (base string, refused *api.Error) {
	if _, refused = g.Gate.Enter(); refused != nil {
		return "", refused
	}
	return g.entered(g.Leave)
}

func (g handled) EnterBehind(ctx context.Context, limit time.Duration) (base string, inside context.Context, validated func() *api.Error, refused *api.Error) {
	if _, inside, validated, refused = g.Gate.EnterBehind(ctx, limit); refused == nil {
		base, refused = g.entered(g.Leave)
	}
	return base, inside, validated, refused
}

func (g handled) EnterInTurn(ctx context.Context, t control.Turn, beforeWait func() error) (base string, refused *api.Error, err error) {
	if _, refused, err = g.Gate.EnterInTurn(ctx, t, beforeWait); refused == nil && err == nil {
		base, refused = g.entered(func() { g.LeaveTurn(t, 0) })
	}
	return base, refused, err
}

// entered gives the request's slot back if the handler refuses.
func (g handled) entered(leave func()) (base string, refused *api.Error) {
	if base, refused = g.handler.Base(); refused != nil {
		leave()
	}
	return base, refused
}

// inside is the gate of the handler's own requests to the runtime. They belong to a request that holds a slot.
type inside struct {
	movingGate
	gate *supervise.Gate
}

type movingGate interface {
	proxy.Gate
	proxy.Moves
}

func (g inside) Enter() (base string, refused *api.Error) { return g.gate.Inside() }
func (inside) Leave()                                     {}

// EnterBehind is Enter: the client's request has already waited.
func (g inside) EnterBehind(ctx context.Context, _ time.Duration) (base string, inside context.Context, validated func() *api.Error, refused *api.Error) {
	base, refused = g.gate.Inside()
	return base, ctx, nil, refused
}

type prefixed struct{ log *process.Log }

func (p prefixed) Write(line []byte) (int, error) {
	p.log.Write(append([]byte("handler: "), line[:max(len(line)-1, 0)]...))
	return len(line), nil
}
