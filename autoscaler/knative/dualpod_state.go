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
	// Leaving: it is being deleted. Spent: its provider has gone to sleep.
	Leaving, Released, Spent bool
	Since                    time.Time // when it was bound or became free

	held bool // by this plan, for another to land better
}

// Provider is a pod that runs a model.
type Provider struct {
	ID       api.InstanceID
	Function api.FunctionName
	Node     string
	Devices  []api.DeviceID
	// Asleep says that it uses no GPU beyond Residue; Process, that it has a process.
	Asleep, Process bool
	// Busy: a call or its creation is under way. Unheard: it has not reported since our restart.
	Busy, Unheard bool
	// Stuck says that it failed to sleep.
	Leaving, Stuck bool
	Bound          api.InstanceID
	// Since is when it entered its present state.
	Since time.Time
	// Used is when it was last awake; Residue is by device.
	Used    time.Time
	Residue api.Bytes
}

// Want is one instance that must become awake.
type Want struct {
	ID       int // lower ones came first
	Function api.FunctionName
	// Provider is the chosen sleeper; empty: a new one.
	Provider api.InstanceID
	// Node and Devices bind only on nodes of our own.
	Node    string
	Devices []api.DeviceID
	// Need is by device.
	Need  api.Bytes
	Since time.Time
}

// Node is one machine with GPUs.
type Node struct {
	Owned bool // only Rouse uses its GPUs
	// Free is the number of GPUs that no pod claims; Memory is each one's.
	Free   int
	Memory api.Bytes
}

const (
	// idleClaim is how long a requester may have no provider before it goes.
	idleClaim = 10 * time.Second
	// tries is how many requesters may land away from a function's sleeper before a provider is created where one
	// landed; patience bounds how long that may take.
	tries    = 3
	patience = 10 * time.Second
	// lateClaim is how long a provider may be awake without a claim.
	lateClaim = time.Minute
)

// State is the input of a plan. Plan does not change it.
type State struct {
	Now        time.Time
	Requesters []Requester
	Providers  []Provider
	Wants      []Want
	Nodes      map[string]Node
	// Claims is how many requesters each Deployment should have.
	Claims map[api.FunctionName]int
}

// Kind is the kind of an action.
type Kind string

// Kinds of actions.
const (
	// Claim raises the scale of a function by N.
	Claim Kind = "claim"
	// Wake wakes Provider, and binds it to Requester if there is one.
	Wake Kind = "wake"
	// Make creates a provider after those in Delete have ended.
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
	// Release lets Requester go.
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
