package store

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Ref names a job.
type Ref struct{ Owner, ID string }

// News is a store's report of its work. It holds levels: the same may be reported again.
type News struct {
	// Free are unfinished jobs that, as far as known, no one has claimed; those of a kind and an owner in order of
	// arrival.
	Free []Ref
	// Cancelled are batches claimed here that were cancelled elsewhere. Lost are jobs claimed here whose claim no
	// longer counts.
	Cancelled, Lost []string
}

// Hints.
const (
	firstHint  = "0."
	cancelHint = "cancel"
)

func claimHint(epoch uint64, member string) string {
	return strconv.FormatUint(epoch, 10) + "." + member
}

func hintKey(owner, id, hint string) string { return keyOf("open", owner, id) + "/" + hint }

type hint struct {
	owner, id string // the owner as in keys
	cancel    bool
	epoch     uint64
	member    string // empty: no holder
}

// parseHint parses a key; false: it is no hint.
func parseHint(key string) (h hint, ok bool) {
	parts := strings.Split(key, "/")
	if len(parts) != 4 {
		return h, false
	}
	h = hint{owner: parts[1], id: parts[2]}
	if parts[3] == cancelHint {
		h.cancel = true
		return h, true
	}
	epoch, member, found := strings.Cut(parts[3], ".")
	n, err := strconv.ParseUint(epoch, 10, 64)
	h.epoch, h.member = n, member
	return h, found && err == nil
}

// claims knows what this member works on, and what no one seems to. It is safe for concurrent use.
type claims struct {
	members *members

	mu   sync.Mutex           // guards the fields below
	held map[string]hold      // the claims of this member, by id
	seen map[string]time.Time // when work without a holder was first seen, by id
}

// hold is a claim of this member.
type hold struct {
	owner string
	epoch uint64
}

// begin records a claim.
func (c *claims) begin(j *Job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held[j.ID] = hold{owner: j.Owner, epoch: j.Epoch}
}

// end forgets a claim. If its job has not ended, it is reported again.
func (c *claims) end(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, id)
	delete(c.seen, id)
}

func (s *Store) forgetHints(owner, id string) {
	all, err := s.objects.List(hintKey(owner, id, ""))
	if err != nil { // the next claimant does this
		return
	}
	for _, e := range all {
		s.forget(e.Key)
	}
}

// Watch reports the work to do, at once and until ctx ends. While the store is unavailable it reports nothing. It is
// called once.
func (s *Store) Watch(ctx context.Context, tell func(News)) {
	tick := time.NewTicker(s.cfg.Poll)
	defer tick.Stop()
	s.claims.mu.Lock()
	clear(s.claims.seen)
	s.claims.mu.Unlock()
	silent := false
	for ctx.Err() == nil {
		news, err := s.poll()
		switch {
		case err == nil:
			tell(news)
			if silent {
				s.log.Info("the store answers again")
			}
			silent = false
		case !silent:
			s.log.Warn("the store does not answer", "error", err)
			silent = true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// poll beats, and reads the hints and the other members.
func (s *Store) poll() (news News, err error) {
	if err := s.prepare(); err != nil {
		return news, err
	}
	if s.objects.Shared() {
		if err := errors.Join(s.members.join(), s.members.beat()); err != nil {
			return news, err
		}
	}
	entries, err := s.objects.List("open/")
	if err != nil {
		return news, err
	}
	if s.objects.Shared() { // after the hints, so that every live member that they name is included
		if err := s.members.read(); err != nil {
			return news, err
		}
	}
	open := map[string]*hint{} // the last hint of each
	var order []string
	cancelled := map[string]bool{}
	for _, e := range entries {
		h, ok := parseHint(e.Key)
		if !ok {
			continue
		}
		if h.cancel {
			cancelled[h.id] = true
			continue
		}
		last, known := open[h.id]
		if !known {
			order = append(order, h.id)
		}
		if !known || h.epoch > last.epoch || h.epoch == last.epoch && h.member == "" {
			open[h.id] = &h
		}
	}
	for _, id := range order {
		h := open[id]
		if !s.claims.isFree(h) {
			continue
		}
		j, _, err := read[Job](s, kindJob+"/"+h.owner+"/"+h.id) // it has the owner's name
		if err == nil {
			news.Free = append(news.Free, Ref{Owner: j.Owner, ID: j.ID})
		} else if err = unlessGone(err); err != nil {
			return news, err
		}
	}
	return news, s.checkHeld(open, cancelled, &news)
}

// isFree reports whether, by the hints, no one works on something. Either its holder is gone, or it has had no holder
// since the last poll; this member counts as none for work that it no longer has.
func (c *claims) isFree(h *hint) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	other := h.member != "" && h.member != c.members.own
	alive, _ := c.members.alive(h.member)
	if _, held := c.held[h.id]; held || other && alive {
		delete(c.seen, h.id)
		return false
	}
	first, known := c.seen[h.id]
	if !known {
		if len(c.seen) > maxSeen {
			clear(c.seen)
		}
		c.seen[h.id] = now
		first = now
	}
	if !c.members.objects.Shared() { // reported once: no one else claims it
		return !known
	}
	return other || now.Sub(first) >= c.members.poll/2
}

// maxSeen bounds the remembered work without a holder: beyond it all is forgotten, and reported a poll later.
const maxSeen = 100_000

// unlessGone returns err, or nil for ErrNotFound: a hint is created before its record and deleted after it.
func unlessGone(err error) error {
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// checkHeld reports the claims of this member that no longer count, or are cancelled.
func (s *Store) checkHeld(open map[string]*hint, cancelled map[string]bool, news *News) error {
	s.claims.mu.Lock()
	doubtful := map[string]hold{}
	for id, have := range s.claims.held {
		if h := open[id]; h == nil || h.epoch > have.epoch || cancelled[id] {
			doubtful[id] = have
		}
	}
	s.claims.mu.Unlock()
	for id, have := range doubtful {
		j, _, err := read[Job](s, keyOf(kindJob, have.owner, id))
		if unlessGone(err) != nil {
			return err
		}
		s.claims.mu.Lock()
		now, still := s.claims.held[id]
		s.claims.mu.Unlock()
		switch {
		case !still || now != have: // it has ended here meanwhile
		case err != nil || j.Epoch != have.epoch || j.Done():
			news.Lost = append(news.Lost, id)
		case j.Status == Cancelling:
			news.Cancelled = append(news.Cancelled, id)
		}
	}
	return nil
}
