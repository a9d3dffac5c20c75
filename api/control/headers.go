package control

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// HeaderTenant is the tenant of a request: from a trusted peer to the activator, on to the instance, and to a
// runtime of ours.
const HeaderTenant = "X-Rouse-Tenant"

// HeaderTrusted means that the priority in a request's body counts. Only the activator sets it.
const HeaderTrusted = "X-Rouse-Trusted"

// HeaderState asks a runtime for the state of a stream, from which another instance can continue it, or carries
// such a state. Only the activator sets it. Its value is [StateNew] or the pieces of a state, separated by
// semicolons.
//
// The runtime writes the state of each event as a comment before it, a line that begins with [StateComment]. A
// draining instance ends such a stream with [MovedComment]; the end of the connection after it is no failure. A
// leading [StateScores] asks for log probabilities in the state, for events that are replayed with theirs. On a
// request without a stream, the header means that the whole request can be retried.
const (
	HeaderState  = "X-Rouse-Stream-State"
	StateNew     = "new"
	StateComment = ": rouse-state "
	StateReplay  = "replay:" // before a state: replay its events
	StateScores  = "scores:" // before these: with log probabilities
	MovedComment = ": rouse-moved"
)

// KnownState reports whether a value of [HeaderState] contains a state to continue from. A runtime that cannot
// continue must refuse then: the client has received a part of the answer.
func KnownState(value string) bool {
	return value != "" && strings.TrimPrefix(value, StateScores) != StateNew
}

// HeaderModels lists the models and adapters that requests in a call of /invocations may name, one per value, if
// its client may not use all. Only the activator sets it.
const HeaderModels = "X-Rouse-Models"

// HeaderUsage asks an instance to report what an answer used. Only the activator sets it. In a stream the report is
// in comments, lines that begin with [UsageComment]; otherwise in the same header: the tokens of the prompt, those
// of them from the cache, and those generated so far, separated by spaces. An instance whose client left before the
// answer reports them with status 499.
const (
	HeaderUsage  = "X-Rouse-Usage"
	UsageComment = ": rouse-usage "
)

// HeaderResume is set by clients: with "off", a stream ends with an error if its instance ends.
const HeaderResume = "X-Rouse-Resume"

// Headers that Rouse, Knative and CloudEvents set themselves, in canonical form.
var reservedPrefixes = [...]string{"X-Rouse-", "K-", "Knative-", "Ce-"}

// Only Rouse sets it in answers.
const headerTiming = "Server-Timing"

// Reserved reports whether only Rouse sets a header, given its canonical name: it is dropped from requests of
// clients and answers of runtimes.
func Reserved(name string) bool {
	name = dashed(name)
	switch name[:min(len(name), 1)] {
	case "X", "K", "C":
		for _, prefix := range reservedPrefixes {
			if strings.HasPrefix(name, prefix) {
				return true
			}
		}
	case "S":
		return name == headerTiming
	}
	return false
}

// Credential reports whether a header, given its canonical name, lets its reader act as the client.
func Credential(name string) bool {
	switch dashed(name) {
	case "Authorization", "Cookie", "X-Api-Key", "Api-Key", "X-Goog-Api-Key":
		return true
	}
	return false
}

// Forwarded reports whether a header, given its canonical name, describes a request's route and client.
func Forwarded(name string) bool {
	name = dashed(name)
	switch name {
	case "Forwarded", "Via", "X-Real-Ip", "X-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip":
		return true
	}
	return strings.HasPrefix(name, "X-Forwarded-")
}

// answered are the headers of a model server's answer that reach the client.
var answered = map[string]bool{
	"Cache-Control": true, "Content-Disposition": true, "Content-Encoding": true, "Content-Language": true, "Content-Length": true, "Content-Range": true, "Content-Type": true,
	"Date": true, "Etag": true, "Last-Modified": true, "Retry-After": true, "Trailer": true, "Vary": true, "Request-Id": true,
}

// directing are prefixes of headers that proxies or browsers obey.
var directing = [...]string{"X-Accel-", "X-Sendfile", "X-Lighttpd-", "X-Reproxy-", "X-Permitted-Cross-Domain-Policies"}

// Answered reports whether a header of a model server's answer, given its canonical name, may reach the client.
// Others, such as cookies, would appear as the front door's own.
func Answered(name string) bool {
	begins := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
	return answered[name] || begins("Openai-") || begins("Anthropic-") || begins("X-") && !slices.ContainsFunc(directing[:], begins)
}

// dashed returns name as servers read it that do not distinguish _ and -, such as those behind CGI and WSGI.
func dashed(name string) string {
	if strings.IndexByte(name, '_') < 0 {
		return name
	}
	return http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
}

// HeaderQueue carries a [Turn], the place of a request in the order of an instance's slots. Only the activator sets
// it. An instance without a free slot lets such a request wait for its turn; one without the header it refuses at
// once, unless others wait. Interim answers (102) have the header when the wait begins, with 0, and when it ends,
// with its milliseconds, which the answer repeats.
const HeaderQueue = "X-Rouse-Queue"

// MaxTurn is the longest wait for a turn at an instance. Then the request is refused as busy, and returns to its
// activator's queue.
const MaxTurn = 15 * time.Second

// Aging is the extra wait after which a request goes before one of a priority one step higher.
const Aging = 10 * time.Second

// Cost returns a request's cost to its client, in input tokens. An output token takes a step of the model.
func Cost(input, output api.Tokens) float64 { return float64(input) + 2*float64(output) }

// NoClient is the [Turn.Client] of all requests without a turn.
const NoClient = 1

// Turn orders the requests that wait for a slot of an instance. Zero: the request does not wait.
type Turn struct {
	// Source is a hash of the operator of the request's front door; 0: none. Client is a hash of the client.
	Source, Client uint64
	// Higher goes first.
	Priority int
	// Waited is how long the request has waited, Most how long it may wait at the instance.
	Waited, Most time.Duration
	// Cost is expected, in input tokens.
	Cost float64
	// Sequences is how many sequences the model computes, if more than one.
	Sequences int
	// Quiet asks for no interim answers, which the sender would not understand.
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

// TakeTurn removes [HeaderQueue] from h and returns its value. An unreadable one counts as none.
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

// NewTransport returns a transport for calls to the control plane that keeps up to idle connections. An address may
// move to another leader: name resolution and dialing take at most a second.
func NewTransport(idle int) *http.Transport {
	t := api.NewTransport(idle)
	dial := t.DialContext
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return dial(ctx, network, address)
	}
	return t
}
