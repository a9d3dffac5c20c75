package api

import (
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "-1h": -time.Hour, "0": 0, "3d": 3 * day, "2w": 14 * day, "1w2d3h": 9*day + 3*time.Hour, "106751d": 106751 * day,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%s: got %s (%v), want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "d", "3", "1.5d", "-3d", "3d-1h", "2d1w", "3days", "106752d", "106751d24h", "15250w9d", "99999999999999999999d"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q: got %s, want an error", text, got)
		}
	}
}
