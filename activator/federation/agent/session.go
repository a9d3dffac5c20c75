package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/rouse-dev/rouse/activator/federation/protocol"
	"github.com/rouse-dev/rouse/activator/route"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/bell"
)

// The Agent's mutex guards the fields of front that change.
type front struct {
	a     *Agent
	at    string
	found bool // by [Config.Find]
	stop  context.CancelFunc

	session *session // the newest that has not ended
	lease   time.Time
	expiry  *time.Timer
	demand  map[api.FunctionName]api.Demand
	served  map[api.FunctionName]int    // running here
	last    map[api.FunctionName]uint64 // the number of its last attempt
}

type session struct {
	f       *front
	stream  protocol.ClientStream
	welcome protocol.Welcome
	source  uint64 // of the front door's operator, proved by its certificate
	server  *protocol.LinkServer
	end     context.CancelFunc
	wake    bell.Bell
	done    chan struct{} // closed when the control stream has ended
	silent  chan struct{} // closed after a second of silence
	mute    sync.Once
	orders  chan protocol.Manifest

	dirty map[api.FunctionName]bool // guarded by marking

	// Guarded by the Agent's mutex.
	reported map[api.FunctionName]protocol.Function
	all      bool                 // report what was not reported
	sent     map[uint64]time.Time // by beat
	beat     uint64
	heard    time.Time
	way      time.Duration
	goAway   bool
	traces   map[api.FunctionName]string // of wakes whose records are to be sent
	applied  []protocol.Applied
}

func (s *session) called() string { return s.welcome.Front + " at " + s.f.at }

const (
	pauseFirst = 50 * time.Millisecond
	pauseMost  = time.Second
)

// keepSession keeps a session with the front door until ctx ends, and a second one in parallel if the first is silent.
func (f *front) keepSession(ctx context.Context) {
	pause, logged := pauseFirst, ""
	for ctx.Err() == nil && !f.a.ending() {
		s, err := f.open(ctx)
		if errors.Is(err, errSelf) {
			f.stop()
			return
		}
		if err != nil {
			if reason := status.Convert(err).Message(); reason != logged && ctx.Err() == nil {
				f.a.log.Warn("a front door is not reached; it is tried again", "front", f.at, "error", reason)
				logged = reason
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
			pause = min(2*pause, pauseMost)
			continue
		}
		pause, logged = pauseFirst, ""
		f.a.log.Info("serving a front door", "front", f.at, "name", s.welcome.Front)
		f.a.deps.Tell("serves the front door " + s.called() + " as the cluster " + f.a.cfg.Cluster)
		f.a.running.Go(func() { s.run(ctx) })
		select {
		case <-s.done:
		case <-s.silent:
		case <-ctx.Done():
		}
	}
}

var errSelf = errors.New("the front door is this process itself")

func (f *front) open(ctx context.Context) (_ *session, err error) {
	a := f.a
	var failed atomic.Pointer[error]  // gRPC rewrites the error
	var proved atomic.Pointer[string] // the certificate's identity on the last connection
	defer func() {
		if why := failed.Load(); err != nil && why != nil && status.Code(err) == codes.Unavailable {
			err = *why
		}
	}()
	conn, err := grpc.NewClient("passthrough:///"+f.at, grpc.WithTransportCredentials(insecure.NewCredentials()), // TLS is below
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			wire, err := f.secure(ctx, "h2")
			if err != nil {
				failed.Store(&err)
				return nil, err
			}
			of := identity(wire.(*tls.Conn).ConnectionState().PeerCertificates[0])
			proved.Store(&of)
			return wire, nil
		}),
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry())
	if err != nil {
		return nil, fmt.Errorf("the front door's address: %w", err)
	}
	streaming, cancel := context.WithCancel(ctx)
	defer func() {
		if err != nil {
			cancel()
			_ = conn.Close()
		}
	}()
	if a.cfg.Token != nil {
		token, err := a.cfg.Token()
		if err != nil {
			return nil, fmt.Errorf("read the token: %w", err)
		}
		streaming = metadata.AppendToOutgoingContext(streaming, "authorization", "Bearer "+token)
	}
	late := time.AfterFunc(2*dialTimeout, cancel)
	defer late.Stop()
	stream, err := protocol.Open(streaming, conn)
	if err != nil {
		return nil, err
	}
	welcome, err := a.sayHello(stream)
	if err != nil {
		return nil, err
	}
	welcome.Owner += "@" + *proved.Load() // its own claim alone could be another front door's
	s := &session{f: f, stream: stream, welcome: *welcome, source: route.Hash(*proved.Load()), wake: bell.New(), done: make(chan struct{}), silent: make(chan struct{}),
		dirty: map[api.FunctionName]bool{}, reported: map[api.FunctionName]protocol.Function{}, all: true, sent: map[uint64]time.Time{}, traces: map[api.FunctionName]string{}, heard: time.Now(),
		orders: make(chan protocol.Manifest, maxOrders), end: cancel}
	s.server = protocol.NewLinkServer(protocol.LinkHello{Agent: a.cfg.Cluster + "/" + a.cfg.Agent, Session: s.welcome.Session, Secret: s.welcome.Secret},
		func(ctx context.Context) (net.Conn, error) {
			conn, err := f.secure(ctx, protocol.LinkProtocol)
			if err != nil {
				a.log.Debug("a connection for requests can't be dialled", "front", f.at, "error", err)
			}
			return conn, err
		}, cancel, s)
	first, err := s.server.Dial(ctx)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(streaming, func() { _ = conn.Close() })
	a.mu.Lock()
	a.servers[s.server] = true
	a.mu.Unlock()
	a.running.Go(func() { s.server.Serve(ctx, first) })
	a.addSession(s)
	return s, nil
}

// identity is kept when a certificate is renewed.
func identity(c *x509.Certificate) string {
	names := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	slices.Sort(names)
	sum := sha256.Sum256([]byte(strings.Join(names, " ")))
	return hex.EncodeToString(sum[:8])
}

func (a *Agent) sayHello(stream protocol.ClientStream) (*protocol.Welcome, error) {
	if err := stream.Send(&protocol.Up{Hello: &protocol.Hello{Protocol: protocol.Protocol, Cluster: a.cfg.Cluster, Agent: a.cfg.Agent, Version: a.cfg.Version, Run: a.run}}); err != nil {
		if _, why := stream.Recv(); why != nil {
			err = why
		}
		return nil, fmt.Errorf("say hello: %w", err)
	}
	down, err := stream.Recv()
	switch {
	case err != nil:
		return nil, err
	case down.Welcome == nil:
		return nil, errors.New("the front door does not welcome: is it one of another version?")
	case down.Welcome.Front == a.cfg.Self:
		return nil, errSelf
	}
	down.Welcome.Owner = cmp.Or(down.Welcome.Owner, down.Welcome.Front)
	return down.Welcome, nil
}

func (a *Agent) addSession(s *session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.f.session != nil {
		s.f.session.server.Retire() // the front door no longer uses its connections
	}
	s.f.session = s
	s.f.renewLease(time.Now().Add(protocol.Lease))
	clear(s.f.demand) // a new session gets all demand again
	for _, at := range s.welcome.Fronts {
		if a.cfg.Find == nil && a.fronts[at] == nil {
			select {
			case a.found <- at:
			default: // enough are known
			}
		}
	}
	a.marking.Lock()
	a.live[s] = true
	a.marking.Unlock()
	s.wake.Ring()
}

func (s *session) run(ctx context.Context) {
	a := s.f.a
	ended := make(chan error, 1)
	go func() { ended <- s.readMessages() }()
	a.running.Go(func() { s.executeOrders(ctx) })
	beat := time.NewTicker(protocol.BeatEvery)
	defer beat.Stop()
	var err error
	dead := false
	for err == nil {
		select {
		case <-beat.C:
			err = s.report(true)
			a.mu.Lock()
			quiet := time.Since(s.heard)
			dead = quiet > protocol.DeadAfter && (s.f.session == s || s.f.session == nil) // otherwise another session hears from it
			a.mu.Unlock()
			if quiet > protocol.SilentAfter {
				s.mute.Do(func() { close(s.silent) })
			}
			if quiet > protocol.DeadAfter {
				err = fmt.Errorf("nothing was heard for %s", protocol.DeadAfter)
			}
		case <-s.wake:
			err = s.report(false)
		case err = <-ended:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	_ = s.stream.CloseSend()
	close(s.done)
	a.marking.Lock()
	delete(a.live, s)
	a.marking.Unlock()
	line := ""
	a.mu.Lock()
	if s.f.session == s {
		s.f.session = nil
		switch {
		case ctx.Err() != nil || a.leaving:
		case s.goAway:
			a.log.Info("a front door has ended", "front", s.f.at)
			line = "the front door " + s.called() + " has ended; it is dialled until it is back"
		default:
			a.log.Warn("a front door is lost, and dialled again", "front", s.f.at, "error", status.Convert(err).Message())
		}
	}
	a.mu.Unlock()
	if line != "" {
		a.deps.Tell(line)
	}
	if dead || s.server.Shutdown(ctx) != nil {
		_ = s.server.Close()
	}
	s.end()
	a.mu.Lock()
	delete(a.servers, s.server)
	a.mu.Unlock()
}

func (s *session) readMessages() error {
	for {
		down, err := s.stream.Recv()
		if err != nil {
			return err
		}
		if err := down.Validate(); err != nil {
			return err
		}
		ending := s.applyMessage(down)
		if ending {
			s.f.a.deps.Tell("the front door " + s.called() + " is ending: what runs for it goes on to its end")
		}
		for _, d := range down.Demand {
			s.f.a.deps.Emitter.Emit(api.NewEvent(api.EventDemand, "/"+d.Activator, d.Function, d))
		}
	}
}

// applyMessage leaves in the message the demand that counts, by this machine's clock.
func (s *session) applyMessage(down *protocol.Down) (ending bool) {
	a, now := s.f.a, time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	s.heard = now
	if sent, ok := s.sent[down.Beat]; ok && down.Beat > 0 {
		delete(s.sent, down.Beat)
		if s.way == 0 {
			s.way = now.Sub(sent)
		}
		s.way = (7*s.way + now.Sub(sent)) / 8
		s.f.renewLease(sent.Add(protocol.Lease))
	}
	if ending = down.GoAway && !s.goAway; ending {
		s.goAway = true
		a.log.Info("a front door is ending: what runs for it goes on to its end", "front", s.f.at)
	}
	for _, r := range down.Refused {
		a.log.Warn("the front door does not take a function", "front", s.f.at, "function", r.Function, "reason", r.Reason)
	}
	if s.f.session != s {
		down.Demand = nil
		return ending
	}
	if down.Apply != nil {
		s.order(*down.Apply)
	}
	for i, d := range down.Demand {
		d = here(d, now)
		down.Demand[i], s.f.demand[d.Function] = d, d
		if t, ok := api.ParseTrace(d.Trace); ok && a.deps.Wakes != nil {
			s.traces[d.Function] = t.ID
		}
		a.Changed(d.Function)
	}
	return ending
}

func here(d api.Demand, now time.Time) api.Demand {
	if !d.LastRequest.IsZero() {
		d.LastRequest = now.Add(-max(d.At.Sub(d.LastRequest), 0))
	}
	d.At = now
	return d
}

// Serving reports whether any front door has a session with this agent.
func (a *Agent) Serving() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.fronts {
		if f.session != nil {
			return true
		}
	}
	return false
}
