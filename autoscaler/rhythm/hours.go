package rhythm

import "time"

const (
	// slots is the number of half hours of a day.
	slots       = 48
	slotSeconds = 30 * 60
	// gain is the weight of a new day.
	gain = 0.2
	// usual is the chance of a visit in a half hour or the next one from which on it is expected. Two days with visits in both, or
	// four with one in one of them, are enough, and two days off after a week do not end it.
	usual = 0.5
)

// hours has the share of recent days with a visit, for each half hour of the day.
type hours struct {
	Often [slots]float32
	// Slot is the last half hour with a visit, counted from 1970.
	Slot  int64
	Begun bool
	Any   bool // some half hour is usual
}

func slotOf(t time.Time) int64 { return t.Unix() / slotSeconds }

// visit learns of a visit at now.
func (h *hours) visit(now time.Time) {
	slot := slotOf(now)
	if slot < 0 || h.Begun && slot == h.Slot {
		return
	}
	if h.Begun {
		// Half hours without a visit; after a month nothing learned is left.
		for s := max(h.Slot+1, slot-31*slots); s < slot; s++ {
			h.Often[s%slots] *= 1 - gain
		}
	}
	h.Often[slot%slots] += gain * (1 - h.Often[slot%slots])
	h.Slot, h.Begun = slot, true
	h.count()
}

// count computes any.
func (h *hours) count() {
	h.Any = false
	for s := range int64(slots) {
		h.Any = h.Any || h.chance(s) >= usual
	}
}

// likely reports whether a visit in the half hour of t, or the next one, is usual.
func (h *hours) likely(t time.Time) bool {
	slot := slotOf(t)
	if !h.Any || slot < 0 {
		return false
	}
	// Days since the last visit count, too.
	keep := float32(1)
	for missed := slot - slots; missed > h.Slot; missed -= slots {
		if keep *= 1 - gain; keep < usual/2 {
			return false
		}
	}
	return 1-(1-keep*h.Often[slot%slots])*(1-keep*h.Often[(slot+1)%slots]) >= usual
}

// chance returns the chance of a visit in a half hour or the next one.
func (h *hours) chance(slot int64) float32 {
	return 1 - (1-h.Often[slot%slots])*(1-h.Often[(slot+1)%slots])
}
