package store

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"
)

// Ref names a job.
type Ref struct{ Owner, ID string }

// News holds levels: the same may be reported again.
type News struct {
	// Free are unfinished jobs that no one seems to have claimed; those of a kind and an owner in order of arrival.
	Free []Ref
	// Cancelled are batches claimed here that were cancelled elsewhere. The claims of Lost no longer count.
	Cancelled, Lost []string
}

const (
	firstHint  = "0."
	cancelHint = "cancel"
)

func claimHint(epoch uint64, member string) string {
	return strconv.FormatUint(epoch, 10) + "." + member
}

func hintKey(owner, id, hint string) string { return keyOf("open", owner, id) + "/" + hint }

type hint struct {
	owner, id string // as in keys
	cancel    bool
	epoch     uint64
	member    string // empty: no holder
}

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

func (s *Store) forgetHints(owner, id string) {
	all, err := s.objects.List(hintKey(owner, id, ""))
	if err != nil { // the next claimant does this
		return
	}
	for _, e := range all {
		s.forget(e.Key)
	}
}

// Watch reports the work to do, at once and until ctx ends. It is called once.
func (s *Store) Watch(ctx context.Context, tell func(News)) {
	tick := time.NewTicker(s.cfg.Poll)
	defer tick.Stop()
	s.members.mu.Lock()
	clear(s.members.seen)
	s.members.mu.Unlock()
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
	if s.objects.Shared() { // after the hints: every live member that they name is included
		if err := s.members.read(); err != nil {
			return news, err
		}
	}
	open := map[string]*hint{}
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
		if !s.members.isFree(h) {
			continue
		}
		j, _, err := read[Job](s, kindJob+"/"+h.owner+"/"+h.id) // the record has the owner's name
		if err == nil {
			news.Free = append(news.Free, Ref{Owner: j.Owner, ID: j.ID})
		} else if err = unlessGone(err); err != nil {
			return news, err
		}
	}
	return news, s.checkHeld(open, cancelled, &news)
}

// unlessGone returns nil for ErrNotFound: a hint is created before its record and deleted after it.
func unlessGone(err error) error {
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

func (s *Store) checkHeld(open map[string]*hint, cancelled map[string]bool, news *News) error {
	s.members.mu.Lock()
	doubtful := map[string]hold{}
	for id, have := range s.members.held {
		if h := open[id]; h == nil || h.epoch > have.epoch || cancelled[id] {
			doubtful[id] = have
		}
	}
	s.members.mu.Unlock()
	for id, have := range doubtful {
		j, _, err := read[Job](s, keyOf(kindJob, have.owner, id))
		if unlessGone(err) != nil {
			return err
		}
		s.members.mu.Lock()
		now, still := s.members.held[id]
		s.members.mu.Unlock()
		switch {
		case !still || now != have: // it has ended here
		case err != nil || j.Epoch != have.epoch || j.Done():
			news.Lost = append(news.Lost, id)
		case j.Status == Cancelling:
			news.Cancelled = append(news.Cancelled, id)
		}
	}
	return nil
}
