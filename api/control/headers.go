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

// HeaderTenant is a request's tenant. From a client it counts only if the peer is trusted; the activator sends it on to
// the instance, and that to a runtime of ours.
const HeaderTenant = "X-Rouse-Tenant"

// HeaderTrusted means that the priority in a request's body counts. Only the activator sets it.
const HeaderTrusted = "X-Rouse-Trusted"

// HeaderState asks a runtime for the state of a stream, from which another instance can continue it, or carries
// one: [StateNew], or pieces separated by semicolons. Only the activator sets it.
//
// The runtime writes each event's state as a comment before it ([StateComment]). A draining instance ends the
// stream with [MovedComment]. A leading [StateScores] asks for log probabilities. On a request without a stream,
// the header means that the whole request can be retried.
const (
	HeaderState  = "X-Rouse-Stream-State"
	StateNew     = "new"
	StateComment = ": rouse-state "
	StateReplay  = "replay:" // before a state: replay its events
	StateScores  = "scores:" // before these: with log probabilities
	MovedComment = ": rouse-moved"
)

// KnownState reports whether a [HeaderState] has a state. A runtime that cannot continue must refuse then: the
// client has a part of the answer.
func KnownState(value string) bool {
	return value != "" && strings.TrimPrefix(value, StateScores) != StateNew
}

// HeaderModels has the models that requests within /invocations may name, if not all. Only the activator sets it.
const HeaderModels = "X-Rouse-Models"

// HeaderUsage asks an instance to report what an answer used: in a stream in comments ([UsageComment]), otherwise
// in this header. The report has the tokens of the prompt, of them from the cache, and generated. If the client
// left before the answer, its status is 499. Only the activator sets it.
const (
	HeaderUsage  = "X-Rouse-Usage"
	UsageComment = ": rouse-usage "
)

// HeaderResume lets a client end a stream with its instance, by "off".
const HeaderResume = "X-Rouse-Resume"

// In canonical form.
var reservedPrefixes = [...]string{"X-Rouse-", "K-", "Knative-", "Ce-"}

const headerTiming = "Server-Timing"

// Reserved reports whether only Rouse sets a header (in canonical form): it is dropped from requests of clients and
// answers of runtimes.
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

// Credential reports whether a header's reader can act as the client.
func Credential(name string) bool {
	switch dashed(name) {
	case "Authorization", "Cookie", "X-Api-Key", "Api-Key", "X-Goog-Api-Key":
		return true
	}
	return false
}

// Forwarded reports whether a header describes a request's route and client.
func Forwarded(name string) bool {
	name = dashed(name)
	switch name {
	case "Forwarded", "Via", "X-Real-Ip", "X-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip":
		return true
	}
	return strings.HasPrefix(name, "X-Forwarded-")
}

var answered = map[string]bool{
	"Cache-Control": true, "Content-Disposition": true, "Content-Encoding": true, "Content-Language": true, "Content-Length": true, "Content-Range": true, "Content-Type": true,
	"Date": true, "Etag": true, "Last-Modified": true, "Retry-After": true, "Trailer": true, "Vary": true, "Request-Id": true,
}

// Proxies or browsers obey these.
var directing = [...]string{"X-Accel-", "X-Sendfile", "X-Lighttpd-", "X-Reproxy-", "X-Permitted-Cross-Domain-Policies"}

// Answered reports whether a header of a model server's answer may reach the client. Others, such as cookies, would
// appear as the front door's own.
func Answered(name string) bool {
	begins := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
	return answered[name] || begins("Openai-") || begins("Anthropic-") || begins("X-") && !slices.ContainsFunc(directing[:], begins)
}

// Servers behind CGI and WSGI do not distinguish _ and -.
func dashed(name string) string {
	if strings.IndexByte(name, '_') < 0 {
		return name
	}
	return http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
}

// HeaderQueue carries a [Turn]: without a free slot the instance lets the request wait; without the header it
// refuses, unless others wait. Interim answers (102) have the header when the wait begins, with 0, and ends, with
// its milliseconds, which the answer repeats. Only the activator sets it.
const HeaderQueue = "X-Rouse-Queue"

// MaxTurn bounds a wait at an instance. Then the request returns to its activator's queue.
const MaxTurn = 15 * time.Second

// Aging is the extra wait that equals a step of priority.
const Aging = 10 * time.Second

// Cost is in input tokens. An output token takes a step of the model.
func Cost(input, output api.Tokens) float64 { return float64(input) + 2*float64(output) }

// NoClient is the client of requests without a turn.
const NoClient = 1

// Turn orders requests that wait for a slot of an instance. Zero: no wait.
type Turn struct {
	// Hashes of the front door's operator, 0: none, and of the client.
	Source, Client uint64
	// Higher goes first.
	Priority int
	// Most bounds the wait at the instance.
	Waited, Most time.Duration
	// Expected, in input tokens.
	Cost float64
	// If more than one.
	Sequences int
	// No interim answers: the sender would not understand them.
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

// Up and down.
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

// NewTransport is for the control plane. An address may move to another leader: resolving and dialing take at most
// a second.
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
