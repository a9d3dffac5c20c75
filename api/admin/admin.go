// Package admin is the contract of the administrative API. On one machine it is served on the user's socket, in a
// cluster by the autoscaler, behind the cluster's token.
package admin

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Paths of the administrative API, besides [control.PathEvents].
const (
	PathInfo      = "/rouse/v1/info"      // GET: the server
	PathDevices   = "/rouse/v1/devices"   // GET: []Device
	PathRequests  = "/rouse/v1/requests"  // GET ?tail=N, on one machine: the last lines of the access log, a list of JSON objects
	PathPicks     = "/rouse/v1/picks"     // GET ?request=ID: []api.Pick, the choices of instances for a request; in a cluster activators serve it too
	PathFunctions = "/rouse/v1/functions" // GET: []Function; on one machine POST api.Function: declare it; /logs below it: GET text lines of all, as of one
	// Below PathFunctions, each function has these paths:
	//
	//	/NAMESPACE/NAME          GET Function, DELETE
	//	  /wake, /stop           POST
	//	  /sleep?level=N         POST
	//	  /scale                 PUT or POST Scale
	//	  /adapters              GET []Adapter; on one machine POST api.Adapter: add it, Adapter
	//	  /adapters/ADAPTER      DELETE
	//	  /logs?tail=N           GET text lines; with follow=true also later ones
	//	  /why                   GET []api.Decision
	//	  /wakes                 GET []api.WakeTrace
	//	  /manifest              GET YAML, on one machine: declares it, without the values of its environment

	// PathKeys has the clients' keys. GET lists them, without secrets. POST of an entry of the file of keys,
	// without a hash, makes a key, which only its answer contains. DELETE ?name=NAME revokes one; PATCH ?name=NAME
	// changes its fields, by a JSON merge patch. In a cluster `kn rouse ui` serves it.
	PathKeys = "/rouse/v1/keys"
	// PathModels is for models to fetch, on one machine: GET ?search=TEXT finds some; POST {"model": REFERENCE}
	// declares a function for one: Declared.
	PathModels = "/rouse/v1/models"
)

// Device is the memory use of the host or a GPU.
type Device struct {
	ID api.DeviceID `json:"id"`
	// The machine; empty if there is only one.
	Node string `json:"node,omitempty"`
	Name string `json:"name"`
	// Of other processes.
	Others api.Bytes `json:"others,omitempty"`
	// The part of Total for instances.
	Capacity api.Bytes `json:"capacity"`
	Total    api.Bytes `json:"total"`
	// Awake includes unhealthy instances. Rising is reserved for starts and wakes, Reserved for standing grants.
	Awake    api.Bytes `json:"awake"`
	Rising   api.Bytes `json:"rising"`
	Reserved api.Bytes `json:"reserved"`
	// Asleep is held by sleepers, Leaving by instances that fall asleep or stop.
	Asleep  api.Bytes `json:"asleep"`
	Leaving api.Bytes `json:"leaving"`
	// Below zero if more is used than was promised.
	Free api.Bytes `json:"free"`
}

// Function is a server's full view of a function.
type Function struct {
	Function  api.Function         `json:"function"`
	Instances []api.InstanceStatus `json:"instances"`
	// Sums over all activators.
	Waiting int `json:"waiting"`
	Running int `json:"running"`
	// Desired instances awake. Scale is the reason if neither demand nor min-scale is.
	Desired int       `json:"desired"`
	Scale   *Override `json:"scale,omitempty"`
	// Zero: none.
	LastRequest time.Time `json:"lastRequest"`
	// Declared, measured or assumed.
	Need    api.Memory `json:"need"`
	Learned Learned    `json:"learned"`
	// Activators may wake these without asking.
	Granted []api.InstanceID `json:"granted,omitempty"`
	// In a row, with the last message and the next try.
	Failures  int       `json:"failures,omitempty"`
	LastError string    `json:"lastError,omitempty"`
	RetryAt   time.Time `json:"retryAt,omitzero"`
	// No instance can ever fit the devices.
	Impossible string `json:"impossible,omitempty"`
	// What it waits for.
	Waits string `json:"waits,omitempty"`
	// The predicted next request, and past forecasts.
	Foreseen string `json:"foreseen,omitempty"`
	// Far: it is for Clusters of the front door.
	Far      bool     `json:"far,omitempty"`
	Clusters []string `json:"clusters,omitempty"`
	// Filled in by the server.
	Activator api.Activity `json:"activator"`
}

// Failed returns why a function that should have an instance has none.
func (f Function) Failed() string {
	switch s := f.State(); {
	case f.Impossible != "" && s == api.Gone:
		return f.Impossible
	case s == api.Gone, s == api.Unhealthy:
		return cmp.Or(f.LastError, f.Activator.Failed)
	}
	return ""
}

// Learned holds measurements of a function's instances; 0: unknown.
type Learned struct {
	// From a process's start to awake.
	Load time.Duration `json:"load"`
	// By level. Index 0 is unused.
	Wake [api.Suspended + 1]time.Duration `json:"wake"`
	// Without draining.
	Sleep time.Duration `json:"sleep"`
	// A process's first sleep. Again counts later ones; while it is 0, Sleep equals FirstSleep.
	FirstSleep time.Duration `json:"firstSleep,omitempty"`
	Again      int           `json:"again,omitempty"`
	Awake      api.Memory    `json:"awake"`
	// By level. Index 0 is unused.
	Asleep [api.Suspended + 1]api.Memory `json:"asleep"`
	// Per second of one busy instance.
	PromptRate float64 `json:"promptRate,omitempty"`
	TokenRate  float64 `json:"tokenRate,omitempty"`
	// Of measurements.
	Starts int `json:"starts"`
	Wakes  int `json:"wakes"`
	Sleeps int `json:"sleeps"`
	// The latest last.
	Nodes    []string      `json:"nodes,omitempty"`
	Snapshot *api.Snapshot `json:"snapshot,omitempty"`
}

// Override is a [Scale] in effect.
type Override struct {
	Replicas int       `json:"replicas"`
	Until    time.Time `json:"until"`
	// For people.
	By string `json:"by,omitempty"`
}

func (o Override) String() string {
	return fmt.Sprintf("%s wants %d until %s", cmp.Or(o.By, "somebody"), o.Replicas, o.Until.Format("15:04:05"))
}

// Declared is the answer to a declaration or removal of a function.
type Declared struct {
	Function api.FunctionName `json:"function"`
	// "created", "configured", "unchanged" or "removed".
	Result string `json:"result"`
	// Names that belong to another function, with the reason.
	LostNames []string `json:"lostNames,omitempty"`
	// Why a fallback is useless.
	WrongFallbacks []string `json:"wrongFallbacks,omitempty"`
	// Why it would not start at present.
	Problem string `json:"problem,omitempty"`
}

// Adapter is a LoRA adapter of a function, for people.
type Adapter struct {
	Function api.FunctionName `json:"function"`
	Name     api.ModelName    `json:"name"`
	// Empty: not declared.
	Path string `json:"path,omitempty"`
	// Standby instances load it on request.
	Loaded  []api.InstanceID `json:"loaded"`
	Standby []api.InstanceID `json:"standby,omitempty"`
	// "added", "changed", "unchanged" or "removed".
	Result string `json:"result,omitempty"`
}

// Adapters returns a function's declared and present adapters.
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

// Scale is an external controller's wish, for a limited time.
type Scale struct {
	Replicas int `json:"replicas"`
	// Such as "2m", from 1s to 24h.
	For string `json:"for"`
	// For people.
	By string `json:"by,omitempty"`
}

// Replicas may be missing.
type scaleBody struct {
	Scale
	Replicas *int `json:"replicas"`
}

const maxScale = 4 << 10

// ReadScale parses a request's body; the error is an *[api.Error].
func ReadScale(body io.Reader) (s Scale, lifetime time.Duration, err error) {
	var in scaleBody
	if err := api.Decode(io.LimitReader(body, maxScale), &in); err != nil {
		return s, 0, api.BadRequest("", `the body is no scale, such as {"replicas":2,"for":"2m"}: %v`, err)
	}
	if in.Replicas == nil {
		return s, 0, api.BadRequest("replicas", "replicas is missing: say how many instances should be awake")
	}
	if lifetime, err = api.ParseDuration(in.For); err != nil {
		return s, 0, api.BadRequest("for", "for is %.40q: want a duration such as 2m, after which demand decides again", in.For)
	}
	if len(in.By) > maxBy {
		return s, 0, api.BadRequest("by", "by has %d bytes: want %d at most", len(in.By), maxBy)
	}
	in.Scale.Replicas = *in.Replicas
	return in.Scale, lifetime, nil
}

const maxBy = 100

// PicksPath returns [PathPicks] for one request.
func PicksPath(request string) string { return PathPicks + "?request=" + url.QueryEscape(request) }

// FunctionPath returns a function's path, followed by rest.
func FunctionPath(f api.FunctionName, rest string) string {
	return PathFunctions + "/" + url.PathEscape(f.Namespace()) + "/" + url.PathEscape(f.Name()) + rest
}
