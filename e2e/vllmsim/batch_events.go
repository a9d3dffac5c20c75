package vllmsim

// Event is a change of the prefix cache.
type Event struct {
	Kind EventKind
	// Hash names a block, and Parent the one before it; 0: there is none.
	Hash, Parent uint64
	// Tokens are the tokens of a stored block.
	Tokens []Token
}

// EventKind is the kind of a change of blocks.
type EventKind int

// Kinds of events.
const (
	Stored EventKind = iota
	Removed
	Cleared
)

// Events returns the changes since the last call, if [Config.Events] is set.
func (b *Batch) Events() []Event {
	events := b.pool.events
	b.pool.events = nil
	return events
}

// note keeps an event.
func (p *pool) note(e Event) {
	if p.noting {
		p.events = append(p.events, e)
	}
}
