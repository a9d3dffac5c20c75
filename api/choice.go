package api

import "time"

// Choice records why an instance was chosen for a request.
type Choice struct {
	// By is a reason of package activator/route.
	By string `json:"by"`
	// Known estimates how many of the Prompt's tokens the instance has cached, where that mattered.
	Known  Tokens `json:"known,omitempty"`
	Prompt Tokens `json:"prompt,omitempty"`
	// How many of the instance's Slots this activator used.
	Running int `json:"running"`
	Slots   int `json:"slots"`
	// Free counts instances with a free slot; Least, the used slots of the least busy.
	Free  int `json:"free"`
	Least int `json:"least"`
}

// Pick is one choice made by an activator.
type Pick struct {
	Request   string       `json:"request"`
	Function  FunctionName `json:"function"`
	Instance  InstanceID   `json:"instance"`
	Activator string       `json:"activator,omitempty"`
	// After is the previous attempt's error code, if any.
	After string    `json:"after,omitempty"`
	At    time.Time `json:"at"`
	// Fallback is the model that the client named, and why another one answers: "big: start_failed".
	Fallback string `json:"fallback,omitempty"`
	// Of the whole request, in its last choice once it has ended.
	GPUSeconds float64 `json:"gpuSeconds,omitempty"`
	Choice
}
