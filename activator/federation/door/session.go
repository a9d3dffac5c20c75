package door

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/rouse-dev/rouse/activator/federation/protocol"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/bell"
)

const (
	linkTimeout = time.Second
	// maxDemands bounds the demands in one message, and the refusals that wait for one.
	maxDemands = 1000
	// Only the agent that violates the protocol is shut out.
	shutFor = 10 * time.Second
	// takenFor after its last message, an agent's name is free.
	takenFor = 2 * time.Second
	// An agent that gives back so many requests in a row, over so long, has fewer slots than it reports.
	mostGivenBack = 8
	givenBackFor  = 3 * time.Second
	// rejectedEvery limits the logging of a rejection: a rejected agent comes back every second.
	rejectedEvery = time.Minute
	maxAgents     = 64
)

// session is one control stream of an agent, and its connections for requests.
type session struct {
	id, secret string
	hello      protocol.Hello
	declared   Declaration
	since      time.Time
	wake       bell.Bell
	ended      chan struct{} // closed by end
	linked     bell.Bell
	reason     string // why it ended; written before ended is closed

	once sync.Once
	pool *protocol.Pool

	// What it has reported, guarded by the Front's mutex.
	heard          time.Time
	complete       time.Time // zero: it has not reported all functions
	leaving        bool
	way            time.Duration // the round trip
	wayTold        time.Duration // as told to the activator
	doubles        uint64
	accepts        protocol.Accepts
	reported       int                       // bytes of its agent's functions
	denied         map[api.FunctionName]bool // functions that it may not serve
	links          int
	givenBack      int
	givenBackSince time.Time

	// What is to be sent, guarded by the Front's mutex.
	beat     uint64 // 0: none
	demand   map[api.FunctionName]api.Demand
	orders   []protocol.Manifest
	refused  []protocol.Refusal
	refusals map[protocol.Refusal]bool
	goAway   bool
}

func (f *state) logOf(s *session) *slog.Logger {
	return f.log.With("cluster", s.hello.Cluster, "agent", s.hello.Agent)
}

var errReplaced = status.Error(codes.Aborted, "another session of this agent has come")

func (s *session) agent() string { return s.hello.Cluster + "/" + s.hello.Agent }

func (s *session) process() string { return s.agent() + "/" + s.hello.Run }

// end ends the session. The first reason counts, and is sent to the agent.
func (s *session) end(reason string) {
	s.once.Do(func() {
		s.reason = reason
		close(s.ended)
	})
}

// Control implements [protocol.Server].
func (f *Front) Control(stream protocol.ServerStream) error {
	s, cluster, err := f.authenticate(stream)
	if err == nil {
		err = f.addSession(s) // before the Welcome, after which its links come
	}
	if err != nil {
		f.rejectStream(stream.Context(), cluster, err)
		return err
	}
	conn := connection(stream).conn
	conn.Begin()
	defer conn.End()
	defer func() { f.endSession(s, err) }()
	if err = stream.Send(&protocol.Down{Welcome: &protocol.Welcome{Front: f.cfg.Name, Owner: f.cfg.Owner, Session: s.id, Secret: s.secret, Fronts: f.cfg.Fronts}}); err != nil {
		return err
	}
	f.logOf(s).Info("a cluster has come", "version", s.hello.Version)
	f.deps.Tell(strings.TrimSpace("cluster " + s.hello.Cluster + " has joined (agent " + s.hello.Agent + ", rouse " + s.hello.Version + ")"))
	read := make(chan error, 1)
	go func() {
		err := f.readMessages(s, stream)
		switch status.Code(err) {
		case codes.InvalidArgument, codes.ResourceExhausted, codes.Internal: // the last: invalid JSON
			f.mu.Lock()
			f.shutOut(s, status.Convert(err).Message())
			f.mu.Unlock()
		default: // it ended, or the network failed
		}
		read <- err
	}()
	err = f.writeMessages(s, stream, read)
	return err
}

func (f *Front) authenticate(stream protocol.ServerStream) (s *session, cluster string, err error) {
	up, err := stream.Recv() // ends with its connection if no other session uses that
	if err != nil || up.Hello == nil {
		return nil, "", status.Error(codes.InvalidArgument, "the first message has no Hello")
	}
	cluster = up.Hello.Cluster
	if err := up.Hello.Validate(); err != nil {
		return nil, cluster, status.Error(codes.FailedPrecondition, err.Error())
	}
	var token string
	if md, ok := metadata.FromIncomingContext(stream.Context()); ok {
		if v := md.Get("authorization"); len(v) == 1 {
			token, _ = strings.CutPrefix(v[0], "Bearer ")
		}
	}
	f.mu.Lock()
	c := f.clusters[cluster]
	f.mu.Unlock()
	if c == nil || !c.proves(token, connection(stream).certificate()) { // one answer for both, which does not reveal the declared clusters
		return nil, cluster, status.Errorf(codes.Unauthenticated, "cluster %s is not declared at this front door, or its token or certificate is another one: "+
			"compare the cluster's name and token (--cluster, --cluster-token-file) with the front door's clusters.yaml", cluster)
	}
	return &session{pool: protocol.NewPool(f.unlink), id: rand.Text(), secret: rand.Text(), hello: *up.Hello, declared: c.Declaration, since: time.Now(), heard: time.Now(),
		wake: bell.New(), ended: make(chan struct{}), linked: bell.New(), demand: map[api.FunctionName]api.Demand{}, denied: map[api.FunctionName]bool{}}, cluster, nil
}

func (f *Front) addSession(s *session) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if out, ok := f.shut[s.process()]; ok && time.Now().Before(out.until) {
		return status.Errorf(codes.PermissionDenied, "agent %s is shut out for %s: %s", s.agent(), shutFor, out.reason)
	}
	if old := f.sessions[s.agent()]; old != nil {
		if old.hello.Run != s.hello.Run && time.Since(old.heard) < takenFor {
			return status.Errorf(codes.AlreadyExists, "the name of agent %s is taken by another process: give each agent of a cluster a name of its own", s.agent())
		}
		old.end("another session of this agent has come")
		s.reported = old.reported // its offers stay until this one has reported all
	} else if n := len(f.sessionsOf(s.hello.Cluster)); n >= maxAgents {
		return status.Errorf(codes.ResourceExhausted, "%d agents of the cluster %s are here, as many as may be: end one of them, or declare another cluster for it", n, s.hello.Cluster)
	}
	f.sessions[s.agent()], s.goAway = s, f.ending
	if c := f.clusters[s.hello.Cluster]; c != nil {
		c.rejected = rejection{}
	}
	f.metrics.agents.WithLabelValues(s.hello.Cluster).Inc()
	return nil
}

func (f *Front) endSession(s *session, err error) {
	f.mu.Lock()
	replaced, leaving := f.sessions[s.agent()] != s, s.leaving
	dead := !replaced && time.Since(s.heard) >= protocol.DeadAfter
	f.mu.Unlock()
	if s.pool.Retire(); dead {
		f.closeLinks(s)
	}
	after := time.Since(s.since).Round(time.Millisecond)
	switch {
	case replaced:
		f.logOf(s).Info("agent reconnected", "after", after)
	case err == nil || leaving:
		f.logOf(s).Info("a cluster has gone", "after", after)
		f.deps.Tell("cluster " + s.hello.Cluster + " has gone (agent " + s.hello.Agent + ")")
	default:
		why := status.Convert(err).Message()
		if status.Code(err) == codes.Canceled {
			why = "its connection was closed without a word"
		}
		f.logOf(s).Warn("a cluster is lost", "after", after, "error", why)
	}
	f.change(func() {
		f.metrics.agents.WithLabelValues(s.hello.Cluster).Dec()
		if f.sessions[s.agent()] != s {
			return
		}
		delete(f.sessions, s.agent())
		if c := f.clusters[s.hello.Cluster]; c != nil {
			c.last, c.lostAt = s, time.Now()
		}
		for _, fn := range f.functions {
			if fn.offers[s.agent()] != nil {
				f.withdraw(fn, s.agent(), s.hello.Cluster)
			} else if fn.placed != nil {
				f.markStale(fn) // it may have been on its way there
			}
		}
		f.renamed = true
	})
	s.end("it has ended")
}

// readMessages waits for a link, which the agent dials before its first report: without one, requests would find no
// connection.
func (f *Front) readMessages(s *session, stream protocol.ServerStream) error {
	late := time.NewTimer(linkTimeout)
	defer late.Stop()
	select {
	case <-s.linked:
	case <-late.C:
	case <-stream.Context().Done():
	}
	for {
		up, err := stream.Recv()
		if err != nil {
			return err
		}
		if up.Hello != nil {
			return status.Error(codes.InvalidArgument, "a second Hello")
		}
		if err := up.Validate(); err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
		if err := f.applyUpdate(s, up); err != nil {
			return err
		}
	}
}

func (f *Front) writeMessages(s *session, stream protocol.ServerStream, read <-chan error) error {
	silent := time.NewTimer(protocol.DeadAfter)
	defer silent.Stop()
	for {
		select {
		case err := <-read:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case <-s.ended:
			return status.Error(codes.Aborted, s.reason)
		case <-silent.C:
			f.mu.Lock()
			left := protocol.DeadAfter - time.Since(s.heard)
			f.mu.Unlock()
			if left <= 0 {
				return status.Errorf(codes.DeadlineExceeded, "nothing was heard for %s", protocol.DeadAfter)
			}
			silent.Reset(left)
		case <-s.wake:
			for d := f.nextMessage(s); d != nil; d = f.nextMessage(s) {
				if err := stream.Send(d); err != nil {
					return err
				}
			}
		}
	}
}

func (f *Front) nextMessage(s *session) *protocol.Down {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.beat == 0 && len(s.refused)+len(s.demand)+len(s.orders) == 0 && !s.goAway {
		return nil
	}
	d := &protocol.Down{Beat: s.beat, Refused: s.refused, GoAway: s.goAway}
	s.beat, s.refused, s.goAway = 0, nil, false
	for name, demand := range s.demand {
		if len(d.Demand) == maxDemands {
			break
		}
		d.Demand = append(d.Demand, demand)
		delete(s.demand, name)
	}
	if len(s.orders) > 0 {
		d.Apply, s.orders = &s.orders[0], s.orders[1:]
	}
	return d
}

type shut struct {
	until  time.Time
	reason string
}

type rejection struct {
	at     time.Time
	reason string
	logged time.Time
}

func (f *state) reject(cluster, reason string) (news bool) {
	c := f.clusters[cluster]
	if c == nil {
		return false
	}
	now := time.Now()
	if news = c.rejected.reason != reason || now.Sub(c.rejected.logged) >= rejectedEvery; news {
		c.rejected.logged = now
	}
	c.rejected.at, c.rejected.reason = now, reason
	return news
}

func (f *Front) rejectStream(ctx context.Context, cluster string, err error) {
	f.metrics.refused.Inc()
	from := ""
	if p, ok := peer.FromContext(ctx); ok {
		from = p.Addr.String()
	}
	reason := status.Convert(err).Message()
	f.mu.Lock()
	declared := f.clusters[cluster] != nil
	if declared && status.Code(err) == codes.Unauthenticated {
		reason = "its token or certificate is not the declared one: declare the hash of its token (tokenHashes; rouse clusters token prints it), or give it the declared one"
	}
	level := slog.LevelDebug
	if f.reject(cluster, reason) {
		level = slog.LevelWarn
	} else if !declared {
		level = f.strangerLevel()
	}
	f.mu.Unlock()
	f.log.Log(ctx, level, "an agent is refused", "cluster", cluster, "from", from, "reason", reason)
}

// strangerLevel rate-limits warnings about strangers: anybody may dial.
func (f *state) strangerLevel() slog.Level {
	now := time.Now()
	if now.Sub(f.strangers) <= strangersEvery {
		return slog.LevelDebug
	}
	f.strangers = now
	return slog.LevelWarn
}

func (f *state) shutOut(s *session, reason string) {
	now := time.Now()
	for who, out := range f.shut {
		if now.After(out.until) {
			delete(f.shut, who)
		}
	}
	f.shut[s.process()] = shut{until: now.Add(shutFor), reason: reason}
	f.metrics.refused.Inc()
	f.reject(s.hello.Cluster, "agent "+s.hello.Agent+" is shut out for "+shutFor.String()+": "+reason)
	f.logOf(s).Warn("an agent is shut out", "for", shutFor.String(), "reason", reason)
	s.end("agent " + s.agent() + " is shut out for " + shutFor.String() + ": " + reason)
}

func (f *Front) countGivenBack(s *session, resp *http.Response) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.declared.Front || resp.Header.Get(control.HeaderRefused) == "" {
		s.givenBack = 0
		return
	}
	if s.givenBack++; s.givenBack == 1 {
		s.givenBackSince = time.Now()
	}
	if s.givenBack >= mostGivenBack && time.Since(s.givenBackSince) > givenBackFor && f.sessions[s.agent()] == s {
		s.givenBack = 0
		f.shutOut(s, "it grants places, and gives back every request")
	}
}
