package api

// StaleEpoch reports whether an instance that has seen one epoch must refuse an order with another. An epoch orders the
// grants and orders for one instance: see [Grant.Epoch]. An equal one is accepted: one grant allows many wakes, and
// orders are repeated.
func StaleEpoch(epoch, seen uint64) bool { return epoch < seen }
