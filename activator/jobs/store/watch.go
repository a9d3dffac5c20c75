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

// joinMembers makes this process a member, before it claims anything, so that a member without a beat is gone.
func (s *Store) joinMembers() error {
	if !s.objects.Shared() {
		return nil
	}
	return s.joined.Pass(s.writeBeat)
}

func (s *Store) writeBeat() error {
	return s.write("members/"+s.member, []byte(time.Now().UTC().Format(time.RFC3339Nano)))
}

// readMembers reads the beats of all members.
func (s *Store) readMembers() error {
	all, err := s.objects.List("members/")
	if err != nil {
		return err
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	members := map[string]beat{}
	for _, e := range all {
		name := strings.TrimPrefix(e.Key, "members/")
		b := beat{e.Version, now}
		if old, known := s.members[name]; known && old.version == e.Version {
			b.since = old.since
		}
		members[name] = b
	}
	s.members, s.looked = members, now
	return nil
}

// alive reports whether a member was alive when members were last read: it existed, and its beat had changed within a
// lease. The caller holds mu.
func (s *Store) alive(member string) bool {
	b, known := s.members[member]
	return known && s.looked.Sub(b.since) < s.cfg.Lease
}

// mayClaim returns nil if a record held by holder may be claimed, ErrHeld, or an error. Members are read after the
// record was, unless the holder is known to be alive: it became a member before it claimed anything.
func (s *Store) mayClaim(holder string) error {
	if holder == "" || holder == s.member || !s.objects.Shared() {
		return nil
	}
	s.mu.Lock()
	known := s.alive(holder) && time.Since(s.looked) < s.cfg.Poll
	s.mu.Unlock()
	if !known {
		if err := s.readMembers(); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alive(holder) {
		return ErrHeld
	}
	return nil
}

// recordClaim records a claim of this member. before is the hint of the earlier claim.
func (s *Store) recordClaim(j *Job, before string) {
	s.mu.Lock()
	s.held[j.ID] = hold{owner: j.Owner, epoch: j.Epoch}
	s.mu.Unlock()
	s.changeHint(j, before, claimHint(j.Epoch, s.member))
}

// forgetClaim forgets a claim. If its job has not ended, it is reported again.
func (s *Store) forgetClaim(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, id)
	delete(s.seen, id)
}

// changeHint replaces a hint about a claim, which only other members need.
func (s *Store) changeHint(j *Job, before, after string) {
	if !s.objects.Shared() {
		return
	}
	if err := s.write(hintKey(j.Owner, j.ID, after), nil); err == nil {
		s.forget(hintKey(j.Owner, j.ID, before))
	}
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
	s.mu.Lock()
	clear(s.seen)
	s.mu.Unlock()
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
		if err := errors.Join(s.joinMembers(), s.writeBeat()); err != nil {
			return news, err
		}
	}
	entries, err := s.objects.List("open/")
	if err != nil {
		return news, err
	}
	if s.objects.Shared() { // after the hints, so that every live member that they name is included
		if err := s.readMembers(); err != nil {
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
		if !s.isFree(h) {
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
func (s *Store) isFree(h *hint) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	_, held := s.held[h.id]
	if held || h.member != "" && h.member != s.member && s.alive(h.member) {
		delete(s.seen, h.id)
		return false
	}
	first, known := s.seen[h.id]
	if !known {
		if len(s.seen) > maxSeen {
			clear(s.seen)
		}
		s.seen[h.id] = now
		first = now
	}
	if !s.objects.Shared() { // reported once: no one else claims it
		return !known
	}
	return h.member != "" && h.member != s.member || now.Sub(first) >= s.cfg.Poll/2
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
	s.mu.Lock()
	doubtful := map[string]hold{}
	for id, have := range s.held {
		if h := open[id]; h == nil || h.epoch > have.epoch || cancelled[id] {
			doubtful[id] = have
		}
	}
	s.mu.Unlock()
	for id, have := range doubtful {
		j, _, err := read[Job](s, keyOf(kindJob, have.owner, id))
		if unlessGone(err) != nil {
			return err
		}
		s.mu.Lock()
		now, still := s.held[id]
		s.mu.Unlock()
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
