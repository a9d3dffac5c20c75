package names_test

import (
	"testing"

	"github.com/rouse-dev/rouse/internal/names"
)

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b        string
		limit, want int
	}{
		{"", "", 3, 0}, {"pico", "pico", 3, 0}, {"pica", "pico", 3, 1}, {"pco", "pico", 3, 1}, {"", "abc", 3, 3},
		{"kitten", "sitting", 3, 3}, {"sitting", "kitten", 9, 3},
	} {
		if got := names.Distance(tt.a, tt.b, tt.limit); got != tt.want {
			t.Errorf("Distance(%q, %q, %d) = %d, want %d", tt.a, tt.b, tt.limit, got, tt.want)
		}
	}
	for _, far := range [][2]string{{"kitten", "sitting"}, {"a", "abcdef"}} {
		if got := names.Distance(far[0], far[1], 2); got <= 2 {
			t.Errorf("Distance(%q, %q, 2) = %d, want more than the limit", far[0], far[1], got)
		}
	}
}
