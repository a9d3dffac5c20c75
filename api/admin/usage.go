package admin

import (
	"net/url"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// PathUsage returns the [Usage] selected by a [UsageQuery] (GET).
const PathUsage = "/rouse/v1/usage"

// UsageQuery selects a [Usage], in the query of a URL.
type UsageQuery struct {
	// RFC 3339; zero: no bound.
	From, To time.Time
	// A row for each key of a tenant.
	Keys bool
}

// Values returns q as URL values.
func (q UsageQuery) Values() url.Values {
	v := url.Values{}
	for name, t := range map[string]time.Time{"from": q.From, "to": q.To} {
		if !t.IsZero() {
			v.Set(name, t.UTC().Format(time.RFC3339))
		}
	}
	if q.Keys {
		v.Set("keys", "true")
	}
	return v
}

// UsageQueryOf parses a query. The error is an *[api.Error].
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

// zero: there is none
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

// Usage is the use by tenant. GPU-seconds add up to those of all GPUs.
type Usage struct {
	Since time.Time  `json:"since"`
	Until time.Time  `json:"until"`
	Rows  []UsageRow `json:"rows"`
}

// Classes of GPU-seconds.
const (
	UsageAwake  = "awake"  // held by instances to serve
	UsageAsleep = "asleep" // held by sleepers
	UsageIdle   = "idle"   // held by no instance
)

// UsageRow is a tenant's use of a function, or what it held without use.
type UsageRow struct {
	Function api.FunctionName `json:"function,omitempty"`
	Tenant   string           `json:"tenant,omitempty"`
	Key      string           `json:"key,omitempty"`
	State    string           `json:"state"`
	Requests int64            `json:"requests"`
	Input    api.Tokens       `json:"inputTokens"`
	// The part of Input, if reported.
	Cached     api.Tokens `json:"cachedTokens"`
	Output     api.Tokens `json:"outputTokens"`
	GPUSeconds float64    `json:"gpuSeconds"`
	// For readers that know a price.
	Cost float64 `json:"cost,omitempty"`
}
