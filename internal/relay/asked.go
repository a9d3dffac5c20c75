package relay

// Asked is what a runtime was asked to report in a stream beyond what the client has asked for. It is taken out again.
type Asked struct {
	// Chunk says that a chunk at the end, without choices, has the usage.
	Chunk bool
	// Field is what the chunks before it have; empty: nothing.
	Field string
	// Null says whether a chunk has Field with null where it was not asked for; nil: none has.
	Null func(chunk []byte) bool
	// Moves is a field that the chunk with the usage has in the place of those that finish a choice; empty: there is none.
	Moves string
}
