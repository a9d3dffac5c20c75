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
//  5. Who ends says so first: an agent with Leaving, a front door with GoAway.
//
// A field that a receiver does not know is ignored; what it must not ignore comes with a
// higher [Hello].Protocol, which an older front door refuses.
package exchange

import (
	"errors"
	"fmt"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Method is the gRPC method of the control stream.
const Method = "/rouse.exchange.v1.Exchange/Control"

// Protocol is the version of what is said.
const Protocol = 1

// Headers of requests on a link.
const (
	// HeaderCall names one client's request; the request's own id is the client's to choose, and may be that of others.
	HeaderCall = "X-Rouse-Call"
	// HeaderAttempt orders the attempts of a call: a higher number is later.
	HeaderAttempt = "X-Rouse-Attempt"
	// HeaderFunction names the function that a request is for.
	HeaderFunction = "X-Rouse-Function"
	// HeaderAgent names the agent that a request is for, between two front doors: the second passes it on, or gives it back.
	HeaderAgent = "X-Rouse-Agent"
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
	// Doubles is how many attempts the agent has ended because a later one of the same request came.
	Doubles uint64 `json:"doubles,omitempty"`
}

// Hello is how an agent introduces itself.
type Hello struct {
	Protocol int `json:"protocol"`
	// Cluster is the name that the front door's declarations know; Agent is this process of it.
	Cluster string `json:"cluster"`
	Agent   string `json:"agent"`
	Version string `json:"version,omitempty"`
	// Labels say where it is, as region=eu; those that the front door declares count instead.
	Labels map[string]string `json:"labels,omitempty"`
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
	// Apply are manifests of functions that the cluster is to have, Remove names those that it needn't have any more.
	Apply  []Manifest         `json:"apply,omitempty"`
	Remove []api.FunctionName `json:"remove,omitempty"`
	// Refused says what of the agent's functions the front door does not take, and why; for people.
	Refused []Refusal `json:"refused,omitempty"`
	// GoAway says that the front door ends: the agent goes over to another, and finishes what runs here.
	GoAway bool `json:"goAway,omitempty"`
}

// Welcome is a front door's answer to a Hello.
type Welcome struct {
	Front   string `json:"front"` // its name
	Session string `json:"session"`
	// Secret opens links to this session ([link.Hello]).
	Secret string `json:"secret"`
	// Fronts are the addresses of all front doors, host:port, this one's included.
	Fronts []string `json:"fronts,omitempty"`
}

// Manifest is a function that a cluster is to have, as it was declared at the front door.
type Manifest struct {
	Name api.FunctionName `json:"name"`
	YAML string           `json:"yaml"`
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
	for i := range u.Functions {
		if err := u.Functions[i].Validate(); err != nil {
			return err
		}
	}
	return nil
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
	if f.Name == "" || len(f.Name) > 2*MaxName+1 {
		return errors.New("exchange: a function has no name, or one that is too long")
	}
	for _, names := range [][]api.ModelName{{f.Model}, f.Aliases, f.Adapters} {
		for _, n := range names {
			if len(n) > MaxName {
				return fmt.Errorf("exchange: function %s: a name of %d bytes: want at most %d", f.Name, len(n), MaxName)
			}
		}
	}
	if f.Places < 0 || f.Running < 0 || f.Waiting < 0 || f.Concurrency < 0 || f.MaxScale < 0 || f.Expected < 0 {
		return fmt.Errorf("exchange: function %s: a number below 0", f.Name)
	}
	return nil
}
