package admin

import (
	"time"

	"github.com/rouse-dev/rouse/api"
)

// PathHistory is what was held in the last day, and what was decided (GET ?after=SEQ: History). It is kept in the memory of the server
// that decides, and begins anew with it.
const PathHistory = "/rouse/v1/history"

// History is what instances held of the host and of GPUs, as a beginning and the changes since then.
type History struct {
	// Since is where it begins: as far back as is kept.
	Since time.Time `json:"since"`
	// Seq is the number of the last change. Whoever asks after it is told only what is newer.
	Seq uint64 `json:"seq"`
	// Whole says that this is all that is kept, and what a reader knew before is no more: Held is what was held at Since.
	Whole bool   `json:"whole,omitempty"`
	Held  []Held `json:"held,omitempty"`
	// Changes and Decisions are in the order in which they came.
	Changes   []Held         `json:"changes,omitempty"`
	Decisions []api.Decision `json:"decisions,omitempty"`
}

// Held is what an instance holds from At on, until its next change.
type Held struct {
	At       time.Time      `json:"at"`
	Instance api.InstanceID `json:"instance"`
	// Function is empty for what other programs use of a device.
	Function api.FunctionName `json:"function,omitempty"`
	Node     string           `json:"node,omitempty"`
	Devices  []api.DeviceID   `json:"devices,omitempty"`
	// State is [api.Starting] while it is woken too, [api.Draining] on its way to sleep or to its end, and [api.Gone] from its end on.
	State api.State `json:"state"`
	// Host is of its node's memory, PerDevice of each of Devices.
	Host      api.Bytes `json:"host,omitempty"`
	PerDevice api.Bytes `json:"perDevice,omitempty"`
}

// PathRecord is the path of the flight record of the autoscaler that answers (GET): all segments that there are, one after the other, as
// package autoscaler/flight writes them. There are no prompts and no secrets in it; yet it says who is asked for what, and when.
const PathRecord = "/rouse/v1/record"
