package api

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// ParseDuration is [time.ParseDuration] that also knows weeks and days, of 24 hours, before the other units: 2w, 3d12h.
func ParseDuration(text string) (time.Duration, error) {
	wrong := errors.New("want a duration with a unit, such as 90s, 10m, 12h, 3d or 2w")
	var sum time.Duration
	rest := text
	for _, u := range []struct {
		name string
		time.Duration
	}{{"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}} {
		number, after, found := strings.Cut(rest, u.name)
		if !found {
			continue
		}
		n, err := strconv.ParseUint(number, 10, 63)
		if err != nil || time.Duration(n) > (math.MaxInt64-sum)/u.Duration {
			return 0, wrong
		}
		if sum, rest = sum+time.Duration(n)*u.Duration, after; rest == "" {
			return sum, nil
		}
	}
	d, err := time.ParseDuration(rest)
	if err != nil || rest != text && (d < 0 || d > math.MaxInt64-sum) {
		return 0, wrong
	}
	return sum + d, nil
}
