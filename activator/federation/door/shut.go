package door

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"google.golang.org/grpc/codes"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/rouse-dev/rouse/api/control"
)

// An agent that violates the protocol is shut out for a while: its session ends, the reason is logged, and the agent
// is told when it comes back. Others of its cluster are not affected.

const (
	// shutFor is how long an agent is shut out.
	shutFor = 10 * time.Second
	// takenFor is how long after its last message an agent's name is reserved.
	takenFor = 2 * time.Second
	// An agent that gives back this many requests in a row, over this long, reports slots that it does not have.
	mostGivenBack = 8
	givenBackFor  = 3 * time.Second
)

// shut is an agent that is shut out.
type shut struct {
	until  time.Time
	reason string
}

// rejection is why an agent was not admitted, or no longer.
type rejection struct {
	at     time.Time
	reason string
	logged time.Time
}

// rejectedEvery limits how often the same rejection is logged: a rejected agent comes back every second.
const rejectedEvery = time.Minute

// reject records a rejection for the operator, and reports whether to log it. Undeclared clusters are not recorded.
// The caller holds mu.
func (f *Front) reject(cluster, reason string) (news bool) {
	if _, known := f.declared[cluster]; !known {
		return false
	}
	now := rejection{at: time.Now(), reason: reason}
	now.logged = now.at
	if old, was := f.rejected[cluster]; was && old.reason == reason && now.at.Sub(old.logged) < rejectedEvery {
		now.logged = old.logged
	}
	f.rejected[cluster] = now
	return now.logged.Equal(now.at)
}

// sentAway records that an agent of a claimed cluster was not admitted.
func (f *Front) sentAway(ctx context.Context, cluster string, err error) {
	f.metrics.refused.Inc()
	from := ""
	if p, ok := grpcpeer.FromContext(ctx); ok {
		from = p.Addr.String()
	}
	reason := status.Convert(err).Message()
	if status.Code(err) == codes.Unauthenticated {
		reason = "its token or certificate is not the declared one: declare the hash of its token (tokenHashes; rouse clusters token prints it), or give it the declared one"
	}
	f.mu.Lock()
	_, declared := f.declared[cluster]
	level := slog.LevelDebug
	if f.reject(cluster, reason) || !declared && f.strange() {
		level = slog.LevelWarn
	}
	f.mu.Unlock()
	if !declared {
		reason = status.Convert(err).Message()
	}
	f.log.Log(ctx, level, "an agent is refused", "cluster", cluster, "from", from, "reason", reason)
}

// strange reports whether to log a stranger, which is rate-limited: anybody may dial. The caller holds mu.
func (f *Front) strange() bool {
	now := time.Now()
	if now.Sub(f.strangers) <= strangersEvery {
		return false
	}
	f.strangers = now
	return true
}

// process returns the key of an agent that is shut out: a new process of the same name has another.
func (s *session) process() string { return s.agent() + "/" + s.hello.Run }

// shutOut ends an agent's session, and admits none of it for a while. The caller holds mu.
func (f *Front) shutOut(s *session, reason string) {
	now := time.Now()
	for who, out := range f.shut {
		if now.After(out.until) {
			delete(f.shut, who)
		}
	}
	f.shut[s.process()] = shut{until: now.Add(shutFor), reason: reason}
	f.metrics.refused.Inc()
	f.reject(s.hello.Cluster, "agent "+s.hello.Agent+" is shut out for "+shutFor.String()+": "+reason)
	f.log.Warn("an agent is shut out", "cluster", s.hello.Cluster, "agent", s.hello.Agent, "for", shutFor.String(), "reason", reason)
	s.end("agent " + s.agent() + " is shut out for " + shutFor.String() + ": " + reason)
}

// admit returns an error if a session may not begin. The caller holds mu.
func (f *Front) admit(s *session) error {
	if out, ok := f.shut[s.process()]; ok && time.Now().Before(out.until) {
		return status.Errorf(codes.PermissionDenied, "agent %s is shut out for %s: %s", s.agent(), shutFor, out.reason)
	}
	old := f.sessions[s.agent()]
	if old != nil && old.hello.Run != s.hello.Run && time.Since(old.heard) < takenFor {
		return status.Errorf(codes.AlreadyExists, "the name of agent %s is taken by another process: give each agent of a cluster a name of its own", s.agent())
	}
	return nil
}

// broke shuts out an agent whose stream ended with a protocol violation.
func (f *Front) broke(s *session, err error) {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.ResourceExhausted, codes.Internal: // the last: invalid JSON
		f.mu.Lock()
		defer f.mu.Unlock()
		f.shutOut(s, status.Convert(err).Message())
	default: // it ended, or the network failed
	}
}

// took records an agent's reaction to a request.
func (f *Front) took(s *session, resp *http.Response) {
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
