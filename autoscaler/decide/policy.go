package decide

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
)

// Parameters of all policies.
const (
	// After MaxFailures in a row held requests are refused.
	MaxFailures = 3
	// Slack is added to a function's time limits before an instance is given up.
	Slack = 10 * time.Second
	// patience is how many [Policy.TurnWait] a lower priority starves before it goes first.
	patience = 4
	// loadSettle is how long a new instance takes its share before the load may ask for another.
	loadSettle = 5 * time.Second
)

// Policy holds the parameters of decisions. Zero fields take the default.
type Policy struct {
	// MinStay is the minimum time a busy instance stays awake. Default 2 s.
	MinStay time.Duration
	// SwitchShare is how many times the switch's cost a busy instance stays, at most MaxStay. Default 2.
	SwitchShare float64
	// MaxStay bounds the effect of SwitchShare. Default 30 s.
	MaxStay time.Duration
	// TurnWait is how long a function starves before a busy one of the same priority makes room. A higher one does not
	// wait. Default 5 s.
	TurnWait time.Duration
	// IdleGrace is the longest time that an instance which has just become idle is spared by competitors. Default
	// 250 ms.
	IdleGrace time.Duration
	// ScaleUpAfter is how long a request waits before an instance is added to those awake. Default 100 ms.
	ScaleUpAfter time.Duration
	// Drain is how long running requests may take when an instance goes to sleep. Default 2 min.
	Drain time.Duration
	// GrantLife is the lifetime of a standing grant, renewed when a tenth is left. Default 10 min.
	GrantLife time.Duration
	// GrantGrace is how long an activator with a grant may take to begin the wake before the autoscaler does. Default
	// 50 ms.
	GrantGrace time.Duration
	// Advice goes into errors about missing memory and GPUs.
	Advice Advice
}

// Advice says how to get more memory and GPUs. Empty fields take those of a single machine.
type Advice struct {
	// Place names what has them.
	Place           string
	Memory, Devices string
}

// WithDefaults fills in zero fields.
func (p Policy) WithDefaults() Policy {
	p.MinStay, p.MaxStay = cmp.Or(p.MinStay, 2*time.Second), cmp.Or(p.MaxStay, 30*time.Second)
	p.TurnWait = cmp.Or(p.TurnWait, 5*time.Second)
	p.SwitchShare = cmp.Or(p.SwitchShare, 2)
	p.IdleGrace = cmp.Or(p.IdleGrace, 250*time.Millisecond)
	p.ScaleUpAfter = cmp.Or(p.ScaleUpAfter, 100*time.Millisecond)
	p.Drain = cmp.Or(p.Drain, 2*time.Minute)
	p.GrantLife, p.GrantGrace = cmp.Or(p.GrantLife, 10*time.Minute), cmp.Or(p.GrantGrace, 50*time.Millisecond)
	p.Advice.Place = cmp.Or(p.Advice.Place, "this machine")
	p.Advice.Memory = cmp.Or(p.Advice.Memory, "raise --memory")
	p.Advice.Devices = cmp.Or(p.Advice.Devices, "lower nvidia.com/gpu in the manifest, or check nvidia-smi")
	return p
}

// Validate reports what is wrong with p.
func (p Policy) Validate() error {
	var errs []error
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"minimum stay", p.MinStay}, {"maximum stay", p.MaxStay}, {"turn wait", p.TurnWait}, {"idle grace", p.IdleGrace},
		{"scale-up after", p.ScaleUpAfter}, {"drain", p.Drain}, {"grant life", p.GrantLife},
		{"grant grace", p.GrantGrace},
	} {
		if d.value < 0 {
			errs = append(errs, fmt.Errorf("%s: want at least 0, have %s", d.name, d.value))
		}
	}
	if p.SwitchShare < 0 {
		errs = append(errs, errors.New("policy: the switch share must be at least 0"))
	}
	return errors.Join(errs...)
}

// Scale is the number of awake instances that an external autoscaler or a person wants: floor and ceiling within
// min-scale and max-scale until it ends. With 0, requests are held and start nothing. The zero value is no such wish.
type Scale struct {
	Replicas int
	Until    time.Time
	By       string // for display; empty: unknown
}

// On reports whether it applies at now.
func (s Scale) On(now time.Time) bool { return s.Until.After(now) }

// String is for reasons.
func (s Scale) String() string { return admin.Override(s).String() }

// Bound returns the number within the function's own bounds.
func (s Scale) Bound(spec api.Function) int {
	return max(spec.MinScale, min(s.Replicas, max(1, spec.MaxScale)))
}
