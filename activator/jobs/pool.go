package jobs

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/activator/keys"
	"github.com/rouse-dev/rouse/api"
)

// pool holds the known jobs of a kind: batches, or requests. Server.mu guards it.
type pool struct {
	waiting lineup
	hurry   lineup              // batches cancelled before they ran
	running map[string]*running // by id
	// most bounds the running jobs, each those of one owner.
	most, each int
	// run works on a job until it has ended or ctx ends. mine ends earlier if the job is cancelled or lost.
	run   func(ctx, mine context.Context, owner, id string)
	gauge prometheus.Gauge
	// awaited are jobs that a client waits for. stopped closes their channels.
	awaited    map[string]chan struct{} // by id
	unfinished map[string]client        // by id; with jobs that are being stored
}

func newPool(most, each int, run func(ctx, mine context.Context, owner, id string), gauge prometheus.Gauge) pool {
	return pool{most: most, each: each, run: run, gauge: gauge, running: map[string]*running{}, awaited: map[string]chan struct{}{}, unfinished: map[string]client{}}
}

// client is who created a job.
type client struct{ owner, address string } // address is set of one without a key

type running struct {
	owner  string
	cancel context.CancelCauseFunc
}

func (s *Server) poolOf(id string) *pool {
	if store.IsBatch(id) {
		return &s.batches
	}
	return &s.requests
}

func (s *Server) startJobs(ctx context.Context, all *sync.WaitGroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range []*pool{&s.batches, &s.requests} {
		for owner, id, ok := p.nextJob(); ok; owner, id, ok = p.nextJob() {
			mine, cancel := context.WithCancelCause(ctx)
			p.running[id] = &running{owner: owner, cancel: cancel}
			all.Go(func() {
				p.run(ctx, mine, owner, id)
				cancel(nil)
				s.mu.Lock()
				delete(p.running, id)
				p.stopped(id)
				p.gauge.Set(float64(len(p.running)))
				s.mu.Unlock()
				s.work.Ring()
			})
		}
		p.gauge.Set(float64(len(p.running)))
	}
}

func (p *pool) nextJob() (owner, id string, ok bool) {
	if owner, id, ok = p.hurry.next(nil, 1); !ok && len(p.running) < p.most { // those in a hurry end at once
		owner, id, ok = p.waiting.next(p.running, p.each)
	}
	return owner, id, ok
}

func (p *pool) stopped(id string) {
	delete(p.unfinished, id)
	if c := p.awaited[id]; c != nil {
		close(c)
		delete(p.awaited, id)
	}
}

func (s *Server) awaitJob(ctx context.Context, j store.Ref) {
	s.mu.Lock()
	p := s.poolOf(j.ID)
	c := make(chan struct{})
	if p.running[j.ID] == nil && !p.waiting.has(j) {
		close(c)
	} else {
		p.awaited[j.ID] = c
	}
	s.mu.Unlock()
	select {
	case <-c:
	case <-ctx.Done():
		s.mu.Lock()
		delete(p.awaited, j.ID)
		s.mu.Unlock()
	}
}

func (s *Server) endRequest(owner, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if run := s.requests.running[id]; run != nil {
		run.cancel(errCancelled)
	} else if s.requests.waiting.remove(owner, id) {
		s.requests.stopped(id)
	}
}

// addWaiting adds a job unless it is known: the store may report it before its creator does.
func (p *pool) addWaiting(j store.Ref) {
	p.unfinished[j.ID] = client{j.Owner, p.unfinished[j.ID].address}
	if p.running[j.ID] == nil && !p.hurry.has(j) && !p.waiting.has(j) {
		p.waiting.add(j.Owner, j.ID)
	}
}

func (s *Server) handleNews(n store.News) {
	s.mu.Lock()
	for _, j := range n.Free {
		s.poolOf(j.ID).addWaiting(j)
	}
	end := func(ids []string, why error) {
		for _, id := range ids {
			if run := s.poolOf(id).running[id]; run != nil {
				run.cancel(why)
			}
		}
	}
	end(n.Cancelled, errCancelled)
	end(n.Lost, errLost)
	s.mu.Unlock()
	s.work.Ring()
}

// createJob stores a caller's job under an id with that prefix, and schedules it. tooMany is the error if the caller has
// too many, with their number: jobs that are being stored count.
func (s *Server) createJob(c activator.Caller, prefix string, j store.Job, body []byte, window time.Duration, most int, tooMany string) (store.Job, error) {
	var err error
	if j.Caller, err = json.Marshal(c); err != nil {
		return j, err
	}
	j.ID, _ = s.store.NewID(prefix)
	j.Owner = c.Owner()
	its := client{owner: j.Owner}
	if j.Owner == activator.Anonymous && !c.Local {
		its.address = c.Client
	}
	n, same := 0, 0
	s.mu.Lock()
	p := s.poolOf(j.ID)
	for _, of := range p.unfinished {
		if of.owner == its.owner {
			n++
		}
		if of == its {
			same++
		}
	}
	if its.address != "" && same >= max(most/8, 1) { // a share of what all clients without a key may have
		n, most = same, same
	}
	full := n >= most
	if !full {
		p.unfinished[j.ID] = its
	}
	s.mu.Unlock()
	if full {
		return j, api.Errorf(http.StatusTooManyRequests, keys.CodeRateLimit, tooMany, n).WithRetryAfter(time.Minute)
	}
	j, err = s.store.New(j, body, window)
	s.mu.Lock()
	if err == nil {
		p.addWaiting(store.Ref{Owner: j.Owner, ID: j.ID})
	} else {
		p.stopped(j.ID)
	}
	s.mu.Unlock()
	s.work.Ring()
	return j, err
}

// lineup holds waiting ids by owner. The zero value is empty.
type lineup struct{ of map[string][]string }

func (l *lineup) add(owner string, ids ...string) {
	if l.of == nil {
		l.of = map[string][]string{}
	}
	l.of[owner] = append(l.of[owner], ids...)
}

func (l *lineup) has(r store.Ref) bool { return slices.Contains(l.of[r.Owner], r.ID) }

func (l *lineup) remove(owner, id string) bool {
	k := slices.Index(l.of[owner], id)
	if k < 0 {
		return false
	}
	if l.of[owner] = slices.Delete(l.of[owner], k, k+1); len(l.of[owner]) == 0 {
		delete(l.of, owner)
	}
	return true
}

// next removes and returns the first id of the owner with the fewest running, if fewer than most. Among such owners the
// oldest id wins: ids grow with time.
func (l *lineup) next(running map[string]*running, most int) (owner, id string, ok bool) {
	busy := map[string]int{}
	for _, r := range running {
		busy[r.owner]++
	}
	for o, ids := range l.of {
		n := busy[o]
		if n < most && (!ok || n < busy[owner] || n == busy[owner] && ids[0] < id) {
			owner, id, ok = o, ids[0], true
		}
	}
	if ok {
		l.remove(owner, id)
	}
	return owner, id, ok
}
