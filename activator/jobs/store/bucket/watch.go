package bucket

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/activator/jobs/store"
)

// Hints.
const (
	firstHint  = "0."
	cancelHint = "cancel"
)

func claimHint(epoch uint64, member string) string {
	return strconv.FormatUint(epoch, 10) + "." + member
}

func hintKey(kind, owner, id, hint string) string {
	return "open/" + kind + "/" + ownerKey(owner) + "/" + id + "/" + hint
}

type hint struct {
	kind, owner, id string // the owner as in keys
	cancel          bool
	epoch           uint64
	member          string // empty: no holder
}

// parseHint parses a key; false: it is no hint.
func parseHint(key string) (h hint, ok bool) {
	parts := strings.Split(key, "/")
	if len(parts) != 5 || parts[0] != "open" || parts[1] != openBatch && parts[1] != openLater {
		return h, false
	}
	h = hint{kind: parts[1], owner: parts[2], id: parts[3]}
	if parts[4] == cancelHint {
		h.cancel = true
		return h, true
	}
	epoch, member, found := strings.Cut(parts[4], ".")
	n, err := strconv.ParseUint(epoch, 10, 64)
	h.epoch, h.member = n, member
	return h, found && err == nil
}

// join makes this process a member, before it claims anything, so that a member without a beat is gone.
func (s *Store) join() error {
	return s.joined.pass(s.beat)
}

func (s *Store) beat() error {
	return s.write("members/"+s.member, []byte(time.Now().UTC().Format(time.RFC3339Nano)))
}

// look reads the beats of all members.
func (s *Store) look() error {
	all, err := s.list("members/")
	if err != nil {
		return err
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	members := map[string]beat{}
	for _, e := range all {
		name := strings.TrimPrefix(e.Key, "members/")
		b := beat{e.ETag, now}
		if old, known := s.members[name]; known && old.etag == e.ETag {
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
	if holder == "" || holder == s.member {
		return nil
	}
	s.mu.Lock()
	known := s.alive(holder) && time.Since(s.looked) < s.cfg.Poll
	s.mu.Unlock()
	if !known {
		if err := s.look(); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alive(holder) {
		return store.ErrHeld
	}
	return nil
}

// hold records a claim of this member. before is the hint of the earlier claim.
func (s *Store) hold(kind, owner, id string, epoch uint64, before string) {
	s.mu.Lock()
	s.held[id] = hold{kind: kind, owner: owner, epoch: epoch}
	s.mu.Unlock()
	if err := s.write(hintKey(kind, owner, id, claimHint(epoch, s.member)), nil); err == nil {
		s.forget(hintKey(kind, owner, id, before))
	}
}

func (s *Store) drop(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, id)
}

// release records in the hints that the claim has no holder.
func (s *Store) release(kind, owner, id string, epoch uint64) {
	if err := s.write(hintKey(kind, owner, id, claimHint(epoch, "")), nil); err == nil {
		s.forget(hintKey(kind, owner, id, claimHint(epoch, s.member)))
	}
}

func (s *Store) forgetHints(kind, owner, id string) {
	all, err := s.list(hintKey(kind, owner, id, ""))
	if err != nil { // the next claimant does this
		return
	}
	for _, e := range all {
		s.forget(e.Key)
	}
}

// Watch implements [store.Store]. While the store is unavailable it reports nothing.
func (s *Store) Watch(ctx context.Context, tell func(store.News)) error {
	tick := time.NewTicker(s.cfg.Poll)
	defer tick.Stop()
	silent := false
	for {
		news, err := s.poll()
		switch {
		case err == nil:
			tell(news)
			if silent {
				s.log.Info("the store answers again")
			}
			silent = false
		case !silent && ctx.Err() == nil && s.closing.Err() == nil:
			s.log.Warn("the store does not answer", "error", err)
			silent = true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// poll beats, and reads the hints and the other members.
func (s *Store) poll() (news store.News, err error) {
	if err := s.prepare(); err != nil {
		return news, err
	}
	if err := errors.Join(s.join(), s.beat()); err != nil {
		return news, err
	}
	entries, err := s.list("open/")
	if err != nil {
		return news, err
	}
	if err := s.look(); err != nil { // after the hints, so that every live member that they name is included
		return news, err
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
		if h := open[id]; s.isFree(h) {
			if err := s.announce(h, &news); err != nil {
				return news, err
			}
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
	return h.member != "" && h.member != s.member || now.Sub(first) >= s.cfg.Poll/2
}

// maxSeen bounds the remembered work without a holder: beyond it all is forgotten, and reported a poll later.
const maxSeen = 100_000

// announce reports work without a holder. Its record has the owner's name.
func (s *Store) announce(h *hint, news *store.News) error {
	if h.kind == openBatch {
		b, _, err := read[batchRecord](s, kindBatch+"/"+h.owner+"/"+h.id)
		if err == nil {
			news.Batches = append(news.Batches, store.Ref{Owner: b.Owner, ID: b.ID})
		}
		return unlessGone(err)
	}
	l, _, err := read[laterRecord](s, kindLater+"/"+h.owner+"/"+h.id)
	if err == nil {
		news.Laters = append(news.Laters, store.Ref{Owner: l.Owner, ID: l.ID})
	}
	return unlessGone(err)
}

// unlessGone returns err, or nil for ErrNotFound: a hint is created before its record and deleted after it.
func unlessGone(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// checkHeld reports the claims of this member that no longer count, or are cancelled.
func (s *Store) checkHeld(open map[string]*hint, cancelled map[string]bool, news *store.News) error {
	s.mu.Lock()
	doubtful := map[string]hold{}
	for id, have := range s.held {
		if h := open[id]; h == nil || h.epoch > have.epoch || cancelled[id] {
			doubtful[id] = have
		}
	}
	s.mu.Unlock()
	for id, have := range doubtful {
		counts, cancelled, err := s.counts(id, have)
		if err != nil {
			return err
		}
		s.mu.Lock()
		now, still := s.held[id]
		s.mu.Unlock()
		switch {
		case !still || now != have: // it has ended here meanwhile
		case !counts:
			news.Lost = append(news.Lost, id)
		case cancelled:
			news.Cancelled = append(news.Cancelled, id)
		}
	}
	return nil
}

// counts reports whether a claim still counts, by its record.
func (s *Store) counts(id string, have hold) (counts, cancelled bool, err error) {
	if have.kind == openBatch {
		b, _, err := read[batchRecord](s, keyOf(kindBatch, have.owner, id))
		if err != nil {
			return false, false, unlessGone(err)
		}
		return b.Epoch == have.epoch && !b.Ended(), b.Status == store.Cancelling, nil
	}
	l, _, err := read[laterRecord](s, keyOf(kindLater, have.owner, id))
	if err != nil {
		return false, false, unlessGone(err)
	}
	return l.Epoch == have.epoch && !l.Done() && l.Becomes == nil, false, nil
}
