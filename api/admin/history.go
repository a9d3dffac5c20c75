package admin

import (
	"time"

	"github.com/rouse-dev/rouse/api"
)

// PathHistory is GET ?after=SEQ: History, the last day's, kept in memory only.
const PathHistory = "/rouse/v1/history"

// History is the memory held by instances: an initial state and the changes since.
type History struct {
	// The time of the initial state.
	Since time.Time `json:"since"`
	// Of the last change, for after.
	Seq uint64 `json:"seq"`
	// This replaces earlier histories; Held is the state at Since.
	Whole     bool           `json:"whole,omitempty"`
	Held      []Held         `json:"held,omitempty"`
	Changes   []Held         `json:"changes,omitempty"`
	Decisions []api.Decision `json:"decisions,omitempty"`
}

// Held counts until the instance's next change.
type Held struct {
	At       time.Time      `json:"at"`
	Instance api.InstanceID `json:"instance"`
	// Empty: other programs.
	Function api.FunctionName `json:"function,omitempty"`
	Node     string           `json:"node,omitempty"`
	Devices  []api.DeviceID   `json:"devices,omitempty"`
	// [api.Starting] also during a wake, [api.Draining] on the way to sleep.
	State api.State `json:"state"`
	// On its node, and on each of Devices.
	Host      api.Bytes `json:"host,omitempty"`
	PerDevice api.Bytes `json:"perDevice,omitempty"`
}

// PathRecord is GET: the autoscaler's flight record (package autoscaler/flight). It has no prompts and no secrets,
// but shows which functions are requested, and when.
const PathRecord = "/rouse/v1/record"
