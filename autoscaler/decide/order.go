package decide

import "github.com/rouse-dev/rouse/api"

// followOrders stops outdated instances and follows orders to sleep or stop. An order to wake is a demand like any
// other.
func (p *plan) followOrders() {
	for _, f := range p.fs {
		for _, i := range f.instances {
			if i.Outdated && p.available(i) { // its memory is booked as coming already
				p.addAction(f, i, Action{Kind: Stop, Drain: p.pol.Drain, Reason: "the function was declared anew since it started"})
			}
		}
	}
	for _, f := range p.fs {
		if f.Order != OrderSleep && f.Order != OrderStop {
			continue
		}
		for _, i := range f.instances {
			if !p.available(i) {
				continue
			}
			if f.Order == OrderStop {
				p.stop(i, p.pol.Drain, "asked for")
				continue
			}
			level := max(f.OrderLevel, api.Level1)
			if level == api.Suspended && (i.Status.NoSuspend != "" || !p.suspendable(i)) {
				level = f.level() // what it keeps asleep is measured, or host memory becomes free
			}
			switch {
			case i.phase == phaseAwake, i.phase == phaseAsleep && i.Status.Level < level:
				p.sleep(i, level, "asked for")
			case i.phase == phaseUnhealthy:
				p.stop(i, 0, "asked to sleep, but it is unhealthy")
			}
		}
	}
}

// frozen reports whether f is going down by order, and demands nothing.
func (f *function) frozen() bool { return f.Order == OrderSleep || f.Order == OrderStop }
