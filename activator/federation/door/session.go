package door

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/rouse-dev/rouse/activator/federation/protocol"
	"github.com/rouse-dev/rouse/api"
)

// session is one control stream of an agent, and its connections for requests.
type session struct {
	id, secret string
	hello      protocol.Hello
	declared   Declaration
	since      time.Time
	wake       chan struct{} // signals that there is something to send; one place
	ended      chan struct{} // closed by end
	linked     chan struct{} // it has a link; one place
	reason     string        // why it ended; written before ended is closed

	once sync.Once
	pool *protocol.Pool

	// Guarded by the Front's mutex.
	heard    time.Time
	beat     uint64                          // to be answered; 0: none
	demand   map[api.FunctionName]api.Demand // to be sent
	refused  []protocol.Refusal              // to be sent
	denied   map[api.FunctionName]bool       // its offers that it may not serve
	refusals map[protocol.Refusal]bool       // of offers and names, as told to it
	links    int                             // connections
	leaving  bool
	goAway   bool
	complete bool
	way      time.Duration
	wayTold  time.Duration // as told to the activator
	doubles  uint64
	offers   int // of functions that no agent of its cluster offered before
	// givenBack counts the requests that it gave back in a row, since when.
	givenBack      int
	givenBackSince time.Time
	accepts        protocol.Accepts
	remove         []protocol.Removal  // to be sent
	apply          []protocol.Manifest // to be sent
}

// agent returns the session's agent: cluster/agent.
func (s *session) agent() string { return s.hello.Cluster + "/" + s.hello.Agent }

// end ends the session. The first reason counts, and is sent to the agent.
func (s *session) end(reason string) {
	s.once.Do(func() {
		s.reason = reason
		close(s.ended)
	})
}

// nudge wakes the writer.
func (s *session) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Control implements [protocol.Server]: it runs one session, from its Hello to its end.
func (f *Front) Control(stream protocol.ServerStream) error {
	s, cluster, err := f.greet(stream)
	if err == nil {
		err = f.begin(s) // before the Welcome, after which its links come
	}
	if err != nil {
		f.sentAway(stream.Context(), cluster, err)
		return err
	}
	conn := connection(stream).conn
	conn.Begin()
	defer conn.End()
	defer func() { f.lose(s, err) }()
	if err = stream.Send(&protocol.Down{Welcome: &protocol.Welcome{Front: f.cfg.Name, Owner: f.cfg.Owner, Session: s.id, Secret: s.secret, Fronts: f.cfg.Fronts}}); err != nil {
		return err
	}
	f.log.Info("a cluster has come", "cluster", s.hello.Cluster, "agent", s.hello.Agent, "version", s.hello.Version)
	f.deps.Tell(strings.TrimSpace("cluster " + s.hello.Cluster + " has joined (agent " + s.hello.Agent + ", rouse " + s.hello.Version + ")"))
	read := make(chan error, 1) // why the reader ended
	go func() {
		s.awaitLink(stream.Context())
		err := f.listen(s, stream)
		f.broke(s, err)
		read <- err
	}()
	err = f.speak(s, stream, read)
	return err
}

// greet reads the Hello and authenticates the agent. cluster is the cluster that it claims.
func (f *Front) greet(stream protocol.ServerStream) (s *session, cluster string, err error) {
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
	d, ok := f.declaration(cluster)
	if !ok || !d.proves(token, certificate(stream)) { // one answer for both, which does not reveal the declared clusters
		return nil, cluster, status.Errorf(codes.Unauthenticated, "cluster %s is not declared at this front door, or its token or certificate is another one: "+
			"compare the cluster's name and token (--cluster, --cluster-token-file) with the front door's clusters.yaml", cluster)
	}
	return &session{pool: protocol.NewPool(f.unlink), id: rand.Text(), secret: rand.Text(), hello: *up.Hello, declared: d, since: time.Now(), heard: time.Now(),
		wake: make(chan struct{}, 1), ended: make(chan struct{}), linked: make(chan struct{}, 1), demand: map[api.FunctionName]api.Demand{}, denied: map[api.FunctionName]bool{}}, cluster, nil
}

// awaitLink waits until the session has a link. The agent dials it before its first report, but over another
// connection: the report may arrive first, and requests would find no connection.
func (s *session) awaitLink(ctx context.Context) {
	late := time.NewTimer(linkTimeout)
	defer late.Stop()
	select {
	case <-s.linked:
	case <-late.C:
	case <-ctx.Done():
	}
}

// linkTimeout bounds the wait for the first link: without one, the agent is heard all the same.
const linkTimeout = time.Second

func (f *Front) listen(s *session, stream protocol.ServerStream) error {
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
		if err := f.hear(s, up); err != nil {
			return err
		}
	}
}

// speak sends pending messages until the session ends.
func (f *Front) speak(s *session, stream protocol.ServerStream, read <-chan error) error {
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
			left := f.silence(s)
			if left <= 0 {
				return status.Errorf(codes.DeadlineExceeded, "nothing was heard for %s", protocol.DeadAfter)
			}
			silent.Reset(left)
		case <-s.wake:
			for d := f.outbox(s); d != nil; d = f.outbox(s) {
				if err := stream.Send(d); err != nil {
					return err
				}
			}
		}
	}
}

// silence returns how much longer the agent may be silent.
func (f *Front) silence(s *session) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return protocol.DeadAfter - time.Since(s.heard)
}

// outbox returns the next message; nil: nothing to send. The rest stays for the next message.
func (f *Front) outbox(s *session) *protocol.Down {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := &protocol.Down{Beat: s.beat, Refused: s.refused, GoAway: s.goAway}
	for name, demand := range s.demand {
		if len(d.Demand) == maxDemands {
			break
		}
		d.Demand = append(d.Demand, demand)
		delete(s.demand, name)
	}
	if d.Remove, s.remove = s.remove, nil; len(s.apply) > 0 { // a message holds one manifest
		d.Apply, s.apply = s.apply[:1:1], s.apply[1:]
	}
	empty := d.Beat == 0 && len(d.Refused) == 0 && !d.GoAway && len(d.Demand)+len(d.Remove)+len(d.Apply) == 0
	s.beat, s.refused, s.goAway = 0, nil, false
	if empty {
		return nil
	}
	return d
}

// maxDemands bounds the demands in one message.
const maxDemands = 1000

// certificate returns the verified certificate of the stream's client; nil: none.
func certificate(stream protocol.ServerStream) (c *x509.Certificate) {
	if chains := connection(stream).State.VerifiedChains; len(chains) > 0 {
		return chains[0][0]
	}
	return nil
}

func connection(stream protocol.ServerStream) secured {
	p, _ := peer.FromContext(stream.Context())
	return p.AuthInfo.(secured)
}
