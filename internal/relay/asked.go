package relay

// Asked says what a runtime was asked to report in a stream beyond the client's request; it is removed from the
// answer.
type Asked struct {
	// Chunk means that a chunk at the end, without choices, has the usage.
	Chunk bool
	// Field is the field in the chunks before it; empty: none.
	Field string
	// Null reports whether a chunk would have Field with null if it had not been requested; nil: none would.
	Null func(chunk []byte) bool
	// Moves is a field that the usage chunk has instead of the chunks that finish a choice; empty: none.
	Moves string
}
