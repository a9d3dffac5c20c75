package api

import "time"

// Choice says why an instance was chosen for a request.
type Choice struct {
	// By is what decided, one of the words below.
	By string `json:"by"`
	// Known is about how many tokens of the prompt the instance has seen, of Prompt; 0 also where that did not count.
	Known  Tokens `json:"known,omitempty"`
	Prompt Tokens `json:"prompt,omitempty"`
	// Running is how many of its Slots were in use, by requests of the same activator.
	Running int `json:"running"`
	Slots   int `json:"slots"`
	// Free is how many instances had a free slot, and Least how many slots of the least busy one of them were in use.
	Free  int `json:"free"`
	Least int `json:"least"`
}

// What decides, in this order.
const (
	ByOnly    = "only"    // there is one instance
	ByWake    = "wake"    // it was woken for the request
	ByPrefix  = "prefix"  // it has seen at least half of the prompt
	BySession = "session" // the client's session prefers it
	ByPrompt  = "prompt"  // no instance has seen the prompt, whose beginning prefers it
	ByAdapter = "adapter" // it has the adapter, and of those that have it the smallest load
	ByLoad    = "load"    // it has the smallest load
)

// Pick is one choice that an activator has made.
type Pick struct {
	Request   string       `json:"request"`
	Function  FunctionName `json:"function"`
	Instance  InstanceID   `json:"instance"`
	Activator string       `json:"activator,omitempty"`
	// After is why the one before did not answer it to the end: a code; empty where there was none before.
	After string    `json:"after,omitempty"`
	At    time.Time `json:"at"`
	Choice
}
