package admin

import (
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// PathWatch is a stream of server-sent events (GET): the full state, then changes. A slow reader gets the last of
// several.
//
// "server" is [PathInfo] and begins a full state, which ends with "ready"; what was not in it is gone. "functions"
// is []Summary; "gone" has names of functions; "devices" is []Device; "decisions" []api.Decision, the newest last.
const PathWatch = "/rouse/v1/watch"

// Names of the events of [PathWatch].
const (
	WatchServer    = "server"
	WatchFunctions = "functions"
	WatchGone      = "gone"
	WatchDevices   = "devices"
	WatchDecisions = "decisions"
	WatchReady     = "ready"
)

// Summary is a function in a list, from the autoscaler alone.
type Summary struct {
	Name    api.FunctionName `json:"name"`
	Service api.FunctionName `json:"service,omitempty"`
	Model   api.ModelName    `json:"model"`
	Runtime string           `json:"runtime"`
	Source  string           `json:"source,omitempty"`
	State   api.State        `json:"state"`
	// Desired instances awake, from Min to Max.
	Waiting     int          `json:"waiting,omitempty"`
	Running     int          `json:"running,omitempty"`
	Desired     int          `json:"desired,omitempty"`
	Min         int          `json:"min,omitempty"`
	Max         int          `json:"max"`
	Priority    int          `json:"priority,omitempty"`
	Scale       *Override    `json:"scale,omitempty"`
	Waits       string       `json:"waits,omitempty"`
	Failed      string       `json:"failed,omitempty"`
	Failures    int          `json:"failures,omitempty"`
	LastError   string       `json:"lastError,omitempty"`
	RetryAt     time.Time    `json:"retryAt,omitzero"`
	LastRequest time.Time    `json:"lastRequest,omitzero"`
	Need        api.Memory   `json:"need"`
	Instances   []InstanceOf `json:"instances,omitempty"`
	Clusters    []string     `json:"clusters,omitempty"`
}

// InstanceOf is an [api.InstanceStatus] in a list.
type InstanceOf struct {
	Instance api.InstanceID `json:"instance"`
	State    api.State      `json:"state"`
	Level    api.Level      `json:"level,omitempty"`
	Stage    string         `json:"stage,omitempty"`
	Progress float64        `json:"progress,omitempty"`
	Since    time.Time      `json:"since"`
	Node     string         `json:"node,omitempty"`
	Devices  []api.DeviceID `json:"devices,omitempty"`
	Running  int            `json:"running,omitempty"`
	Memory   api.Memory     `json:"memory"`
	Granted  bool           `json:"granted,omitempty"`
	Message  string         `json:"message,omitempty"`
}

const mostMessage = 500

// Summarize returns the summary of v.
func Summarize(v Function) Summary {
	f := v.Function
	s := Summary{Name: f.Name, Service: f.Service, Model: f.Model, Runtime: f.Runtime.Kind, Source: f.Runtime.Model, State: v.State(),
		Waiting: v.Waiting, Running: v.Running, Desired: v.Desired, Min: f.MinScale, Max: f.MaxScale, Priority: f.Priority, Scale: v.Scale,
		Waits: v.Waits, Failed: brief(v.Failed()), Failures: v.Failures, LastError: brief(v.LastError), RetryAt: v.RetryAt, LastRequest: v.LastRequest, Need: v.Need}
	granted := map[api.InstanceID]bool{}
	for _, id := range v.Granted {
		granted[id] = true
	}
	for _, i := range v.Instances {
		s.Instances = append(s.Instances, InstanceOf{Instance: i.Instance, State: i.State, Level: i.Level, Stage: i.Stage, Progress: i.Progress,
			Since: i.Since, Node: i.Node, Devices: i.Devices, Running: i.Running, Memory: i.Memory, Granted: granted[i.Instance], Message: brief(i.Message)})
	}
	return s
}

// A long message's end has the cause.
func brief(message string) string {
	if len(message) <= mostMessage {
		return message
	}
	return "…" + strings.ToValidUTF8(message[len(message)-mostMessage:], "")
}

// State returns the state of the instance that accepts a request soonest.
func (f Function) State() api.State {
	best := api.Gone
	for _, i := range f.Instances {
		if i.State.Sooner(best) {
			best = i.State
		}
	}
	return best
}
