package admin

import (
	"time"

	"github.com/rouse-dev/rouse/api"
)

// PathHistory is the last day's memory use and decisions (GET ?after=SEQ: History), kept in memory only.
const PathHistory = "/rouse/v1/history"

// History is the memory held by instances: an initial state and the changes since.
type History struct {
	// Since is the time of the initial state.
	Since time.Time `json:"since"`
	// Seq is the number of the last change; after=Seq asks for newer ones.
	Seq uint64 `json:"seq"`
	// Whole means that this replaces earlier histories; Held is then the state at Since.
	Whole     bool           `json:"whole,omitempty"`
	Held      []Held         `json:"held,omitempty"`
	Changes   []Held         `json:"changes,omitempty"`
	Decisions []api.Decision `json:"decisions,omitempty"`
}

// Held is the memory that an instance holds from At until its next change.
type Held struct {
	At       time.Time      `json:"at"`
	Instance api.InstanceID `json:"instance"`
	// Function is empty for other programs.
	Function api.FunctionName `json:"function,omitempty"`
	Node     string           `json:"node,omitempty"`
	Devices  []api.DeviceID   `json:"devices,omitempty"`
	// State is [api.Starting] also during a wake, [api.Draining] on the way to sleep or stop.
	State api.State `json:"state"`
	// Host is memory of its node, PerDevice of each of Devices.
	Host      api.Bytes `json:"host,omitempty"`
	PerDevice api.Bytes `json:"perDevice,omitempty"`
}

// PathRecord is the autoscaler's flight record (GET): all segments, concatenated, as package autoscaler/flight
// writes them. It contains no prompts and no secrets, but shows which functions are requested, and when.
const PathRecord = "/rouse/v1/record"
