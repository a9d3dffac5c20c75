package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Each wake waits for the canary's tokens.
const maxCanary = 64

// Knative's, with its bounds.
var idleKeys = []struct {
	key, older  string
	least, most time.Duration
}{
	{"window", "", 6 * time.Second, time.Hour},
	{"scale-down-delay", "scaleDownDelay", 0, time.Hour},
	{"scale-to-zero-pod-retention-period", "scaleToZeroPodRetentionPeriod", 0, time.Hour},
}

// An instance sleeps after the window (or our default) plus both delays, unless [AnnotationSleepAfter] is set. A
// metric other than concurrency is an error.
func fromKnative(f *api.Function, value func(key string) (string, bool)) error {
	idle := DefaultSleepAfter
	for _, k := range idleKeys {
		text, found := value(scalingPrefix + k.key)
		if !found && k.older != "" {
			text, found = value(scalingPrefix + k.older)
		}
		if !found {
			continue
		}
		d, err := time.ParseDuration(text)
		if err != nil || d < k.least || d > k.most {
			return fmt.Errorf("annotation %s%s: %.100q: want a duration from %s to %s", scalingPrefix, k.key, text, k.least, k.most)
		}
		if k.key == "window" {
			idle = 0
		}
		idle += d
	}
	if _, own := value(AnnotationSleepAfter); !own {
		f.SleepAfter = idle
	}
	if metric, found := value(scalingPrefix + "metric"); found && metric != "concurrency" {
		return fmt.Errorf("annotation %smetric: %.100q: a function is scaled by the requests that it has at once: want concurrency, or leave it out", scalingPrefix, metric)
	}
	return nil
}

func price(s string) (float64, error) {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || !(v > 0) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%q: want a price above 0, such as 2.5", s)
	}
	return v, nil
}

// The content is checked where the pod is created.
func providerPatch(s string) (string, error) {
	var patch map[string]json.RawMessage
	if err := json.Unmarshal([]byte(s), &patch); err != nil || patch == nil {
		return "", fmt.Errorf(`%.100q: want a JSON object, such as {"spec":{"containers":[…]}}`, s)
	}
	return s, nil
}

// on means true.
func oneOf(to *bool, off, on string) field {
	return field{func(s string) error {
		if s != off && s != on {
			return fmt.Errorf("%q: want %s or %s", s, off, on)
		}
		*to = s == on
		return nil
	}, func() string {
		if *to {
			return on
		}
		return off
	}}
}

// In the field, 0 means the runtime's default, and -1 none.
func (f *target) setCanaryTokens(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > maxCanary {
		return fmt.Errorf("%q: want a whole number from 0 to %d", s, maxCanary)
	}
	f.CanaryTokens = n
	if n == 0 {
		f.CanaryTokens = -1
	}
	return nil
}

func (f *target) canaryTokens() string {
	if f.CanaryTokens == 0 {
		return ""
	}
	return strconv.Itoa(max(0, f.CanaryTokens))
}

// Invalid fields are cleared.
func checkTogether(f *api.Function) error {
	var wrong problems
	if f.DualPods && f.Memory.Devices < 1 {
		f.DualPods = false
		wrong.add(fmt.Errorf("annotation %s: an instance claims no GPU: give the container a limit nvidia.com/gpu of at least 1, or another maker's, or leave the annotation out", AnnotationDualPods))
	} else if f.ProviderPatch != "" && !f.DualPods {
		f.ProviderPatch = ""
		wrong.add(fmt.Errorf("annotation %s: it patches the second of dual pods, and the function has one: add %s: \"true\", or leave the annotation out", AnnotationProviderPatch, AnnotationDualPods))
	}
	name := cmp.Or(f.Model, api.ModelName(f.ServiceName().Name()))
	if f.VariantOf != "" && f.VariantOf == name {
		f.VariantOf = ""
		wrong.add(fmt.Errorf("annotation %s: %q is the function's own name: give the function a name of its own (%s), the model's is for all variants together", annotationVariantOf, name, AnnotationServedName))
	}
	if err := f.Runtime.CheckAdapters(); err != nil {
		f.Runtime.Adapters = nil
		wrong.add(fmt.Errorf("annotation %s: %w", AnnotationAdapters, err))
	}
	return wrong.join()
}

// boundScales lowers the scales above the largest.
func boundScales(f *api.Function) (errs []error) {
	for _, s := range []struct {
		name string
		n    *int
	}{{AnnotationMinScale, &f.MinScale}, {annotationActivationScale, &f.ActivationScale}} {
		if f.MaxScale > 0 && *s.n > f.MaxScale {
			errs = append(errs, fmt.Errorf("%s is %d and %s is %d: the first can't be larger", s.name, *s.n, AnnotationMaxScale, f.MaxScale))
			*s.n = f.MaxScale
		}
	}
	return errs
}
