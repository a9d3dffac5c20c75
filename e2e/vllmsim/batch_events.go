package vllmsim

// Event is a change of the prefix cache.
type Event struct {
	Kind EventKind
	// Parent is the block before Hash's; 0: there is none.
	Hash, Parent uint64
	Tokens       []Token
}

// EventKind is the kind of a change.
type EventKind int

// Kinds of changes.
const (
	Stored EventKind = iota
	Removed
	Cleared
)

// Events returns the changes since the last call, if [BatchConfig.Events] is set.
func (b *Batch) Events() []Event {
	events := b.pool.events
	b.pool.events = nil
	return events
}

func (p *pool) note(e Event) {
	if p.noting {
		p.events = append(p.events, e)
	}
}
