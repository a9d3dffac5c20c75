package metrics

import "testing"

func TestTiming(t *testing.T) {
	got := Timing{Hold: 12_345_678, Wake: 10_000_000, Queue: 2_345_678, First: 999}.String()
	if want := "hold;dur=12.345, wake;dur=10, queue;dur=2.345, ttft;dur=0"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
