package kernel

import (
	"os"
	"testing"
)

func TestLimited(t *testing.T) {
	for _, tt := range []struct {
		has   level
		limit string
		want  level
	}{
		{avx512, "", avx512}, {avx512, "avx2", avx2}, {avx2, "avx512", avx2}, {avx2, "generic", generic}, {generic, "avx2", generic},
	} {
		if got, err := limited(tt.has, tt.limit); got != tt.want || err != nil {
			t.Errorf("limited(%s, %q): got %s, %v, want %s", tt.has, tt.limit, got, err, tt.want)
		}
	}
	if got, err := limited(avx2, "sse"); got != avx2 || err == nil {
		t.Errorf(`limited(avx2, "sse"): got %s, %v, want avx2 and an error`, got, err)
	}
}

// TestFeatures sees to it that tests on an emulated processor use what they are there for.
func TestFeatures(t *testing.T) {
	want := os.Getenv("ROUSE_CPU_MUST")
	if want == "" {
		t.Skip("ROUSE_CPU_MUST does not say which instructions this processor has")
	}
	if got, err := Features(); got != want || err != nil {
		t.Errorf("Features(): got %s, %v, want %s", got, err, want)
	}
}
