package decide

import "slices"

// again says whether o is where f's last start or wake failed: the same sleeper, or the
// same GPUs (the same host where it needs none). What is wrong there may be wrong there
// only, so that ways elsewhere go first, as long as they interrupt no work.
func (p *plan) again(f *Function, o *option) bool {
	if f.Failures == 0 {
		return false
	}
	for _, i := range f.Instances {
		if i.Failures > 0 && i.phase == phaseAsleep && (o.self == i || meet(i.at, o.at)) {
			return true
		}
	}
	return slices.ContainsFunc(o.at, func(d int32) bool { return slices.Contains(f.FailedOn, p.w.devs[d].ID) })
}

// meet says whether two lists of devices have a GPU in common, or the host where one has no GPU.
func meet(a, b []int32) bool {
	if len(a) > 1 && len(b) > 1 {
		a, b = a[1:], b[1:]
	}
	return slices.ContainsFunc(a, func(d int32) bool { return slices.Contains(b, d) })
}
