package knative

import (
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Requester is a pod that claims GPUs.
type Requester struct {
	ID       api.InstanceID
	Function api.FunctionName
	// Devices are empty until it has joined.
	Node    string
	Devices []api.DeviceID
	Bound   api.InstanceID
	// Spent says that its provider has gone to sleep.
	Leaving, Released, Spent bool
	// Since is when it was bound or became free.
	Since time.Time

	held bool // by this plan, for another to land better
}

// Provider is a pod that runs a model.
type Provider struct {
	ID       api.InstanceID
	Function api.FunctionName
	Node     string
	Devices  []api.DeviceID
	// Asleep says that it uses no GPU beyond a process's residue; Process, that it has a process.
	Asleep, Process bool
	// Busy says that a call or its creation is under way; Unheard, that it has not reported since our restart.
	Busy, Unheard bool
	// Leaving says that it is being deleted; Stuck, that it failed to sleep.
	Leaving, Stuck bool
	Bound          api.InstanceID
	// Since is when it entered its present state.
	Since time.Time
	// Used is when it was last awake; Residue is the memory that it keeps of each device asleep.
	Used    time.Time
	Residue api.Bytes
}

// Want is one instance of a function that must become awake.
type Want struct {
	ID       int
	Function api.FunctionName
	// Provider is the chosen sleeper; empty: a new one.
	Provider api.InstanceID
	// Node and Devices are its planned place, binding only on nodes of our own.
	Node    string
	Devices []api.DeviceID
	// Need is the memory that it takes of each device.
	Need  api.Bytes
	Since time.Time
}

// Node is one machine with GPUs.
type Node struct {
	Owned bool
	// Free is the number of GPUs that no pod claims; Memory is the memory of each.
	Free   int
	Memory api.Bytes
}

const (
	// idleClaim is how long a requester may have no provider before it goes.
	idleClaim = 10 * time.Second
	// tries is how many requesters may land away from a function's sleeper before a provider is created where one
	// landed. They hold their GPUs meanwhile, and the next lands elsewhere. patience bounds how long that may take.
	tries    = 3
	patience = 10 * time.Second
	// lateClaim is how long a provider may be awake without a claim on a node that is not our own.
	lateClaim = time.Minute
)

// State is the input of a plan. Plan does not change it.
type State struct {
	Now        time.Time
	Requesters []Requester
	Providers  []Provider
	Wants      []Want
	Nodes      map[string]Node
	// Claims is how many requesters each function's Deployment should have.
	Claims map[api.FunctionName]int
}

// Kind is the kind of an action.
type Kind string

// Kinds of actions.
const (
	// Claim raises the scale of a function by N.
	Claim Kind = "claim"
	// Wake wakes Provider for Want, and binds it to Requester if there is one.
	Wake Kind = "wake"
	// Make creates a provider for Want after the providers in Delete have ended.
	Make Kind = "make"
	// Done says that Provider serves Want.
	Done Kind = "done"
	// Bind and Unbind bind and separate Requester and Provider.
	Bind   Kind = "bind"
	Unbind Kind = "unbind"
	// Sleep puts Provider to sleep.
	Sleep Kind = "sleep"
	// Delete ends Provider.
	Delete Kind = "delete"
	// Release lets Requester go, and lowers the scale unless it is being deleted already.
	Release Kind = "release"
)

// Action is one thing to do, and why.
type Action struct {
	Kind      Kind
	Function  api.FunctionName
	Want      int
	Requester api.InstanceID
	Provider  api.InstanceID
	Node      string
	Devices   []api.DeviceID
	Delete    []api.InstanceID
	N         int
	Path      api.Path
	Reason    string
}
