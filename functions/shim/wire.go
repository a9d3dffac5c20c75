package shim

import (
	"encoding/json"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Calls. A call without an answer has no id.
const (
	callJoin   = "join"   // Mark, Listen, Lead: answered with Hello
	callStart  = "start"  // Spec: answered with PID
	callStop   = "stop"   // PID, Grace; no answer, an Exit comes
	callKill   = "kill"   // PID; no answer
	callMemory = "memory" // PID: answered with Bytes and Shared
	callCPU    = "cpu"    // PID: answered with Time
	callNote   = "note"   // Note; no answer
	callEnd    = "end"    // the instance was stopped: answered, and all are told
)

// message is any message of the protocol; most fields are empty in each.
type message struct {
	ID    uint64 `json:"id,omitempty"`
	Call  string `json:"call,omitempty"`
	Error string `json:"error,omitempty"` // of an answer

	// Of a call.
	Mark   string          `json:"mark,omitempty"`   // the runtime's mark; from the starter of the shim
	Listen string          `json:"listen,omitempty"` // the path for others; likewise
	Lead   bool            `json:"lead,omitempty"`   // the caller wants the output
	Spec   *spec           `json:"spec,omitempty"`
	Grace  time.Duration   `json:"grace,omitempty"`
	Note   json.RawMessage `json:"note,omitempty"`

	// Of an answer, and PID of most calls.
	PID   int           `json:"pid,omitempty"`
	Bytes int64         `json:"bytes,omitempty"`
	Time  time.Duration `json:"time,omitempty"`
	Hello *hello        `json:"hello,omitempty"`

	Shared *api.SharedMemory `json:"shared,omitempty"`

	// Events.
	Line  *string `json:"line,omitempty"`  // of the runtime's output
	Exit  *exit   `json:"exit,omitempty"`  // the runtime has ended, and nothing of it is left
	Peers *int    `json:"peers,omitempty"` // the number of other connections
	Ended bool    `json:"ended,omitempty"` // the instance was stopped
}

// spec is a process.Spec on the wire.
type spec struct {
	Path string   `json:"path"`
	Args []string `json:"args,omitempty"`
	Env  []string `json:"env,omitempty"`
	Dir  string   `json:"dir,omitempty"`
}

type exit struct {
	PID    int    `json:"pid"`
	Status string `json:"status"`
}

// hello is the state that a joining peer needs.
type hello struct {
	Mark  string          `json:"mark"`
	PID   int             `json:"pid,omitempty"` // of the running runtime; 0: none
	Note  json.RawMessage `json:"note,omitempty"`
	Lines []string        `json:"lines,omitempty"` // the last lines of output
	Ended bool            `json:"ended,omitempty"`
}
