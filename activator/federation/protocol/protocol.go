package protocol

import (
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/rouse-dev/rouse/api"
)

// Method is the gRPC method of the control stream.
const Method = "/rouse.exchange.v1.Exchange/Control"

// Protocol is the version of the protocol.
const Protocol = 3

const (
	// HeaderCall identifies a client's request, whose own ID the client chooses.
	HeaderCall = "X-Rouse-Call"
	// HeaderAttempt orders the attempts of a call: a higher number is later.
	HeaderAttempt  = "X-Rouse-Attempt"
	HeaderFunction = "X-Rouse-Function"
)

const (
	BeatEvery   = 500 * time.Millisecond
	SilentAfter = time.Second
	// Lease is how long an agent may begin attempts after it sent a beat that was answered.
	Lease     = 3 * time.Second
	DeadAfter = 8 * time.Second
)

const (
	MaxMessage   = 1 << 20 // bytes
	MaxFunctions = 10_000
	MaxNames     = 64      // of a function that a front door serves
	MaxReported  = 8 << 20 // bytes of all functions of an agent
	MaxName      = 253
	MaxCount     = 1_000_000
	MaxExpected  = 24 * time.Hour // until an instance is awake
	MaxManifest  = 128 << 10      // bytes
	MaxPatterns  = 256
	MaxWakes     = 64
	MaxSpans     = 256
	MaxWord      = 1024 // bytes of one string in a record
)

// Up is a message of an agent. Any part may be empty.
type Up struct {
	Hello     *Hello     `json:"hello,omitempty"` // in the first message only
	Functions []Function `json:"functions,omitempty"`
	Complete  bool       `json:"complete,omitempty"`
	Beat      uint64     `json:"beat,omitempty"`
	// Leaving means that the agent accepts nothing new and finishes its requests.
	Leaving bool          `json:"leaving,omitempty"`
	Way     time.Duration `json:"way,omitempty"` // the median round trip of the last beats
	// Accepts is nil if unchanged, initially none.
	Accepts *Accepts  `json:"accepts,omitempty"`
	Applied []Applied `json:"applied,omitempty"`
	// Doubles counts the attempts that a later one of the same call ended.
	Doubles uint64 `json:"doubles,omitempty"`
	// Wakes are those whose trace the front door's demand carried.
	Wakes []Wake `json:"wakes,omitempty"`
}

// Wake is an [api.WakeTrace] without the time of day, as clocks differ.
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

// WakeOf truncates a record to the limits of a message.
func WakeOf(o api.WakeTrace) Wake {
	return Wake{Function: o.Function, Instance: o.Instance, Trace: o.Trace, Root: o.Root, Path: o.Path, By: o.By, Cluster: o.Cluster,
		Reason: o.Reason[:min(len(o.Reason), MaxWord)], Total: o.Total, Spans: slices.Clone(o.Spans[:min(len(o.Spans), MaxSpans)])}
}

// AsTrace returns the record at the receiver.
func (o Wake) AsTrace() api.WakeTrace {
	return api.WakeTrace{Function: o.Function, Instance: o.Instance, Trace: o.Trace, Root: o.Root, Path: o.Path, By: o.By, Cluster: o.Cluster,
		Reason: o.Reason, Total: o.Total, Spans: o.Spans}
}

// Hello introduces an agent.
type Hello struct {
	Protocol int    `json:"protocol"`
	Cluster  string `json:"cluster"`
	Agent    string `json:"agent"`
	Version  string `json:"version,omitempty"`
	// Run tells apart processes of the same agent name.
	Run string `json:"run,omitempty"`
}

// Accepts says what a cluster accepts from a front door. The zero value accepts nothing.
type Accepts struct {
	// Functions are name patterns such as "default/*".
	Functions []string    `json:"functions,omitempty"`
	Memory    *api.Memory `json:"memory,omitempty"`
}

// Matches reports whether a name matches one of the patterns.
func Matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(p, name)
		return ok && err == nil
	})
}

// Applied answers the [Manifest] with the same number.
type Applied struct {
	Name   api.FunctionName `json:"name"`
	Number uint64           `json:"number"`
	Failed *Failure         `json:"failed,omitempty"`
}

// Function is the whole state of one function that an agent serves.
type Function struct {
	Name api.FunctionName `json:"name"`
	// Clients use Model and Aliases. An empty Model removes the function.
	Model   api.ModelName   `json:"model,omitempty"`
	Aliases []api.ModelName `json:"aliases,omitempty"`
	// Adapters are loaded, or load on request.
	Adapters []api.ModelName `json:"adapters,omitempty"`
	Kind     string          `json:"kind,omitempty"`
	// State describes the instance that accepts a request soonest; [api.Gone]: none.
	State api.State `json:"state"`
	// Expected is 0 if an instance is awake, or the time is unknown.
	Expected time.Duration `json:"expected,omitempty"`
	// Places is how many requests this front door may have there.
	Places int `json:"places"`
	// Waits is how many more may wait there; 0 while nobody else has requests there.
	Waits int `json:"waits,omitempty"`
	// Running and Waiting are from all senders.
	Running int `json:"running,omitempty"`
	Waiting int `json:"waiting,omitempty"`
	// A MaxScale of 0 is unbounded.
	Concurrency int             `json:"concurrency,omitempty"`
	MaxScale    int             `json:"maxScale,omitempty"`
	About       *api.ModelFacts `json:"about,omitempty"`
	// Applied means that this front door had it created.
	Applied bool     `json:"applied,omitempty"`
	Failed  *Failure `json:"failed,omitempty"`
}

// Size returns the bytes of a function in memory.
func (f *Function) Size() int {
	n := 512 + len(f.Name) + len(f.Model) + len(f.Kind)
	for _, name := range slices.Concat(f.Aliases, f.Adapters) {
		n += 32 + len(name)
	}
	if f.About != nil {
		d := f.About.Details
		for _, text := range slices.Concat(d.Families, []string{d.Parent, d.Format, d.Family, d.Size, d.Quantization}) {
			n += 32 + len(text)
		}
	}
	if f.Failed != nil {
		n += len(f.Failed.Code) + len(f.Failed.Message)
	}
	return n
}

// Failure is the wire form of an [api.Error].
type Failure struct {
	Status     int           `json:"status"`
	Code       string        `json:"code,omitempty"`
	Message    string        `json:"message"`
	RetryAfter time.Duration `json:"retryAfter,omitempty"`
}

// Down is a message of a front door. Any part may be empty.
type Down struct {
	Welcome *Welcome     `json:"welcome,omitempty"` // in the first message only
	Beat    uint64       `json:"beat,omitempty"`
	Demand  []api.Demand `json:"demand,omitempty"`
	// Apply is a function that the cluster is to have, or no longer needs. Orders are executed in the order of sending.
	Apply   *Manifest `json:"apply,omitempty"`
	Refused []Refusal `json:"refused,omitempty"`
	// GoAway means that the front door ends: the agent finishes its requests.
	GoAway bool `json:"goAway,omitempty"`
}

// Welcome answers a Hello.
type Welcome struct {
	Front string `json:"front"`
	// Owner owns the functions that the front door created; empty: Front. Front doors that share it have certificates for the
	// same names.
	Owner   string `json:"owner,omitempty"`
	Session string `json:"session"`
	// Secret authenticates links to this session.
	Secret string   `json:"secret"`
	Fronts []string `json:"fronts,omitempty"`
}

// Manifest is a function that a cluster is to have; without YAML, no longer.
type Manifest struct {
	Name   api.FunctionName `json:"name"`
	Number uint64           `json:"number"`
	YAML   string           `json:"yaml,omitempty"`
}

// Refusal says why a function is not accepted.
type Refusal struct {
	Function api.FunctionName `json:"function"`
	Reason   string           `json:"reason"`
}

// Validate checks a message from an untrusted sender. It bounds what a receiver stores.
func (u *Up) Validate() error {
	if len(u.Functions) > MaxFunctions {
		return fmt.Errorf("protocol: %d functions in one message: want at most %d", len(u.Functions), MaxFunctions)
	}
	if u.Hello != nil {
		if err := u.Hello.Validate(); err != nil {
			return err
		}
	}
	if u.Way < 0 {
		return fmt.Errorf("protocol: a way of %s: want 0 or more", u.Way)
	}
	for i := range u.Functions {
		if err := u.Functions[i].Validate(); err != nil {
			return err
		}
	}
	if len(u.Wakes) > MaxWakes {
		return fmt.Errorf("protocol: %d wakes in one message: want at most %d", len(u.Wakes), MaxWakes)
	}
	for i := range u.Wakes {
		if err := validWake(&u.Wakes[i]); err != nil {
			return err
		}
	}
	if u.Accepts != nil && len(u.Accepts.Functions) > MaxPatterns {
		return fmt.Errorf("protocol: %d patterns of functions: want at most %d", len(u.Accepts.Functions), MaxPatterns)
	}
	return nil
}

func validWake(o *Wake) error {
	words := []string{string(o.Function), string(o.Instance), o.Trace, o.Root, string(o.Path), string(o.By), o.Cluster, o.Reason}
	wrong := len(o.Spans) > MaxSpans || o.Total < 0 || o.Total > MaxExpected
	for _, s := range o.Spans {
		words = append(words, s.ID, s.Parent, s.Name, string(s.Part), string(s.Who), s.Note)
		wrong = wrong || s.After < 0 || s.After > MaxExpected || s.Took < 0 || s.Took > MaxExpected
	}
	if wrong || slices.ContainsFunc(words, func(w string) bool { return len(w) > MaxWord }) {
		return fmt.Errorf("protocol: the record of a wake of %.100s is over its bounds: want at most %d spans, durations from 0 to %s, and words of at most %d bytes", o.Function, MaxSpans, MaxExpected, MaxWord)
	}
	return nil
}

// Validate checks a message from an untrusted sender.
func (d *Down) Validate() error {
	switch m := d.Apply; {
	case m == nil:
	case m.Name == "" || len(m.Name) > 2*MaxName+1:
		return errors.New("protocol: a manifest has no name, or one that is too long")
	case len(m.YAML) > MaxManifest:
		return fmt.Errorf("protocol: the manifest of %s has %d bytes: want at most %d", m.Name, len(m.YAML), MaxManifest)
	}
	return nil
}

// FailureOf returns the wire form of an error.
func FailureOf(err error) *Failure {
	e := api.AsError(err)
	return &Failure{Status: e.Status, Code: e.Code, Message: e.Message, RetryAfter: e.RetryAfter}
}

// AsError returns the failure as an error.
func (f *Failure) AsError() *api.Error {
	status := f.Status
	if status < http.StatusBadRequest || status > 599 { // an agent chose it, and a client will see it
		status = http.StatusServiceUnavailable
	}
	e := api.Errorf(status, f.Code, "%s", f.Message)
	e.RetryAfter = f.RetryAfter
	return e
}

// Validate returns an error for the first invalid field.
func (h *Hello) Validate() error {
	switch {
	case h.Protocol != Protocol:
		return fmt.Errorf("protocol: protocol %d: this front door speaks %d: use the same version of Rouse at both sides", h.Protocol, Protocol)
	case h.Cluster == "" || len(h.Cluster) > MaxName:
		return errors.New("protocol: the cluster has no name, or one of more than 253 bytes")
	case h.Agent == "" || len(h.Agent) > MaxName:
		return errors.New("protocol: the agent has no name, or one of more than 253 bytes")
	case strings.ContainsFunc(h.Cluster+h.Agent, func(r rune) bool { return r <= ' ' || r > '~' }): // the names go into headers
		return fmt.Errorf("protocol: the cluster %q or the agent %q has a name with spaces, or with characters that are not ASCII", h.Cluster, h.Agent)
	case len(h.Run) > MaxName || len(h.Version) > MaxName:
		return errors.New("protocol: the agent has a version or a run of more than 253 bytes")
	}
	return nil
}

// Validate returns an error for the first invalid field.
func (f *Function) Validate() error {
	if f.Name == "" || len(f.Name) > 2*MaxName+1 || strings.ContainsFunc(string(f.Name), unicode.IsControl) {
		return errors.New("protocol: a function has no name, one that is too long, or one with control characters")
	}
	for _, n := range slices.Concat(f.Aliases, f.Adapters, []api.ModelName{f.Model}) {
		if len(n) > MaxName || strings.ContainsFunc(string(n), unicode.IsControl) {
			return fmt.Errorf("protocol: function %q: the name %.300q has control characters, or more than %d bytes", f.Name, n, MaxName)
		}
	}
	for _, n := range []int{f.Places, f.Waits, f.Running, f.Waiting, f.Concurrency, f.MaxScale} {
		if n < 0 || n > MaxCount {
			return fmt.Errorf("protocol: function %s: a number of %d, below 0 or too large: want at most %d", f.Name, n, MaxCount)
		}
	}
	if f.Expected < 0 || f.Expected > MaxExpected {
		return fmt.Errorf("protocol: function %s: awake in %s: want at most %s, and no time below 0", f.Name, f.Expected, MaxExpected)
	}
	return nil
}
