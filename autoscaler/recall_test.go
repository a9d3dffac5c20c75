package autoscaler

import (
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// remembered recalls the same of every function.
type remembered Times

func (r remembered) Recall(api.Function) Times { return Times(r) }

// TestRecalled: a function begins with what was learned before; what can't be true is not believed.
func TestRecalled(t *testing.T) {
	a := &Autoscaler{cfg: Config{Memory: remembered{Load: 3 * time.Second, Wake: [3]time.Duration{time.Hour, 20 * time.Millisecond, -1}, Sleep: 48 * time.Hour}}}
	got := a.recall(api.Function{}).experience()
	if got.Load != 3*time.Second || got.Wake[api.Level1] != 20*time.Millisecond || got.Wake[api.Level2] != 0 || got.Wake[0] != 0 || got.Sleep != 0 || got.Starts != 0 {
		t.Errorf("it begins with %+v", got)
	}
	if got := (&Autoscaler{}).recall(api.Function{}).experience(); got.Load != 0 {
		t.Errorf("without a memory it begins with %+v", got)
	}
}
