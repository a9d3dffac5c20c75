package admin

import (
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// PathWatch is a stream of server-sent events (GET): what a page of a server shows, first all of it, then what changes. A reader
// that is slow is told the last of several changes, never a list of all.
//
// Events and their data: "server", what [PathInfo] says: all that there is follows, up to "ready", an empty object, and what a
// reader knows besides is no more; "functions", []Summary; "gone", the names of functions that are no more; "devices",
// []Device; "decisions", []api.Decision, the newest last.
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

// Summary is what a list shows of a function. It is the autoscaler's view: activators are not asked.
type Summary struct {
	Name    api.FunctionName `json:"name"`
	Service api.FunctionName `json:"service,omitempty"`
	Model   api.ModelName    `json:"model"`
	Runtime string           `json:"runtime"`
	// Source is the reference of its model.
	Source string    `json:"source,omitempty"`
	State  api.State `json:"state"`
	// Waiting and Running are requests, Desired is how many instances are wanted awake, from Min to Max.
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
	// Clusters are those that have a function that is not here.
	Clusters []string `json:"clusters,omitempty"`
}

// InstanceOf is what a list shows of an instance; its fields are those of [api.InstanceStatus].
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
	// Memory is what it uses as measured.
	Memory  api.Memory `json:"memory"`
	Granted bool       `json:"granted,omitempty"`
	Message string     `json:"message,omitempty"`
}

// mostMessage bounds a message in a summary, in bytes.
const mostMessage = 500

// Summarize makes the summary of a function.
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

// brief is the end of a message, which says why.
func brief(message string) string {
	if len(message) <= mostMessage {
		return message
	}
	return "…" + strings.ToValidUTF8(message[len(message)-mostMessage:], "")
}

// State is one state for a whole function: the best that an instance has.
func (f Function) State() api.State {
	best, rank := api.Gone, 0
	ranks := map[api.State]int{api.Gone: 0, api.Unhealthy: 1, api.Asleep: 2, api.Starting: 3, api.Draining: 4, api.Awake: 5}
	for _, i := range f.Instances {
		if r := ranks[i.State]; r > rank {
			best, rank = i.State, r
		}
	}
	return best
}
