package decide

import (
	"fmt"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// levelGain is the share of level 1's time that level 2 must stay below to be chosen.
const levelGain = 0.8

// level returns the level that f's instances sleep at: as declared, else the one where sleep and wake together were measured to take less. It is level 1 unless
// level 2 takes a fifth less: level 2 has to read the weights again and is faster only in special cases, such as with LoRA adapters.
func (f *function) level() api.Level {
	if one, two := f.around(api.Level1), f.around(api.Level2); !f.Spec.FixedLevel && f.Spec.SleepLevel <= api.Level1 && one > 0 && two > 0 && float64(two) < levelGain*float64(one) {
		return api.Level2
	}
	return max(api.Level1, f.Spec.SleepLevel)
}

// around returns the duration of a sleep at level and the wake after it; 0 if one of them was not measured.
func (f *function) around(level api.Level) time.Duration {
	rest, wake := f.Past.Rests[level], f.Past.Wake[level]
	if rest <= 0 || wake <= 0 {
		return 0
	}
	return rest + wake
}

// nextLevel returns the level for an instance that sleeps because it is idle, and a part of the reason. Level 2 is tried in such a sleep, for functions with
// adapters.
func (f *function) nextLevel() (level api.Level, why string) {
	level = f.level()
	one, two := f.around(api.Level1), f.around(api.Level2)
	kind := f.Spec.Runtime.Kind
	switch {
	case f.Spec.FixedLevel:
		return level, ""
	case level == api.Level2 && one > 0 && two > 0:
		return level, fmt.Sprintf("; level 2, because sleep and wake take %s there and %s at level 1", short(two), short(one))
	case level == api.Level1 && one > 0 && f.Past.Wake[api.Level2] == 0 && len(f.Spec.Runtime.Adapters) > 0 && (kind == api.RuntimeVLLM || kind == api.RuntimeSGLang):
		return api.Level2, fmt.Sprintf("; level 2, to see whether it is quicker with adapters than level 1, where sleep and wake take %s", short(one))
	}
	return level, ""
}
