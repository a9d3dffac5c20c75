// Package admin is the contract of the administrative API, which people's tools
// speak: what the paths are and what their answers look like. A server on one
// machine (cmd/internal/local) serves it on the user's own socket, the autoscaler of
// a cluster behind the cluster's token; the commands of rouse and of kn-rouse
// read it. It holds types and names only.
//
// A function is addressed as NAMESPACE/NAME; see [FunctionPath].
package admin

import (
	"cmp"
	"encoding/json"
	"io"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
)

// Paths of the administrative API, beside [control.PathEvents].
const (
	PathInfo      = "/rouse/v1/info"      // GET: who serves
	PathDevices   = "/rouse/v1/devices"   // GET: []Device
	PathFunctions = "/rouse/v1/functions" // GET: []Function; on one machine POST api.Function: declare it
	// PathFunctions + "/NAMESPACE/NAME": GET Function, DELETE; + /wake, /sleep?level=N, /stop: POST;
	// + /scale: PUT or POST Scale;
	// + /adapters: GET []Adapter; on one machine POST api.Adapter: add it, Adapter; + /adapters/ADAPTER: DELETE;
	// + /logs?tail=N&follow=true: text lines; + /why: []api.Decision; + /wakes: []api.WakeTrace.
)

// Device is the account of one device.
type Device = decide.Line

// Function is all that a server knows of a function.
type Function struct {
	decide.View
	Activator api.Activity `json:"activator"`
}

// Declared is the answer to a function that was declared or removed.
type Declared struct {
	Function api.FunctionName `json:"function"`
	// Result is "created", "configured", "unchanged" or "removed".
	Result string `json:"result"`
	// LostNames say which of its names mean another function, each with the reason.
	LostNames []string `json:"lostNames,omitempty"`
	// Doubts say why it would not start as things are, in one line.
	Doubts string `json:"doubts,omitempty"`
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
func Adapters(v decide.View) []Adapter {
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

// FunctionPath is the path of a function, with rest after it ("", "/wake", …).
func FunctionPath(f api.FunctionName, rest string) string {
	return PathFunctions + "/" + f.Namespace() + "/" + f.Name() + rest
}
