package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// short formats a duration, rounded.
func short(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Microsecond).String()
}

// many formats a count with its noun.
func many(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// formatLeavers names what o waits for: its victims, else the instances that release memory of a device that it lacks.
func (p *plan) formatLeavers(o *option) string {
	var names []string
	for _, v := range o.victims {
		names = append(names, string(v.i.Status.Instance))
	}
	if len(names) == 0 {
		for k, d := range o.at {
			if o.needs[k] <= p.free[d] {
				continue
			}
			for _, i := range p.on[d] {
				if i.phase == phaseFalling || i.phase == phaseLeaving || i.Doing == DoingRevoke || i.settling(p.now) {
					names = append(names, string(i.Status.Instance))
				}
			}
		}
		slices.Sort(names)
		names = slices.Compact(names)
	}
	if len(names) == 0 {
		return "what is on its way"
	}
	return strings.Join(names, " and ")
}

// formatLack formats what o needs beyond the free memory.
func (p *plan) formatLack(o *option) string {
	short := p.alloc(len(o.at))
	for k, d := range o.at {
		if o.needs[k] > 0 {
			short[k] = max(0, o.needs[k]-max(0, p.free[d]))
		}
	}
	return p.formatAmounts(o.at, short)
}

// formatFree formats the free memory of devices.
func (p *plan) formatFree(at []int32) string {
	free := p.alloc(len(at))
	for k, d := range at {
		free[k] = p.free[d]
	}
	return p.formatAmounts(at, free)
}

// formatAmounts formats the amount of each device that has one.
func (p *plan) formatAmounts(at []int32, b bytes) string {
	var parts []string
	for k, v := range b {
		if v == 0 && len(p.devs) > 1 || k > 0 && v < 0 {
			continue
		}
		parts = append(parts, fmt.Sprintf("%s of %s", max(0, v), p.devs[at[k]].ID))
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

// amountOf formats a need.
func amountOf(m api.Memory) string {
	s := m.Host.String() + " of host"
	switch {
	case m.Devices > 0 && m.PerDevice == 0 && m.Share == 0:
		s += fmt.Sprintf(" and %s (nothing says how much of it: rouse.dev/device-memory would, such as rouse.dev/device-memory: 20Gi)", many(m.Devices, "whole GPU"))
	case m.Devices > 0 && m.PerDevice == 0 && m.Share == 1:
		s += " and " + many(m.Devices, "whole GPU")
	case m.Devices > 0 && m.PerDevice == 0:
		s += fmt.Sprintf(" and %.0f%% of %s", m.Share*100, many(m.Devices, "GPU"))
	case m.Devices > 0:
		s += fmt.Sprintf(" and %s on %s", m.PerDevice, many(m.Devices, "GPU"))
	}
	return s
}

// inMemoryThere describes the n bytes of a need that are in memory already.
func inMemoryThere(n api.Bytes) string {
	if n == 0 {
		return ""
	}
	return ", beside " + n.String() + " that are in memory there"
}

// snapshotOf says from which snapshot a start may begin, or why there is none; empty: none is wanted.
func (p *plan) snapshotOf(f *function) string {
	switch s := f.Past.Snapshot; {
	case s == nil:
		return ""
	case s.Missing != "":
		return "; no snapshot: " + s.Missing
	default:
		return fmt.Sprintf("; its snapshot has %s and is %s old", s.Size, short(p.now.Sub(s.Made)))
	}
}
