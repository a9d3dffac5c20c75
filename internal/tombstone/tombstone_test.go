package tombstone

import (
	"strconv"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

func TestHolds(t *testing.T) {
	now := time.Unix(1000, 0)
	var s Set
	s.Add("ended", 7, time.Time{})
	s.Add("soon", 7, now.Add(time.Second))
	for _, tt := range []struct {
		id   api.InstanceID
		seq  uint64
		now  time.Time
		want bool
	}{
		{"unknown", 0, now, false},
		{"ended", 7, now, true},
		{"ended", 7, now.Add(time.Hour), true},
		{"ended", 8, now, false},
		{"soon", 7, now, true},
		{"soon", 8, now, false},
		{"soon", 7, now.Add(time.Second), false},
	} {
		if got := s.Holds(tt.id, tt.seq, tt.now); got != tt.want {
			t.Errorf("Holds(%s, %d, %s): got %t, want %t", tt.id, tt.seq, tt.now.Sub(now), got, tt.want)
		}
	}
}

func TestOldestAreForgotten(t *testing.T) {
	var s Set
	for n := range 3 * most {
		s.Add(api.InstanceID(strconv.Itoa(n)), 1, time.Time{})
	}
	holds := func(n int) bool { return s.Holds(api.InstanceID(strconv.Itoa(n)), 1, time.Now()) }
	if holds(0) || !holds(2*most) || !holds(3*most-1) {
		t.Errorf("got first %t, last of the generation before %t, last %t, want false, true, true", holds(0), holds(2*most), holds(3*most-1))
	}
	if got := len(s.now) + len(s.before); got > 2*most {
		t.Errorf("got %d tombstones, want %d at most", got, 2*most)
	}
}
