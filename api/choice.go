package api

import "time"

// Choice records why an instance was chosen for a request.
type Choice struct {
	// By is one of the reasons of package activator/route.
	By string `json:"by"`
	// Known estimates how many of the prompt's tokens, Prompt, the instance has cached; 0 also where the cache did
	// not matter.
	Known  Tokens `json:"known,omitempty"`
	Prompt Tokens `json:"prompt,omitempty"`
	// Running is how many of the instance's Slots this activator used.
	Running int `json:"running"`
	Slots   int `json:"slots"`
	// Free is the number of instances with a free slot, Least the used slots of the least busy of them.
	Free  int `json:"free"`
	Least int `json:"least"`
}

// Pick is one choice made by an activator.
type Pick struct {
	Request   string       `json:"request"`
	Function  FunctionName `json:"function"`
	Instance  InstanceID   `json:"instance"`
	Activator string       `json:"activator,omitempty"`
	// After is the error code of the previous attempt; empty: this is the first.
	After string    `json:"after,omitempty"`
	At    time.Time `json:"at"`
	// Fallback is the model that the client named, and why another one answers: "big: start_failed".
	Fallback string `json:"fallback,omitempty"`
	// GPUSeconds is the whole request's, in its last choice once it has ended.
	GPUSeconds float64 `json:"gpuSeconds,omitempty"`
	Choice
}
