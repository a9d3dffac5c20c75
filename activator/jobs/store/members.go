package store

import (
	"strings"
	"sync"
	"time"
)

// members are the processes that use a store. Each repeats its beat, an object; in a folder it is alone. It is safe for
// concurrent use.
type members struct {
	objects     Objects
	own         string // this process's name
	lease, poll time.Duration
	joined      Gate

	mu     sync.Mutex           // guards the fields below
	beats  map[string]beat      // by name
	looked time.Time            // when beats was read
	held   map[string]hold      // this member's claims, by job
	seen   map[string]time.Time // when work without a holder was first seen, by job
}

type hold struct {
	owner string
	epoch uint64
}

type beat struct {
	version string
	since   time.Time // when this version was first seen
}

// join must come before the first claim: a member without a beat is gone.
func (m *members) join() error {
	if !m.objects.Shared() {
		return nil
	}
	return m.joined.Pass(m.beat)
}

func (m *members) beat() error {
	_, err := m.objects.Put("members/"+m.own, []byte(time.Now().UTC().Format(time.RFC3339Nano)), Condition{})
	return err
}

func (m *members) read() error {
	all, err := m.objects.List("members/")
	if err != nil {
		return err
	}
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	beats := map[string]beat{}
	for _, e := range all {
		name := strings.TrimPrefix(e.Key, "members/")
		b := beat{e.Version, now}
		if old, known := m.beats[name]; known && old.version == e.Version {
			b.since = old.since
		}
		beats[name] = b
	}
	m.beats, m.looked = beats, now
	return nil
}

// alive reports whether a member's beat had changed within a lease, at looked.
func (m *members) alive(member string) (alive bool, looked time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, known := m.beats[member]
	return known && m.looked.Sub(b.since) < m.lease, m.looked
}

// mayClaim returns ErrHeld if the holder is alive. Members are read after the record was, unless the holder is known to be
// alive: it became a member before it claimed anything.
func (m *members) mayClaim(holder string) error {
	if holder == "" || holder == m.own || !m.objects.Shared() {
		return nil
	}
	alive, looked := m.alive(holder)
	if !alive || time.Since(looked) >= m.poll {
		if err := m.read(); err != nil {
			return err
		}
		alive, _ = m.alive(holder)
	}
	if alive {
		return ErrHeld
	}
	return nil
}

func (m *members) addClaim(j *Job) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held[j.ID] = hold{owner: j.Owner, epoch: j.Epoch}
}

// dropClaim has a job reported again that has not ended.
func (m *members) dropClaim(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.held, id)
	delete(m.seen, id)
}

// isFree reports whether, by the hints, a job's holder is gone, or it has had none since the last poll.
func (m *members) isFree(h *hint) bool {
	now := time.Now()
	other := h.member != "" && h.member != m.own
	alive, _ := m.alive(h.member)
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, held := m.held[h.id]; held || other && alive {
		delete(m.seen, h.id)
		return false
	}
	first, known := m.seen[h.id]
	if !known {
		if len(m.seen) > maxSeen {
			clear(m.seen)
		}
		m.seen[h.id] = now
		first = now
	}
	if !m.objects.Shared() { // reported once: no one else claims it
		return !known
	}
	return other || now.Sub(first) >= m.poll/2
}

const maxSeen = 100_000
