package admin

import (
	"time"

	"github.com/rouse-dev/rouse/api"
)

// PathHistory is the path of the last day's memory use and decisions (GET ?after=SEQ: History). The deciding server
// keeps them in memory and loses them when it restarts.
const PathHistory = "/rouse/v1/history"

// History is the memory held by instances on the host and on GPUs: an initial state and the changes since.
type History struct {
	// Since is the time of the initial state, as far back as the server keeps it.
	Since time.Time `json:"since"`
	// Seq is the number of the last change. A request with after=Seq returns only newer changes.
	Seq uint64 `json:"seq"`
	// Whole means that this is the complete history and replaces earlier ones; Held is then the state at Since.
	Whole bool   `json:"whole,omitempty"`
	Held  []Held `json:"held,omitempty"`
	// Changes and Decisions are in order of arrival.
	Changes   []Held         `json:"changes,omitempty"`
	Decisions []api.Decision `json:"decisions,omitempty"`
}

// Held is the memory that an instance holds from At until its next change.
type Held struct {
	At       time.Time      `json:"at"`
	Instance api.InstanceID `json:"instance"`
	// Function is empty for the use by other programs.
	Function api.FunctionName `json:"function,omitempty"`
	Node     string           `json:"node,omitempty"`
	Devices  []api.DeviceID   `json:"devices,omitempty"`
	// State is [api.Starting] also during a wake, [api.Draining] on the way to sleep or stop, and [api.Gone] after
	// the end.
	State api.State `json:"state"`
	// Host is memory of its node, PerDevice memory of each of Devices.
	Host      api.Bytes `json:"host,omitempty"`
	PerDevice api.Bytes `json:"perDevice,omitempty"`
}

// PathRecord is the path of the autoscaler's flight record (GET): all segments, concatenated, as package
// autoscaler/flight writes them. It contains no prompts and no secrets, but shows which functions are requested, and
// when.
const PathRecord = "/rouse/v1/record"
