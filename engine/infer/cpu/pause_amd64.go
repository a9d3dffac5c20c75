package cpu

// pause tells the processor that this is a waiting loop: it saves power and leaves the core
// to its sibling for some 40 ns.
func pause()
