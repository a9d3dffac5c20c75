package control

import (
	"net/http"
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
	// Source is a hash of the operator of the front door that the request comes from; 0: its client comes directly.
	// Client is a hash of the client.
	Source, Client uint64
	// Priority: higher goes first.
	Priority int
	// Waited is how long the request has waited so far. Most is how long it may wait at the instance.
	Waited, Most time.Duration
	// Cost is the expected cost, in input tokens.
	Cost float64
	// Sequences is how many sequences the model computes for the request, if it is more than one.
	Sequences int
	// Quiet asks for no interim answers: who sends the request would not understand them.
	Quiet bool
}

// String returns the value of [HeaderQueue].
func (t Turn) String() string {
	b := strconv.AppendUint(make([]byte, 0, 80), t.Source, 16)
	b = strconv.AppendUint(append(b, ' '), t.Client, 16)
	for _, n := range []int64{int64(t.Priority) + anyPriority, t.Waited.Milliseconds(), max(t.Most.Milliseconds(), 0), int64(t.Cost), int64(t.Sequences)} {
		b = strconv.AppendInt(append(b, ' '), n, 10)
	}
	if t.Quiet {
		b = append(b, " quiet"...)
	}
	return string(b)
}

// anyPriority bounds priorities, up and down.
const anyPriority = 100

// TakeTurn removes [HeaderQueue] from h and returns its value. An unreadable one counts as none: the request does not
// wait.
func TakeTurn(h http.Header) Turn {
	v := h[HeaderQueue]
	delete(h, HeaderQueue)
	list, quiet := strings.CutSuffix(strings.Join(v, " "), " quiet")
	f := strings.Split(list, " ")
	var n [7]uint64
	if len(f) != len(n) {
		return Turn{}
	}
	for i := range n {
		base, bits := 10, 40
		if i < 2 {
			base, bits = 16, 64
		}
		var err error
		if n[i], err = strconv.ParseUint(f[i], base, bits); err != nil {
			return Turn{}
		}
	}
	if n[1] <= NoClient || n[2] > 2*anyPriority {
		return Turn{}
	}
	return Turn{Source: n[0], Client: n[1], Priority: int(n[2]) - anyPriority, Waited: time.Duration(n[3]) * time.Millisecond, Most: time.Duration(n[4]) * time.Millisecond, Cost: float64(n[5]), Sequences: int(n[6]), Quiet: quiet}
}
