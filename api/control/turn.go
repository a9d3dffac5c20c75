package control

import (
	"errors"
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
	b := make([]byte, 0, 64)
	b = strconv.AppendUint(b, t.Client, 16)
	b = strconv.AppendInt(append(b, ' '), int64(t.Priority), 10)
	b = strconv.AppendInt(append(b, ' '), t.Waited.Milliseconds(), 10)
	b = strconv.AppendInt(append(b, ' '), max(t.Most.Milliseconds(), 0), 10)
	b = strconv.AppendFloat(append(b, ' '), t.Cost, 'f', 0, 64)
	if t.Sequences > 1 { // instances of versions before don't know it
		b = strconv.AppendInt(append(b, ' '), int64(t.Sequences), 10)
	}
	return string(b)
}

// TakeTurn removes [HeaderQueue] from h and returns its value. An unreadable one counts as none: the request does not
// wait.
func TakeTurn(h http.Header) Turn {
	v := h[HeaderQueue]
	delete(h, HeaderQueue)
	if len(v) != 1 {
		return Turn{}
	}
	t, _ := parseTurn(v[0])
	return t
}

func parseTurn(v string) (Turn, bool) {
	f := strings.Split(v, " ")
	if len(f) == 5 {
		f = append(f, "0")
	}
	if len(f) != 6 {
		return Turn{}, false
	}
	client, err1 := strconv.ParseUint(f[0], 16, 64)
	priority, err2 := strconv.Atoi(f[1])
	waited, err3 := strconv.ParseUint(f[2], 10, 40)
	most, err4 := strconv.ParseUint(f[3], 10, 40)
	cost, err5 := strconv.ParseUint(f[4], 10, 40)
	sequences, err6 := strconv.ParseUint(f[5], 10, 31)
	if errors.Join(err1, err2, err3, err4, err5, err6) != nil || client <= NoClient || priority < -100 || priority > 100 {
		return Turn{}, false
	}
	return Turn{Client: client, Priority: priority, Waited: time.Duration(waited) * time.Millisecond, Most: time.Duration(most) * time.Millisecond, Cost: float64(cost), Sequences: int(sequences)}, true
}
