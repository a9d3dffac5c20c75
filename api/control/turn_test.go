package control

import (
	"net/http"
	"testing"
	"time"
)

func TestTurn(t *testing.T) {
	t.Parallel()
	for _, turn := range []Turn{{Client: 2, Quiet: true}, {Client: 2, Sequences: 2048}, {Source: 7, Client: 1<<64 - 1, Priority: -8, Waited: 1500 * time.Millisecond, Most: time.Second, Cost: 1234}} {
		h := http.Header{HeaderQueue: {turn.String()}}
		if got := TakeTurn(h); got != turn || len(h) != 0 {
			t.Errorf("%s is read as %+v and %v is left", turn, got, h)
		}
	}
	for _, v := range []string{"", "2", "0 2 100 0 0", "0 1 100 0 0 0 0", "0 0 100 0 0 0 0", "0 g 100 0 0 0 0", "g 2 100 0 0 0 0", "0 2 a 0 0 0 0", "0 2 201 0 0 0 0", "0 2 -1 0 0 0 0", "0 2 100 -1 0 0 0", "0 2 100 0 -1 0 0", "0 2 100 0 0 -1 0",
		"0 2 100 0 0 1 1 ", "0 2 100 0 0 1", "0 2 100 0 0 0 -1", "0 2 100 99999999999999999999 1 1 0"} {
		if got := TakeTurn(http.Header{HeaderQueue: {v}}); got != (Turn{}) {
			t.Errorf("%q is read as %+v", v, got)
		}
	}
	if got := TakeTurn(http.Header{HeaderQueue: {"0 3 100 0 0 0 0", "0 2 100 0 0 0 0"}}); got != (Turn{}) {
		t.Errorf("two values are read as %+v", got)
	}
}
