package cpu

// pause saves power in a waiting loop, and leaves the core to its sibling for some 40 ns.
func pause()
