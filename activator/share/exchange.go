package share

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/api/control"
)

func (s *Share) loop(ctx context.Context, p *peer) {
	for {
		select {
		case <-p.bell:
		case <-ctx.Done():
			return
		}
		s.mu.Lock()
		r := p.next
		if r == nil || ctx.Err() != nil {
			s.mu.Unlock()
			continue
		}
		p.next, p.asking = nil, r
		message, to := s.message(p), p.Activator
		s.mu.Unlock()
		err := s.exchange(ctx, to, message)
		s.mu.Lock()
		p.away, p.asking = time.Time{}, nil
		r.answered = err == nil && len(message.Parts) < mostParts
		var ended lessons
		if err != nil {
			s.fail(p, err, &ended)
		}
		if p.fault = err != nil; len(p.sent)+len(p.accounts)+len(p.clients) > 0 {
			s.soon(p, Every)
		}
		s.mu.Unlock()
		s.learn(ended)
		close(r.done)
	}
}

// The caller holds mu.
func (s *Share) message(p *peer) control.UsageMessage {
	p.late = p.late || s.apartBut(nil)
	m := p.message()
	m.From, m.Run, m.Apart, m.Meet = s.name, s.run, s.apartBut(p), p.meets
	return m
}

// The caller holds mu.
func (s *Share) lacks(p *peer) bool { return s.doors && (p.lost || p.meets) }

// The caller holds mu.
func (s *Share) apartBut(p *peer) bool {
	for _, other := range s.peers {
		if other != p && s.lacks(other) {
			return true
		}
	}
	return false
}

// Requests at a front door that has been away for long no longer count. The caller holds mu.
func (s *Share) fail(p *peer, err error, ended *lessons) {
	if !p.fault {
		s.log.Warn("an activator does not count with this one; limits are kept by what is known", "activator", p.Name, "error", err)
	}
	now := time.Now()
	p.away, p.lost, p.late = now.Add(retryAfter), true, p.late || len(p.accounts) > 0
	for i := range p.sent {
		p.sent[i].Late = true
	}
	if s.doors && now.Sub(p.heard) > runsFor {
		p.ran(ended)
	}
	s.soon(p, retryAfter)
}

func (s *Share) exchange(ctx context.Context, to Activator, m control.UsageMessage) error {
	ctx, cancel := context.WithTimeout(ctx, callFor)
	defer cancel()
	var answer control.UsageMessage
	if err := s.caller.Call(ctx, http.MethodPost, to.Endpoint, control.PathUsage, m, &answer, MaxMessage); err != nil {
		return err
	}
	if answer.From != to.Name {
		return fmt.Errorf("%s answers in the name of %q", to.Name, answer.From)
	}
	s.receive(answer)
	return nil
}

// soon schedules a round. The caller holds mu.
func (s *Share) soon(p *peer, after time.Duration) {
	if p.armed {
		return
	}
	p.armed = true
	time.AfterFunc(after, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		p.armed = false
		if s.peers[p.Name] == p {
			s.round(p)
		}
	})
}

// The caller holds mu.
func (s *Share) round(p *peer) *round {
	if p.next == nil {
		p.next = &round{done: make(chan struct{})}
		p.bell.Ring()
	}
	return p.next
}

type round struct {
	done     chan struct{} // closed at its end
	answered bool          // the other one knows all; guarded by mu of the Share
}
