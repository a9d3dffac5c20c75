// Package exchange is what an agent and a front door say to one another on their
// control stream: a gRPC bidirectional stream ([Method]) whose messages are JSON
// (content-type application/grpc+json). The agent dials. Requests do not come this
// way: they have links of their own (internal/link).
//
// The life of a control stream:
//
//  1. The agent sends [Up] with Hello. The front door checks who it is, and answers [Down]
//     with Welcome, or ends the stream with a status that says what is wrong.
//  2. The agent sends every function that it may serve, then what changes. A function's
//     message is its whole state: a later one replaces it, an empty one removes it.
//  3. Each side sends a beat twice a second. The front door's answer to an agent's beat
//     renews the agent's lease, from when the agent sent that beat.
//  4. The front door sends demand, a level; the agent's places for it follow.
//  5. A function that no cluster has is created where the agent [Accepts] it: the front door sends a [Manifest], and
//     the agent answers with [Applied]. It is the agent's to refuse. Remove takes away what this front door had applied.
//  6. Who ends says so first: an agent with Leaving, a front door with GoAway.
//
// A field that a receiver does not know is ignored; what it must not ignore comes with a
// higher [Hello].Protocol, which an older front door refuses.
package exchange

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/rouse-dev/rouse/api"
)

// Method is the gRPC method of the control stream.
const Method = "/rouse.exchange.v1.Exchange/Control"

// Protocol is the version of what is said.
const Protocol = 2

// Headers of requests on a link.
const (
	// HeaderCall names one client's request; the request's own id is the client's to choose, and may be that of others.
	HeaderCall = "X-Rouse-Call"
	// HeaderAttempt orders the attempts of a call: a higher number is later.
	HeaderAttempt = "X-Rouse-Attempt"
	// HeaderFunction names the function that a request is for.
	HeaderFunction = "X-Rouse-Function"
)

// Times of a control stream.
const (
	BeatEvery = 500 * time.Millisecond
	// SilentAfter is the silence after which an agent dials anew, beside the connection that it has.
	SilentAfter = time.Second
	// Lease is how long after the sending of an answered beat an agent may begin attempts.
	Lease = 3 * time.Second
	// DeadAfter is the silence after which either side ends the connection.
	DeadAfter = 8 * time.Second
)

// Limits of what one agent may say.
const (
	MaxMessage   = 1 << 20 // bytes of one message
	MaxFunctions = 10_000
	MaxName      = 253
	MaxLabels    = 64
	MaxCount     = 1_000_000      // of requests or instances
	MaxExpected  = 24 * time.Hour // until an instance is awake
	MaxManifest  = 128 << 10      // bytes of one manifest
	MaxPatterns  = 256
	MaxWakes     = 64   // records of wakes in one message
	MaxSpans     = 256  // of one of them
	MaxWord      = 1024 // bytes of one word of them
)

// Up is a message of an agent. Any of its parts may be empty.
type Up struct {
	Hello *Hello `json:"hello,omitempty"` // in the first message only
	// Functions are those that changed.
	Functions []Function `json:"functions,omitempty"`
	// Complete says that the front door now knows all of them.
	Complete bool `json:"complete,omitempty"`
	// Beat is the number of a beat, from 1.
	Beat uint64 `json:"beat,omitempty"`
	// Leaving says that the agent takes nothing new and finishes what runs.
	Leaving bool `json:"leaving,omitempty"`
	// Way is how long a beat and its answer took, the median of the last ones.
	Way time.Duration `json:"way,omitempty"`
	// Accepts says which functions the cluster lets the front door create there; nil: as it was said before, at first none.
	Accepts *Accepts `json:"accepts,omitempty"`
	// Applied answer manifests and removals.
	Applied []Applied `json:"applied,omitempty"`
	// Doubles is how many attempts the agent has ended because a later one of the same request came.
	Doubles uint64 `json:"doubles,omitempty"`
	// Wakes are the cluster's records of wakes for which the front door's demand carried the trace.
	Wakes []Wake `json:"wakes,omitempty"`
}

// Wake is an [api.WakeTrace] on its way: without the time of day, which is of another clock.
type Wake struct {
	Function api.FunctionName `json:"function"`
	Instance api.InstanceID   `json:"instance"`
	Trace    string           `json:"trace"`
	Root     string           `json:"root"`
	Path     api.Path         `json:"path,omitempty"`
	By       api.Part         `json:"by,omitempty"`
	Cluster  string           `json:"cluster,omitempty"`
	Reason   string           `json:"reason,omitempty"`
	Total    time.Duration    `json:"total"`
	Spans    []api.Span       `json:"spans,omitempty"`
}

// WakeOf is what is said of a record: as much as a message holds.
func WakeOf(o api.WakeTrace) Wake {
	return Wake{Function: o.Function, Instance: o.Instance, Trace: o.Trace, Root: o.Root, Path: o.Path, By: o.By, Cluster: o.Cluster,
		Reason: o.Reason[:min(len(o.Reason), MaxWord)], Total: o.Total, Spans: slices.Clone(o.Spans[:min(len(o.Spans), MaxSpans)])}
}

// AsTrace is the record for whoever receives it.
func (o Wake) AsTrace() api.WakeTrace {
	return api.WakeTrace{Function: o.Function, Instance: o.Instance, Trace: o.Trace, Root: o.Root, Path: o.Path, By: o.By, Cluster: o.Cluster,
		Reason: o.Reason, Total: o.Total, Spans: o.Spans}
}

// Hello is how an agent introduces itself.
type Hello struct {
	Protocol int `json:"protocol"`
	// Cluster is the name that the front door's declarations know; Agent is this process of it.
	Cluster string `json:"cluster"`
	Agent   string `json:"agent"`
	Version string `json:"version,omitempty"`
	// Run is of this process alone: an agent of the same name and another Run is another one.
	Run string `json:"run,omitempty"`
	// Labels say where it is, as region=eu; those that the front door declares count instead.
	Labels map[string]string `json:"labels,omitempty"`
}

// Accepts is what a cluster takes of a front door. The zero value takes nothing.
type Accepts struct {
	// Functions are patterns of names, as "default/*"; none: nothing is taken.
	Functions []string `json:"functions,omitempty"`
	// Memory is the most that one instance may have there; nil: nobody knows.
	Memory *api.Memory `json:"memory,omitempty"`
}

// Applied is the answer to the [Manifest] or [Removal] of that number.
type Applied struct {
	Name   api.FunctionName `json:"name"`
	Number uint64           `json:"number"`
	// Failed says why nothing came of it; nil: it is so now.
	Failed *Failure `json:"failed,omitempty"`
}

// Function is what an agent serves: the whole state of one function.
type Function struct {
	Name api.FunctionName `json:"name"`
	// Model and Aliases are the names that clients use. An empty Model: the function is there no more.
	Model   api.ModelName   `json:"model,omitempty"`
	Aliases []api.ModelName `json:"aliases,omitempty"`
	// Adapters are the names of those that are loaded, or are as soon as they are asked for.
	Adapters []api.ModelName `json:"adapters,omitempty"`
	// Kind is the kind of its runtime, which says what APIs it speaks.
	Kind string `json:"kind,omitempty"`
	// Seq orders the states of one function: a lower one than was seen is old.
	Seq uint64 `json:"seq"`
	// State is that of the instance that takes a request soonest; [api.Gone] where there is none.
	State api.State `json:"state"`
	// Expected is the time until an instance is awake, as far as it is known; 0: it is, or nobody knows.
	Expected time.Duration `json:"expected,omitempty"`
	// Places is how many requests this front door may have there at once.
	Places int `json:"places"`
	// Running and Waiting are the requests there, of all who send some.
	Running int `json:"running,omitempty"`
	Waiting int `json:"waiting,omitempty"`
	// Concurrency is how many requests one instance takes, MaxScale how many instances there may be; 0: unbounded.
	Concurrency int `json:"concurrency,omitempty"`
	MaxScale    int `json:"maxScale,omitempty"`
	// Applied says that this front door had it created, and may have it removed.
	Applied bool `json:"applied,omitempty"`
	// Failed says why it can't start now, for clients; nil: nothing is known to keep it from starting.
	Failed *Failure `json:"failed,omitempty"`
}

// Failure is an [api.Error] on its way.
type Failure struct {
	Status     int           `json:"status"`
	Code       string        `json:"code,omitempty"`
	Message    string        `json:"message"`
	RetryAfter time.Duration `json:"retryAfter,omitempty"`
}

// Down is a message of a front door. Any of its parts may be empty.
type Down struct {
	Welcome *Welcome `json:"welcome,omitempty"` // in the first message only
	// Beat answers the agent's beat of that number.
	Beat uint64 `json:"beat,omitempty"`
	// Demand is what is wanted now, of the functions for which that changed.
	Demand []api.Demand `json:"demand,omitempty"`
	// Remove are functions that the cluster needn't have any more, Apply those that it is to have. They are carried out in the
	// order of their numbers.
	Remove []Removal  `json:"remove,omitempty"`
	Apply  []Manifest `json:"apply,omitempty"`
	// Refused says what of the agent's functions the front door does not take, and why; for people.
	Refused []Refusal `json:"refused,omitempty"`
	// GoAway says that the front door ends: the agent goes over to another, and finishes what runs here.
	GoAway bool `json:"goAway,omitempty"`
}

// Welcome is a front door's answer to a Hello.
type Welcome struct {
	Front string `json:"front"` // its name
	// Owner is the name by which it owns the functions that it has created; front doors that share their declarations
	// share it, and have certificates for the same names. Empty: Front.
	Owner   string `json:"owner,omitempty"`
	Session string `json:"session"`
	// Secret opens links to this session ([link.Hello]).
	Secret string `json:"secret"`
	// Fronts are the addresses of all front doors, host:port, this one's included.
	Fronts []string `json:"fronts,omitempty"`
}

// Manifest is a function that a cluster is to have, as it was declared at the front door.
type Manifest struct {
	Name   api.FunctionName `json:"name"`
	Number uint64           `json:"number"`
	YAML   string           `json:"yaml"`
}

// Removal is a function that the front door had created, and wants no more.
type Removal struct {
	Name   api.FunctionName `json:"name"`
	Number uint64           `json:"number"`
}

// Refusal says what is not taken.
type Refusal struct {
	Function api.FunctionName `json:"function"`
	Reason   string           `json:"reason"`
}

// Validate reports what of a message is wrong, whoever sent it. It bounds what a receiver keeps.
func (u *Up) Validate() error {
	if len(u.Functions) > MaxFunctions {
		return fmt.Errorf("exchange: %d functions in one message: want at most %d", len(u.Functions), MaxFunctions)
	}
	if u.Hello != nil {
		if err := u.Hello.Validate(); err != nil {
			return err
		}
	}
	if u.Way < 0 {
		return fmt.Errorf("exchange: a way of %s: want 0 or more", u.Way)
	}
	for i := range u.Functions {
		if err := u.Functions[i].Validate(); err != nil {
			return err
		}
	}
	if len(u.Wakes) > MaxWakes {
		return fmt.Errorf("exchange: %d wakes in one message: want at most %d", len(u.Wakes), MaxWakes)
	}
	for i := range u.Wakes {
		if err := validWake(&u.Wakes[i]); err != nil {
			return err
		}
	}
	if u.Accepts != nil && len(u.Accepts.Functions) > MaxPatterns {
		return fmt.Errorf("exchange: %d patterns of functions: want at most %d", len(u.Accepts.Functions), MaxPatterns)
	}
	return nil
}

// validWake reports what of the record of a wake is wrong.
func validWake(o *Wake) error {
	words := []string{string(o.Function), string(o.Instance), o.Trace, o.Root, string(o.Path), string(o.By), o.Cluster, o.Reason}
	wrong := len(o.Spans) > MaxSpans || o.Total < 0 || o.Total > MaxExpected
	for _, s := range o.Spans {
		words = append(words, s.ID, s.Parent, s.Name, string(s.Part), string(s.Who), s.Note)
		wrong = wrong || s.After < 0 || s.After > MaxExpected || s.Took < 0 || s.Took > MaxExpected
	}
	if wrong || slices.ContainsFunc(words, func(w string) bool { return len(w) > MaxWord }) {
		return fmt.Errorf("exchange: the record of a wake of %.100s is over its bounds: want at most %d spans, durations from 0 to %s, and words of at most %d bytes", o.Function, MaxSpans, MaxExpected, MaxWord)
	}
	return nil
}

// Validate reports what of a message is wrong, whoever sent it. It bounds what a receiver keeps.
func (d *Down) Validate() error {
	for _, m := range d.Apply {
		switch {
		case m.Name == "" || len(m.Name) > 2*MaxName+1:
			return errors.New("exchange: a manifest has no name, or one that is too long")
		case len(m.YAML) > MaxManifest:
			return fmt.Errorf("exchange: the manifest of %s has %d bytes: want at most %d", m.Name, len(m.YAML), MaxManifest)
		}
	}
	for _, r := range d.Remove {
		if r.Name == "" || len(r.Name) > 2*MaxName+1 {
			return errors.New("exchange: a removal has no name, or one that is too long")
		}
	}
	return nil
}

// FailureOf is what is said of an error: an [api.Error], whatever wraps it.
func FailureOf(err error) *Failure {
	e := api.AsError(err)
	return &Failure{Status: e.Status, Code: e.Code, Message: e.Message, RetryAfter: e.RetryAfter}
}

// AsError is the failure for whoever asked.
func (f *Failure) AsError() *api.Error {
	status := f.Status
	if status < http.StatusBadRequest || status > 599 { // the agent's to say, and a client's to see
		status = http.StatusServiceUnavailable
	}
	e := api.Errorf(status, f.Code, "%s", f.Message)
	e.RetryAfter = f.RetryAfter
	return e
}

// Validate reports the first field that is wrong, and what it should be.
func (h *Hello) Validate() error {
	switch {
	case h.Protocol != Protocol:
		return fmt.Errorf("exchange: protocol %d: this front door speaks %d: use the same version of Rouse at both sides", h.Protocol, Protocol)
	case h.Cluster == "" || len(h.Cluster) > MaxName:
		return errors.New("exchange: the cluster has no name, or one of more than 253 bytes")
	case h.Agent == "" || len(h.Agent) > MaxName:
		return errors.New("exchange: the agent has no name, or one of more than 253 bytes")
	case strings.ContainsFunc(h.Cluster+h.Agent, func(r rune) bool { return r <= ' ' || r > '~' }): // they go into headers
		return fmt.Errorf("exchange: the cluster %q or the agent %q has a name with spaces, or with characters that are not ASCII", h.Cluster, h.Agent)
	case len(h.Run) > MaxName || len(h.Version) > MaxName:
		return errors.New("exchange: the agent has a version or a run of more than 253 bytes")
	case len(h.Labels) > MaxLabels:
		return fmt.Errorf("exchange: %d labels: want at most %d", len(h.Labels), MaxLabels)
	}
	for k, v := range h.Labels {
		if len(k) > MaxName || len(v) > MaxName {
			return errors.New("exchange: a label of more than 253 bytes")
		}
	}
	return nil
}

// Validate reports the first field that is wrong, and what it should be.
func (f *Function) Validate() error {
	if f.Name == "" || len(f.Name) > 2*MaxName+1 || strings.ContainsFunc(string(f.Name), unicode.IsControl) {
		return errors.New("exchange: a function has no name, one that is too long, or one with control characters")
	}
	for _, names := range [][]api.ModelName{{f.Model}, f.Aliases, f.Adapters} {
		for _, n := range names {
			if strings.ContainsFunc(string(n), unicode.IsControl) {
				return fmt.Errorf("exchange: function %q: the name %q has control characters", f.Name, n)
			}
			if len(n) > MaxName {
				return fmt.Errorf("exchange: function %s: a name of %d bytes: want at most %d", f.Name, len(n), MaxName)
			}
		}
	}
	for _, n := range []int{f.Places, f.Running, f.Waiting, f.Concurrency, f.MaxScale} {
		if n > MaxCount {
			return fmt.Errorf("exchange: function %s: a number of %d: want at most %d", f.Name, n, MaxCount)
		}
	}
	if f.Expected > MaxExpected {
		return fmt.Errorf("exchange: function %s: awake in %s: want at most %s", f.Name, f.Expected, MaxExpected)
	}
	if f.Places < 0 || f.Running < 0 || f.Waiting < 0 || f.Concurrency < 0 || f.MaxScale < 0 || f.Expected < 0 {
		return fmt.Errorf("exchange: function %s: a number below 0", f.Name)
	}
	return nil
}
