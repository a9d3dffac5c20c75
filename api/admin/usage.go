package admin

import (
	"net/url"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// PathUsage is where a GET finds the [Usage] that its [UsageQuery] asks for.
const PathUsage = "/rouse/v1/usage"

// UsageQuery says which [Usage], in the query of a URL.
type UsageQuery struct {
	// From and To bound the time ("from", "to", RFC 3339); zero: there is no bound.
	From, To time.Time
	// Keys has a row for each key of a tenant ("keys=true").
	Keys bool
}

// Values are the query's.
func (q UsageQuery) Values() url.Values {
	v := url.Values{}
	if !q.From.IsZero() {
		v.Set("from", q.From.UTC().Format(time.RFC3339))
	}
	if !q.To.IsZero() {
		v.Set("to", q.To.UTC().Format(time.RFC3339))
	}
	if q.Keys {
		v.Set("keys", "true")
	}
	return v
}

// UsageQueryOf reads a query. The error is an *[api.Error].
func UsageQueryOf(v url.Values) (q UsageQuery, err error) {
	if q.From, err = timeOf(v, "from"); err != nil {
		return q, err
	}
	if q.To, err = timeOf(v, "to"); err != nil {
		return q, err
	}
	if !q.To.IsZero() && !q.From.Before(q.To) {
		return q, api.BadRequest("to", "from %s to %s: want a time that is later", q.From.Format(time.RFC3339), q.To.Format(time.RFC3339))
	}
	q.Keys = v.Get("keys") == "true"
	return q, nil
}

// timeOf is the time that a query names, zero where it names none.
func timeOf(v url.Values, name string) (time.Time, error) {
	text := v.Get(name)
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || t.Year() < 1970 || t.Year() > 9999 {
		return time.Time{}, api.BadRequest(name, "%s %.40q: want a time such as 2026-01-02T15:04:05Z", name, text)
	}
	return t, nil
}

// Usage is who has used what between two times. The GPU-seconds of all rows are those of all GPUs between them.
type Usage struct {
	Since time.Time  `json:"since"`
	Until time.Time  `json:"until"`
	Rows  []UsageRow `json:"rows"`
}

// What a function's GPU-seconds are of.
const (
	UsageAwake  = "awake"  // instances that hold memory to serve
	UsageAsleep = "asleep" // what sleepers keep
	UsageIdle   = "idle"   // nobody's
)

// UsageRow is what a tenant has used of a function, where that was asked for with one key, or what a function held that no tenant used.
type UsageRow struct {
	Function api.FunctionName `json:"function,omitempty"`
	Tenant   string           `json:"tenant,omitempty"`
	Key      string           `json:"key,omitempty"`
	State    string           `json:"state"`
	Requests int64            `json:"requests"`
	Input    api.Tokens       `json:"inputTokens"`
	// Cached are those of Input that instances had in their caches, as far as they say.
	Cached     api.Tokens `json:"cachedTokens"`
	Output     api.Tokens `json:"outputTokens"`
	GPUSeconds float64    `json:"gpuSeconds"`
	// Cost is filled in by who has a price.
	Cost float64 `json:"cost,omitempty"`
}
