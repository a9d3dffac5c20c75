package decide

// limit is a stub until the ladder's limits are in.
func (p *plan) limit() {}
