package decide

import (
	"fmt"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// levelGain is the part of the time at level 1 that level 2 must stay below to be chosen.
const levelGain = 0.8

// level is how deep f's instances sleep: as deep as it says, else where a sleep and the wake after it were measured to take less together.
// Level 1 unless level 2 takes a fifth less: that has to read the weights again, and is the quicker one only in special cases, such as with LoRA adapters.
func (f *Function) level() api.Level {
	if one, two := f.around(api.Level1), f.around(api.Level2); !f.Spec.FixedLevel && f.Spec.SleepLevel <= api.Level1 && one > 0 && two > 0 && float64(two) < levelGain*float64(one) {
		return api.Level2
	}
	return max(api.Level1, f.Spec.SleepLevel)
}

// around is what a sleep at level and the wake after it take; 0 while one of them was not measured.
func (f *Function) around(level api.Level) time.Duration {
	rest, wake := f.Past.Rests[level], f.Past.Wake[level]
	if rest <= 0 || wake <= 0 {
		return 0
	}
	return rest + wake
}

// nextLevel is [Function.level] for an instance that goes to sleep because it is idle, and a part of the reason: such a sleep of a function with adapters is the one
// that level 2 is tried in.
func (f *Function) nextLevel() (level api.Level, why string) {
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
