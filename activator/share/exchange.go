package share

import (
	"context"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// loop exchanges messages with p whenever a round is due.
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
		p.next = nil
		message, to := p.message(), p.Endpoint
		message.Meet = p.meets
		s.mu.Unlock()
		message.From, message.Run = s.name, s.run
		err := s.exchange(ctx, to, message)
		s.mu.Lock()
		p.away = time.Time{}
		if err != nil {
			p.away = time.Now().Add(retryAfter)
			s.soon(p, retryAfter)
		}
		if p.fault = fault(err, p.fault, func() {
			s.log.Warn("an activator does not count with this one; limits are kept by what is known", "activator", p.Name, "error", err)
		}); len(p.sent)+len(p.accounts)+len(p.clients) > 0 {
			s.soon(p, Every)
		}
		s.mu.Unlock()
		close(r.done)
	}
}

// fault reports whether err is one, and calls tell for the first of several.
func fault(err error, before bool, tell func()) bool {
	if err != nil && !before {
		tell()
	}
	return err != nil
}

func (s *Share) exchange(ctx context.Context, to api.Endpoint, m control.UsageMessage) error {
	ctx, cancel := context.WithTimeout(ctx, callFor)
	defer cancel()
	var answer control.UsageMessage
	if err := s.caller.Call(ctx, http.MethodPost, to, control.PathUsage, m, &answer, MaxMessage); err != nil {
		return err
	}
	s.receive(answer)
	return nil
}

// soon schedules a round with p after at most a given time. The caller holds mu.
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

// round returns the next exchange with p, which has not begun. The caller holds mu.
func (s *Share) round(p *peer) *round {
	if p.next == nil {
		p.next = &round{done: make(chan struct{})}
		p.bell.Ring()
	}
	return p.next
}

type round struct{ done chan struct{} } // closed at its end, successful or not
