// Package admin is the contract of the administrative API: its paths, and what goes over the
// wire. On one machine it is served on the user's own socket, in a cluster by the autoscaler,
// behind the cluster's token; the commands of rouse and kn-rouse are its clients.
//
// A function is addressed as NAMESPACE/NAME; see [FunctionPath].
package admin

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Paths of the administrative API, beside [control.PathEvents].
const (
	PathInfo      = "/rouse/v1/info"      // GET: who serves
	PathDevices   = "/rouse/v1/devices"   // GET: []Device
	PathRequests  = "/rouse/v1/requests"  // GET ?tail=N, on one machine: the last lines of the access log, a list of JSON objects
	PathPicks     = "/rouse/v1/picks"     // GET ?request=ID: []api.Pick, the instances that were chosen for a request; in a cluster it is an activator's too
	PathFunctions = "/rouse/v1/functions" // GET: []Function; on one machine POST api.Function: declare it
	// PathFunctions + "/NAMESPACE/NAME": GET Function, DELETE; + /wake, /sleep?level=N, /stop: POST;
	// + /scale: PUT or POST Scale;
	// + /adapters: GET []Adapter; on one machine POST api.Adapter: add it, Adapter; + /adapters/ADAPTER: DELETE;
	// + /logs?tail=N&follow=true: text lines; + /why: []api.Decision; + /wakes: []api.WakeTrace.
)

// Device says how the memory of one device, the host's or a GPU's, is used.
type Device struct {
	ID api.DeviceID `json:"id"`
	// Node is the machine that it is of; empty where there is only one.
	Node string `json:"node,omitempty"`
	Name string `json:"name"`
	// Cost is its price for an hour, relative to other devices; 0 is 1.
	Cost float64 `json:"cost,omitempty"`
	// Others is what processes use that are not instances.
	Others api.Bytes `json:"others,omitempty"`
	// Capacity is what instances may use of Total.
	Capacity api.Bytes `json:"capacity"`
	Total    api.Bytes `json:"total"`
	// Awake is used by awake and unhealthy instances; Rising is kept for those that
	// start or wake, Reserved for sleepers with a standing grant.
	Awake    api.Bytes `json:"awake"`
	Rising   api.Bytes `json:"rising"`
	Reserved api.Bytes `json:"reserved"`
	// Asleep is what sleepers hold, Leaving what instances hold that fall asleep or stop.
	Asleep  api.Bytes `json:"asleep"`
	Leaving api.Bytes `json:"leaving"`
	// Free is what is left; below zero where instances and others use more than was promised.
	Free api.Bytes `json:"free"`
}

// Function is all that a server knows of a function.
type Function struct {
	Function  api.Function         `json:"function"`
	Instances []api.InstanceStatus `json:"instances"`
	// Waiting and Running are the sums over all activators.
	Waiting int `json:"waiting"`
	Running int `json:"running"`
	// Desired is how many instances are wanted awake; Scale says where that comes from, where it is
	// neither demand nor min-scale.
	Desired int       `json:"desired"`
	Scale   *Override `json:"scale,omitempty"`
	// LastRequest is when the last request came, zero if none ever did.
	LastRequest time.Time `json:"lastRequest"`
	// Need is what one awake instance takes: declared, measured or assumed.
	Need    api.Memory `json:"need"`
	Learned Learned    `json:"learned"`
	// Granted are the instances that activators may wake without asking.
	Granted []api.InstanceID `json:"granted,omitempty"`
	// Failures in a row, the last one's message, and when the next try may be.
	Failures  int       `json:"failures,omitempty"`
	LastError string    `json:"lastError,omitempty"`
	RetryAt   time.Time `json:"retryAt,omitzero"`
	// Impossible says why it can never have an instance on the devices that there are; empty: it can.
	Impossible string `json:"impossible,omitempty"`
	// Waits says what the function waits for; empty if it does not.
	Waits string `json:"waits,omitempty"`
	// Foreseen says when the next request is foreseen, and how good forecasts were; empty: nothing is foreseen.
	Foreseen string `json:"foreseen,omitempty"`
	// Far says that it is not here, but in clusters of the front door, or to be created in one; Clusters are those that have it.
	Far      bool     `json:"far,omitempty"`
	Clusters []string `json:"clusters,omitempty"`
	// Activator is what activators see of it now; the autoscaler leaves it to its server.
	Activator api.Activity `json:"activator"`
}

// Failed says why the function has no instance though one was wanted, or can't have any; empty: neither is so.
func (f Function) Failed() string {
	switch s := f.State(); {
	case f.Impossible != "" && s == api.Gone:
		return f.Impossible
	case s == api.Gone, s == api.Unhealthy:
		return cmp.Or(f.LastError, f.Activator.Failed)
	}
	return ""
}

// Learned is what was measured of a function's instances. What is unknown is 0.
type Learned struct {
	// Load is the time from the start of a process to awake.
	Load time.Duration `json:"load"`
	// Wake is the time from asleep to awake by level. Index 0 is unused.
	Wake [api.Level2 + 1]time.Duration `json:"wake"`
	// Sleep is the time from awake to asleep, draining not counted.
	Sleep time.Duration `json:"sleep"`
	// FirstSleep is that of a process that has not slept before; Again counts the others, and while it is 0 Sleep is the same.
	FirstSleep time.Duration `json:"firstSleep,omitempty"`
	Again      int           `json:"again,omitempty"`
	Awake      api.Memory    `json:"awake"`
	// Asleep is what stays in use by level. Index 0 is unused.
	Asleep [api.Level2 + 1]api.Memory `json:"asleep"`
	// PromptRate and TokenRate are the tokens that one busy instance reads and generates in a second.
	PromptRate float64 `json:"promptRate,omitempty"`
	TokenRate  float64 `json:"tokenRate,omitempty"`
	// Starts, Wakes and Sleeps count the measurements.
	Starts int `json:"starts"`
	Wakes  int `json:"wakes"`
	Sleeps int `json:"sleeps"`
	// Nodes are those where an instance was awake, the last one last.
	Nodes []string `json:"nodes,omitempty"`
}

// Override is a [Scale] that holds: how many instances somebody outside wants awake, until when.
type Override struct {
	Replicas int       `json:"replicas"`
	Until    time.Time `json:"until"`
	// By says who wants it, for people; empty: somebody.
	By string `json:"by,omitempty"`
}

// String is a part of reasons.
func (o Override) String() string {
	return fmt.Sprintf("%s wants %d until %s", cmp.Or(o.By, "somebody"), o.Replicas, o.Until.Format("15:04:05"))
}

// Declared is the answer to a function that was declared or removed.
type Declared struct {
	Function api.FunctionName `json:"function"`
	// Result is "created", "configured", "unchanged" or "removed".
	Result string `json:"result"`
	// LostNames say which of its names mean another function, each with the reason.
	LostNames []string `json:"lostNames,omitempty"`
	// Problem says why it would not start as things are, in one line.
	Problem string `json:"problem,omitempty"`
}

// Adapter is a LoRA adapter of a function, for people.
type Adapter struct {
	Function api.FunctionName `json:"function"`
	Name     api.ModelName    `json:"name"`
	// Path is as it was declared; empty for one that is not: an instance was given it, or its runtime brings it.
	Path string `json:"path,omitempty"`
	// Loaded are the instances that have it loaded, Standby those that load it when a request names it.
	Loaded  []api.InstanceID `json:"loaded"`
	Standby []api.InstanceID `json:"standby,omitempty"`
	// Result is what a change of it was: "added", "changed", "unchanged" or "removed".
	Result string `json:"result,omitempty"`
}

// Adapters are those that a function declares or that its instances have, by name.
func Adapters(v Function) []Adapter {
	list := []Adapter{}
	at := func(name api.ModelName) *Adapter {
		for k := range list {
			if list[k].Name == name {
				return &list[k]
			}
		}
		list = append(list, Adapter{Function: v.Function.Name, Name: name, Loaded: []api.InstanceID{}})
		return &list[len(list)-1]
	}
	for _, a := range v.Function.Runtime.Adapters {
		at(a.Name).Path = a.Path
	}
	for _, i := range v.Instances {
		for _, name := range i.Adapters {
			a := at(name)
			a.Loaded = append(a.Loaded, i.Instance)
		}
		for _, name := range i.Standby {
			a := at(name)
			a.Standby = append(a.Standby, i.Instance)
		}
	}
	slices.SortFunc(list, func(a, b Adapter) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Scale says how many instances somebody outside wants awake, and for how long: who
// does not say it again leaves nothing behind.
type Scale struct {
	Replicas int `json:"replicas"`
	// For is a duration such as "2m", from 1s to 24h.
	For string `json:"for"`
	// By says who wants it, for people; empty: "somebody".
	By string `json:"by,omitempty"`
}

// scaleBody is a Scale that may lack what it is about.
type scaleBody struct {
	Scale
	Replicas *int `json:"replicas"`
}

// maxScale bounds the body of a Scale.
const maxScale = 4 << 10

// ReadScale reads the body of a request; the error is an *[api.Error].
func ReadScale(body io.Reader) (s Scale, lifetime time.Duration, err error) {
	dec := json.NewDecoder(io.LimitReader(body, maxScale))
	dec.DisallowUnknownFields()
	var in scaleBody
	if err := dec.Decode(&in); err != nil {
		return s, 0, api.BadRequest("", `the body is no scale, such as {"replicas":2,"for":"2m"}: %v`, err)
	}
	if in.Replicas == nil {
		return s, 0, api.BadRequest("replicas", "replicas is missing: say how many instances should be awake")
	}
	if lifetime, err = time.ParseDuration(in.For); err != nil {
		return s, 0, api.BadRequest("for", "for is %.40q: want a duration such as 2m, after which demand decides again", in.For)
	}
	if len(in.By) > maxBy {
		return s, 0, api.BadRequest("by", "by has %d bytes: want %d at most", len(in.By), maxBy)
	}
	in.Scale.Replicas = *in.Replicas
	return in.Scale, lifetime, nil
}

// maxBy bounds the name of who wants a scale.
const maxBy = 100

// PicksPath is [PathPicks] for one request.
func PicksPath(request string) string { return PathPicks + "?request=" + url.QueryEscape(request) }

// FunctionPath is the path of a function, with rest after it ("", "/wake", …).
func FunctionPath(f api.FunctionName, rest string) string {
	return PathFunctions + "/" + f.Namespace() + "/" + f.Name() + rest
}
