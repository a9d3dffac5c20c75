package kernel

import (
	"os"
	"strings"
	"testing"
)

func TestLimited(t *testing.T) {
	top := level(len(levelNames) - 1)
	for has := range top + 1 {
		if got, err := limited(has, ""); got != has || err != nil {
			t.Errorf("limited(%s, \"\"): got %s, %v", has, got, err)
		}
		for limit := range top + 1 {
			if got, err := limited(has, limit.String()); got != min(has, limit) || err != nil {
				t.Errorf("limited(%s, %q): got %s, %v, want %s", has, limit, got, err, min(has, limit))
			}
		}
	}
	got, err := limited(top, "sse")
	if got != top || err == nil || !strings.Contains(err.Error(), `"sse": want generic`) {
		t.Errorf(`limited(%s, "sse"): got %s, %v, want %s and an error that says what may be said`, top, got, err, top)
	}
}

// TestFeatures checks that tests on an emulated processor use the features that it is emulated for.
func TestFeatures(t *testing.T) {
	want := os.Getenv("ROUSE_CPU_MUST")
	if want == "" {
		t.Skip("ROUSE_CPU_MUST does not say which instructions this processor has")
	}
	if got, err := Features(); got != want || err != nil {
		t.Errorf("Features(): got %s, %v, want %s", got, err, want)
	}
}
