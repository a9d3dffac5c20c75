package decide

import "slices"

// again reports whether o uses the sleeper or a GPU (without GPUs: the host) of f's last failed start or wake. The
// cause may be there, so options elsewhere come first, as long as they interrupt no work.
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

// meet reports whether two lists of devices have a GPU in common, or the host if one of them has no GPU.
func meet(a, b []int32) bool {
	if len(a) > 1 && len(b) > 1 {
		a, b = a[1:], b[1:]
	}
	return slices.ContainsFunc(a, func(d int32) bool { return slices.Contains(b, d) })
}
