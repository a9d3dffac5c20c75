// Package local runs all of Rouse on one machine in one process: the activator, the autoscaler and the instances, whose runtimes are
// processes.
//
// The life of a server:
//
//  1. [Run] listens, so that a port in use is reported first.
//  2. It creates its folder of sockets, finds the devices, and declares the functions, which are at zero.
//  3. The activator's demand reaches the autoscaler through the bus; the agent carries out its decisions.
//  4. Each report of an instance goes to both.
//  5. When its context ends, the server lets requests finish within a bound, and stops every instance. If it is killed, each runtime's
//     parent ends the runtime, see package functions/shim.
//
// Browsers run programs of every site on this machine. The front door refuses their requests unless they come from a page of this machine
// or one that [Config.Origins] names. On loopback it also refuses unknown hosts.
package local

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/activator"
	federation "github.com/rouse-dev/rouse/activator/federation/agent"
	"github.com/rouse-dev/rouse/activator/federation/door"
	"github.com/rouse-dev/rouse/activator/jobs"
	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/activator/keys"
	"github.com/rouse-dev/rouse/activator/share"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
	adminapi "github.com/rouse-dev/rouse/autoscaler/server"
	"github.com/rouse-dev/rouse/cmd/internal/page"
	"github.com/rouse-dev/rouse/functions/cli"
	"github.com/rouse-dev/rouse/functions/fetch"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/internal/bell"
	"github.com/rouse-dev/rouse/internal/cloudevent"
	"github.com/rouse-dev/rouse/internal/inbound"
	"github.com/rouse-dev/rouse/internal/peertls"
)

const (
	headerTimeout  = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	keysInterval   = 500 * time.Millisecond // between checks of the file of keys
	maxHeaderBytes = 64 << 10
)

type server struct {
	machine
	cfg        Config
	info       Info
	tls        *peertls.Files // nil: no TLS
	dir        *runDir
	bus        *cloudevent.Log
	agent      *agent
	activator  farActivator
	autoscaler *autoscaler.Autoscaler
	admin      *adminapi.Admin
	sink       *cloudevent.Sender // may be nil

	declaring sync.Mutex // held while a function is declared or removed; guards functions, silent and clock
	functions map[api.FunctionName]api.Function
	silent    map[api.FunctionName]bool // attached servers whose adapters are not known yet
	silence   bell.Bell                 // rung when there is one
	clock     ages
	learned   *learned
	accounts  accounts

	far    *door.Front         // nil: no front door of clusters
	others *share.Share        // of clients' use; may be nil
	agents net.Listener        // accepts their agents
	joined []*federation.Agent // by which it serves other front doors
	// applying is held while a declaration is read and changed; taken before declaring.
	applying sync.Mutex
	owning   sync.Mutex // guards all below; nothing else is taken while it is held
	own      map[api.FunctionName]api.Function
	applied  map[api.FunctionName]*applied // created by front doors

	keys    *keys.Store  // nil: clients need none
	store   *store.Store // may be nil
	batches *jobs.Server

	pageToken string // opens the administrative API to the page
	requests  requestLog
	ending    context.Context // done when the server begins to end
	end       context.CancelFunc

	lists func(*http.Request) bool // nil: all may
}

// Run serves until ctx ends and everything is stopped, and then returns nil. Several servers may run in one process.
func Run(ctx context.Context, cfg Config) error {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	if err := cfg.Validate(); err != nil {
		return err
	}
	front, err := net.Listen("tcp", cfg.Listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w: stop what listens there, or choose another address with --listen", err)
	} else if err != nil {
		return fmt.Errorf("%w: choose another address with --listen", err)
	}
	defer front.Close()
	s := &server{cfg: cfg, pageToken: rand.Text(), bus: cloudevent.NewLog(), functions: map[api.FunctionName]api.Function{}, silent: map[api.FunctionName]bool{}, own: map[api.FunctionName]api.Function{}, applied: map[api.FunctionName]*applied{}, silence: bell.New()}
	s.ending, s.end = context.WithCancel(context.Background())
	defer s.end()
	at := front.Addr().(*net.TCPAddr)
	port := at.Port
	if s.tls, err = cfg.files(at); err != nil {
		return err
	}
	s.accounts.read(cfg.StateDir, port, cfg.Logger)
	if cfg.Keys != "" {
		s.keys = keys.NewStore(nil)
		s.keys.Restore(s.accounts.Budgets)
	}
	if !at.IP.IsLoopback() || s.keys != nil {
		s.lists = s.mayList
	}
	if cfg.Store.At != "" {
		if s.store, err = store.Open(cfg.Store, cfg.Logger); err != nil {
			return fmt.Errorf("--store: %w", err)
		}
		defer func() {
			if err := s.store.Close(); err != nil {
				cfg.Logger.Error("close the store", "error", err)
			}
		}()
	}
	if s.dir, err = openRunDir(cfg.BaseDir, port); err != nil {
		return err
	}
	defer s.dir.close()
	scheme := "http://"
	if s.tls != nil {
		scheme = "https://"
	}
	s.info = Info{Version: cfg.Version, URL: scheme + front.Addr().String(), Admin: AdminSocket(cfg.BaseDir, port), Models: fetch.Environment(os.Getenv).Dir, PID: os.Getpid(), Started: time.Now(), Keys: s.keys != nil}
	host := s.info.URL
	if at.IP.IsUnspecified() { // browsers do not open it
		host = fmt.Sprintf("%s127.0.0.1:%d", scheme, port)
	}
	s.info.Page = page.Address(host, s.pageToken)
	admin, err := net.Listen(s.info.Admin.Network())
	if err != nil {
		return fmt.Errorf("listen for administrative requests: %w", err)
	}
	defer admin.Close()
	if err := process.Adopt(); err != nil {
		return err
	}
	if err := s.build(ctx); err != nil {
		return err
	}
	return s.serve(ctx, front, admin)
}

// build connects the parts, and starts nothing.
func (s *server) build(ctx context.Context) error {
	cfg := s.cfg
	devices, err := inventory.Discover(ctx, inventory.Config{Memory: cfg.Memory, NoGPU: cfg.NoGPU, NvidiaSMI: cfg.NvidiaSMI})
	if err != nil {
		if len(devices) == 0 {
			return err
		}
		cfg.Logger.Warn("going on without GPUs", "error", err)
	}
	if total, err := inventory.HostTotal(); err == nil && cfg.Memory > total {
		cfg.Logger.Warn("models may use more memory than this machine has", "memory", cfg.Memory.String(), "machine", total.String())
	}
	s.machine = machine{host: devices[0], gpus: devices[1:]}
	registry := prometheus.NewRegistry()
	base, err := cli.Config(os.Environ())
	if err != nil {
		return err
	}
	s.agent = newAgent(cfg, base, s.dir.path, s.bus)
	if s.tls != nil {
		registry.MustRegister(CertificateEnd(s.tls))
	}
	emitter, transport, err := s.farFunctions(registry)
	if err != nil {
		return err
	}
	if s.keys != nil { // the others have to know of every account
		if err := s.keys.LoadFile(cfg.Keys); err != nil {
			return fmt.Errorf("--keys: %w (rouse keys create NAME --file %s makes one)", err, cfg.Keys)
		}
	}
	deps := activator.Deps{Peers: &cfg.Peers, Keys: s.keys, Access: s.requests.beside(cfg.Access), Page: page.Index(), Lists: s.lists, Waits: s.waits, LastError: s.lastError, Emitter: emitter, Waker: waker{s.agent}, Transport: transport, Dial: s.agent.dial, Logger: cfg.Logger, Registry: registry,
		Traces: cfg.Traces}
	if s.far != nil { // a nil *Front would be a non-nil Sight
		deps.Sight = s.far
	}
	if s.others != nil {
		deps.Others = s.others
	}
	s.activator.Activator, err = activator.New(activator.Config{Name: "local", Bodies: inbound.Within(int64(cfg.MemoryLimit)), Stored: s.howStored(), Version: cfg.Version}, deps)
	if err != nil {
		return err
	}
	if s.others != nil {
		s.others.Tell(s.keys, s.activator)
	}
	s.agent.activator, s.agent.far = s.activator.Activator, s.far
	if err := s.newBatches(registry); err != nil {
		return err
	}
	s.learned = newLearned(cfg.StateDir, cfg.Logger)
	s.autoscaler, err = autoscaler.New(autoscaler.Config{Devices: devices, Memory: s.learned, Usage: s.accounts.Usage, Hold: s.activator.Hold, Record: cfg.record(),
		Traces: cfg.Traces}, s.agent, s.bus, cfg.Logger, registry)
	if err != nil {
		return err
	}
	s.admin = s.newAdmin()
	s.bus.Receive(s.route)
	if err := s.newAgents(); err != nil {
		return err
	}
	return s.newSink()
}

func (s *server) route(e api.Event) {
	switch e.Type {
	case api.EventInstanceState:
		var status api.InstanceStatus
		if err := json.Unmarshal(e.Data, &status); err != nil {
			s.cfg.Logger.Warn("an instance's report can't be read", "error", err)
			return
		}
		s.activator.ObserveInstance(status)
		if s.far != nil {
			s.far.ObserveNear(status)
		}
		s.autoscaler.ObserveInstance(status)
		if status.State != api.Starting {
			s.agent.prewarmedTaken.Ring()
		}
	case api.EventDemand, api.EventWoken, api.EventUsage:
		if err := s.autoscaler.Receive(e); err != nil {
			s.cfg.Logger.Warn("an activator's event can't be read", "type", e.Type, "error", err)
		}
	}
}

func (s *server) serve(ctx context.Context, front, admin net.Listener) error {
	parts, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	failed := make(chan error, 1) // for the first part that fails; others' errors are dropped
	run := func(name string, f func(context.Context) error) {
		running.Go(func() {
			if err := f(parts); err != nil && parts.Err() == nil {
				select {
				case failed <- fmt.Errorf("%s: %w", name, err):
				default:
				}
			}
		})
	}
	run("activator", s.activator.Run)
	run("autoscaler", s.autoscaler.Run)
	run("prewarmed", s.agent.keepPrewarmed)
	run("gpus", s.watchGPUs)
	run("attached servers", s.followAttached)
	run("traces", s.cfg.Traces.Run)
	run("learned", func(ctx context.Context) error {
		return every(ctx, learnedEvery, func() {
			s.collectLearned()
			s.learned.write()
		})
	})
	run("accounts", func(ctx context.Context) error { return every(ctx, accountsEvery, s.writeAccounts) })
	if s.tls != nil { // it warns of the certificate's end
		run("certificate", func(ctx context.Context) error { return every(ctx, time.Hour, func() { _, _ = s.tls.Get(nil) }) })
	}
	if s.sink != nil {
		run("event sink", s.sink.Run)
	}
	for _, a := range s.joined {
		run("agent", func(ctx context.Context) error { return a.Run(ctx, s.cfg.DrainTimeout) })
	}
	if s.keys != nil {
		run("keys", func(ctx context.Context) error { return s.keys.Follow(ctx, s.cfg.Keys, keysInterval, s.cfg.Logger) })
	}
	if s.others != nil {
		run("front doors", s.others.Run)
	}
	if s.far != nil {
		run("clusters", func(ctx context.Context) error { return s.far.Serve(ctx, s.agents, door.TLS(s.cfg.Clusters.TLS)) })
		if file := s.cfg.Clusters.File; file != "" {
			run("clusters' file", func(ctx context.Context) error {
				door.Follow(ctx, file, keysInterval, s.far.Declare, s.cfg.Logger)
				return nil
			})
		}
	}
	if s.cfg.Observe != nil {
		run("observer", func(ctx context.Context) error {
			return s.bus.Follow(ctx, cloudevent.Kept, true, func(e api.Event) error { s.cfg.Observe(e); return nil })
		})
	}
	err := s.declareAll(ctx)
	if err == nil && s.batches != nil { // those of the last server call functions
		run("batches", s.runBatches)
	}
	if err == nil {
		err = s.takeRequests(ctx, front, admin, failed)
	}
	stop(errors.New("the server ends"))
	running.Wait()
	s.writeAccounts()
	s.agent.killAll()
	return err
}

// takeRequests drains when ctx ends or a part fails.
func (s *server) takeRequests(ctx context.Context, front, admin net.Listener, failed chan error) error {
	public := inbound.NewServer(&http.Server{Handler: newOrigins(s.cfg, front.Addr()).guard(s.frontDoor()), Protocols: inbound.Protocols(), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes, ErrorLog: quietLog(s.cfg.Logger)})
	private := &http.Server{Handler: s.adminHandler(), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes, ErrorLog: quietLog(s.cfg.Logger)}
	ended := make(chan error, 2) // the two servers send to it, once each
	front = inbound.Bound(public.Server, front, s.cfg.Logger)
	if s.tls != nil {
		front = tls.NewListener(helloListener{front}, &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, GetCertificate: s.tls.Get})
	}
	front = inbound.Guard(public.Server, front, activator.WriteError)
	go func() { ended <- public.Serve(front) }()
	go func() { ended <- private.Serve(admin) }()
	if s.cfg.Ready != nil {
		s.cfg.Ready(s.describe())
	}
	followed := s.follow(ctx, failed)
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	case err = <-ended:
		ended <- http.ErrServerClosed // so that both are received below
	}
	followed()
	s.drain(public)
	_ = private.Close()
	for range 2 {
		if e := <-ended; err == nil && !errors.Is(e, http.ErrServerClosed) {
			err = e
		}
	}
	return err
}

func (s *server) follow(ctx context.Context, failed chan<- error) (end func()) {
	if s.cfg.Follow == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.cfg.Follow(ctx, s); err != nil && ctx.Err() == nil {
			select {
			case failed <- err:
			default:
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// drain stops every instance, within the drain timeout and its grace.
func (s *server) drain(public *inbound.Server) {
	s.end()
	s.cfg.Logger.Info("stopping: requests may finish", "within", s.cfg.DrainTimeout.String())
	if s.far != nil {
		s.far.GoAway()
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.DrainTimeout)
	defer cancel()
	if err := s.activator.Drain(ctx); err != nil {
		s.cfg.Logger.Warn("some requests did not finish in time", "error", err)
	}
	closing, cancelClosing := context.WithTimeout(context.Background(), time.Second)
	defer cancelClosing()
	if public.Shutdown(closing) != nil {
		_ = public.Close()
	}
	s.collectLearned()
	s.learned.write()
	stopping, cancelStopping := context.WithTimeout(context.Background(), 2*stopGrace)
	defer cancelStopping()
	if err := s.autoscaler.StopAll(stopping); err != nil {
		s.cfg.Logger.Warn("some instances did not stop in time and are killed", "error", err)
	}
}
