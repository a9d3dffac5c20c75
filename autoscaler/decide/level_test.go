package decide

import (
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// TestLevel: how deep an idle instance sleeps follows what was measured; the published times are those of vLLM with LoRA (vllm-project/vllm#48337).
func TestLevel(t *testing.T) {
	second := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	for _, tc := range []struct {
		name string
		edit func(f *Function)
		want api.Level
		says string
	}{
		{"nothing measured", func(*Function) {}, api.Level1, ""},
		{"level 2 is quicker", func(f *Function) {
			f.Past.Rests, f.Past.Wake = [4]time.Duration{0, second(8), second(1)}, [4]time.Duration{0, second(4.8), second(5.8)}
		}, api.Level2, "level 2, because sleep and wake take 6.8s there and 13s at level 1"},
		{"level 2 is hardly quicker", func(f *Function) {
			f.Past.Rests, f.Past.Wake = [4]time.Duration{0, second(1), second(1)}, [4]time.Duration{0, second(5), second(4.5)}
		}, api.Level1, ""},
		{"level 2 is quicker, and the function says 1", func(f *Function) {
			f.Past.Rests, f.Past.Wake = [4]time.Duration{0, second(8), second(1)}, [4]time.Duration{0, second(4.8), second(5.8)}
			f.Spec.FixedLevel = true
		}, api.Level1, ""},
		{"level 1 is quicker, and the function says 2", func(f *Function) {
			f.Past.Rests, f.Past.Wake = [4]time.Duration{0, second(1), second(1)}, [4]time.Duration{0, second(1), second(9)}
			f.Spec.FixedLevel, f.Spec.SleepLevel = true, api.Level2
		}, api.Level2, ""},
		{"with adapters level 2 is tried", func(f *Function) {
			f.Past.Rests, f.Past.Wake = [4]time.Duration{0, second(8)}, [4]time.Duration{0, second(4.8)}
			f.Spec.Runtime.Kind, f.Spec.Runtime.Adapters = api.RuntimeVLLM, []api.Adapter{{Name: "a"}}
		}, api.Level2, "to see whether it is quicker with adapters"},
		{"but not of a runtime that stops its process for it", func(f *Function) {
			f.Past.Rests, f.Past.Wake = [4]time.Duration{0, second(8)}, [4]time.Duration{0, second(4.8)}
			f.Spec.Runtime.Adapters = []api.Adapter{{Name: "a"}}
		}, api.Level1, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := job("f", 0)
			f.LastRequest = dawn
			tc.edit(&f)
			awake := one(&f, "f-1", api.Awake, dawn)
			actions, _ := planned(dawn.Add(2*time.Minute), []Function{f}, []Instance{awake})
			if len(actions) != 1 || actions[0].Kind != Sleep || actions[0].Level != tc.want || !strings.Contains(actions[0].Reason, tc.says) {
				t.Errorf("got %v, want a sleep at level %d that says %q", actions, tc.want, tc.says)
			}
		})
	}
}
