package admin

import (
	"time"

	"github.com/rouse-dev/rouse/api"
)

// PathUsage is where a GET finds the [Usage].
const PathUsage = "/rouse/v1/usage"

// Usage is who has used what since a time. The GPU-seconds of all rows are those of all GPUs since then.
type Usage struct {
	Since time.Time  `json:"since"`
	Rows  []UsageRow `json:"rows"`
}

// What a function's GPU-seconds are of.
const (
	UsageAwake  = "awake"  // instances that hold memory to serve
	UsageAsleep = "asleep" // what sleepers keep
	UsageIdle   = "idle"   // nobody's
)

// UsageRow is what a tenant has used of a function, or what a function held that no tenant used.
type UsageRow struct {
	Function   api.FunctionName `json:"function,omitempty"`
	Tenant     string           `json:"tenant,omitempty"`
	State      string           `json:"state"`
	Requests   int64            `json:"requests"`
	Input      api.Tokens       `json:"inputTokens"`
	Output     api.Tokens       `json:"outputTokens"`
	GPUSeconds float64          `json:"gpuSeconds"`
	// Cost is filled in by who has a price.
	Cost float64 `json:"cost,omitempty"`
}
