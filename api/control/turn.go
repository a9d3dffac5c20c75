package control

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// HeaderQueue carries the place of a request in the order of an instance's slots, a [Turn]. Only the activator sets it.
// An instance without a free slot lets such a request wait for its turn, beside those of other activators. It refuses
// one without the header at once, unless others wait. Interim answers (102) have the header when the wait begins, with
// 0, and when it ends, with its milliseconds, which the answer repeats.
const HeaderQueue = "X-Rouse-Queue"

// MaxTurn is the longest wait for a turn at an instance. Then the request is refused as busy, and returns to its place
// in its activator's queue.
const MaxTurn = 15 * time.Second

// Aging is the extra wait after which a request goes before one whose priority is a step higher.
const Aging = 10 * time.Second

// Cost returns a request's cost to its client, in input tokens. An output token takes a step of the model of its own.
func Cost(input, output api.Tokens) float64 { return float64(input) + 2*float64(output) }

// NoClient is the [Turn.Client] of all requests without a turn.
const NoClient = 1

// Turn orders the requests that wait for a slot of an instance. The zero value: the request does not wait.
type Turn struct {
	// Client is a hash of the request's client.
	Client uint64
	// Priority: higher goes first.
	Priority int
	// Waited is how long the request has waited so far. Most is how long it may wait at the instance.
	Waited, Most time.Duration
	// Cost is the expected cost, in input tokens.
	Cost float64
	// Sequences is how many sequences the model computes for the request, if it is more than one.
	Sequences int
}

// String returns the value of [HeaderQueue].
func (t Turn) String() string {
	v := fmt.Sprintf("%x %d %d %d %.0f", t.Client, t.Priority, t.Waited.Milliseconds(), max(t.Most.Milliseconds(), 0), t.Cost)
	if t.Sequences > 1 { // instances of versions before don't know it
		v += fmt.Sprint(" ", t.Sequences)
	}
	return v
}

// TakeTurn removes [HeaderQueue] from h and returns its value. An unreadable one counts as none: the request does not
// wait.
func TakeTurn(h http.Header) (t Turn) {
	v := h[HeaderQueue]
	delete(h, HeaderQueue)
	if len(v) != 1 {
		return t
	}
	f := strings.Split(v[0], " ")
	client, err := strconv.ParseUint(f[0], 16, 64)
	var n [5]int64 // the other fields; the last may be missing
	for i, text := range f[1:] {
		if i == len(n) {
			return t
		}
		var bad error
		n[i], bad = strconv.ParseInt(text, 10, 41)
		err = cmp.Or(err, bad)
	}
	if least := slices.Min(n[1:]); err != nil || len(f) < len(n) || client <= NoClient || least < 0 || max(n[0], -n[0]) > 100 {
		return t
	}
	return Turn{Client: client, Priority: int(n[0]), Waited: time.Duration(n[1]) * time.Millisecond, Most: time.Duration(n[2]) * time.Millisecond, Cost: float64(n[3]), Sequences: int(n[4])}
}
