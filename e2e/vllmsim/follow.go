package vllmsim

import (
	"context"
	"iter"
	"net/http"
	"sync"

	"github.com/rouse-dev/rouse/e2e/vllmsim/words"
)

// submitFirst submits the first prompt alone: one text at a time is enough for a test.
func (s *Server) submitFirst(a *ask, ill injected) (j *job, cancel func(), err error) {
	a.prompts = a.prompts[:1]
	jobs, err := s.jobs(a, ill)
	if err != nil {
		return nil, nil, err
	}
	cancel, err = s.submit(jobs)
	return jobs[0], cancel, err
}

// submit submits the jobs of one request. The returned function takes them out again.
func (s *Server) submit(jobs []*job) (cancel func(), err error) {
	cancel = func() {
		for _, j := range jobs {
			s.engine.cancel(j)
		}
	}
	for _, j := range jobs {
		if err := s.engine.submit(j); err != nil {
			cancel()
			return nil, err
		}
	}
	return cancel, nil
}

// piece is news of one job.
type piece struct {
	index  int
	tokens []words.Token // all of its output so far
	over   bool
	err    error
}

// follow yields the progress of jobs until all are over or r's context has ended. A slow reader
// sees fewer and larger pieces.
func (s *Server) follow(r *http.Request, jobs []*job) iter.Seq[piece] {
	if len(jobs) == 1 {
		return s.followOne(r, jobs[0])
	}
	return func(yield func(piece) bool) {
		ctx, leave := context.WithCancel(r.Context())
		defer leave()
		pieces := make(chan piece) // sent by a goroutine each; closed by the last
		var all sync.WaitGroup
		for i, j := range jobs {
			all.Go(func() {
				for p := range s.followOne(r, j) {
					p.index = i
					select {
					case pieces <- p:
					case <-ctx.Done():
						return
					}
				}
			})
		}
		go func() {
			all.Wait()
			close(pieces)
		}()
		for p := range pieces {
			if !yield(p) {
				return
			}
		}
	}
}

// followOne is follow of one job, without the way through other goroutines.
func (s *Server) followOne(r *http.Request, j *job) iter.Seq[piece] {
	return func(yield func(piece) bool) {
		for have := 0; ; {
			tokens, over, err := s.engine.progress(r.Context(), j, have)
			if r.Context().Err() != nil {
				return
			}
			have = len(tokens)
			if !yield(piece{tokens: tokens, over: over, err: err}) || over || err != nil {
				return
			}
		}
	}
}
