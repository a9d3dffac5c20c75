package api

import "time"

// EventUsage reports what clients have used of a function through one activator. Data: Usage.
const EventUsage = "dev.rouse.function.usage.v1"

// Usage counts the requests and tokens of a function's clients through one activator. It is a total, not a
// difference: a lost or repeated event does no harm.
type Usage struct {
	Function  FunctionName `json:"function"`
	Activator string       `json:"activator"`
	Uses      []Use        `json:"uses"`
}

// Use counts the requests with one key since Begun, when the activator started counting.
type Use struct {
	Begun time.Time `json:"begun"`
	// Tenant is the owner of the requests' key and Key its name; empty: no key.
	Tenant   string `json:"tenant,omitempty"`
	Key      string `json:"key,omitempty"`
	Requests int64  `json:"requests"`
	Input    Tokens `json:"input"`
	// Cached counts the tokens of Input that came from the instance's cache, if it reports them.
	Cached Tokens `json:"cached,omitempty"`
	Output Tokens `json:"output"`
	// GPUSeconds is their share of the GPU time that instances held.
	GPUSeconds float64 `json:"gpuSeconds"`
}

// MostUses bounds the uses of one event.
const MostUses = 1 << 10

// Check validates a usage that came from outside: it returns an *[Error] or nil.
func (u Usage) Check() error {
	if u.Function == "" || u.Activator == "" || len(u.Uses) > MostUses {
		return BadRequest("data", "want a function, an activator, and at most %d uses", MostUses)
	}
	for _, s := range u.Uses {
		if s.Begun.IsZero() || len(s.Tenant+s.Key) > 512 ||
			s.Requests < 0 || s.Input < 0 || s.Cached < 0 || s.Output < 0 || s.GPUSeconds < 0 ||
			max(float64(s.Requests), float64(s.Input), float64(s.Output), s.GPUSeconds) > 1e12 { // sums must not overflow
			return BadRequest("data", "the use by %.100q: want the time when counting began, a short tenant and key, and numbers from 0 to 1e12", s.Tenant)
		}
	}
	return nil
}
