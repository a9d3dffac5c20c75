package decide

import (
	"fmt"
	"net/http"

	"github.com/rouse-dev/rouse/api"
)

// Impossible says why f can never have an instance on these devices; empty: it can.
func (t *Topology) Impossible(f *Function) string {
	if len(t.devs) == 0 {
		return ""
	}
	reason, _ := t.impossible(f, Advice{})
	return reason
}

// impossible says why f can never have an instance on these devices; the error is nil if it can. The number of GPUs it
// needs is declared; the memory it needs of them may be a guess. An instance is on one node, so the largest one counts.
func (t *Topology) impossible(f *Function, advice Advice) (string, *api.Error) {
	need, largest := f.Need, t.largest
	of, show := "", "shows"
	if len(t.nodes) > 1 {
		of, show = " on one node", "shows, on its largest node,"
	}
	if f.Certain && need.Host > largest {
		there := "there are " + largest.String()
		if of != "" {
			there = "the largest node has " + largest.String()
		}
		return fmt.Sprintf("needs %s of host memory%s, %s", need.Host, of, there),
			noCapacity("%s needs %s of host memory for one instance and may use %s: %s, or lower rouse.dev/memory",
				f.Spec.Name, need.Host, largest, advice.Memory)
	}
	if need.Devices == 0 {
		return "", nil
	}
	v := t.feasible(need)
	if v.gpus < need.Devices {
		there := fmt.Sprintf("there are %d", v.gpus)
		if of != "" {
			there = fmt.Sprintf("the largest node has %d", v.gpus)
		}
		return fmt.Sprintf("needs %s%s, %s", many(need.Devices, "GPU"), of, there),
			noCapacity("%s needs %s for one instance and %s %s %d: %s",
				f.Spec.Name, many(need.Devices, "GPU"), advice.Place, show, v.gpus, advice.Devices)
	}
	if v.fits || !f.Certain {
		return "", nil
	}
	if of != "" && v.large >= need.PerDevice {
		return fmt.Sprintf("needs %s on one node, and none has all of that", amountOf(need)),
			noCapacity("%s needs %s on one node and no node of %s has all of that: lower rouse.dev/memory or rouse.dev/device-memory",
				f.Spec.Name, amountOf(need), advice.Place)
	}
	return fmt.Sprintf("needs %s on each of %s, the largest has %s", need.PerDevice, many(need.Devices, "GPU"), v.large),
		noCapacity("%s needs %s on each of %s and the largest has %s: lower rouse.dev/device-memory",
			f.Spec.Name, need.PerDevice, many(need.Devices, "GPU"), v.large)
}

func noCapacity(format string, args ...any) *api.Error {
	e := api.Errorf(http.StatusServiceUnavailable, api.CodeNoCapacity, format, args...)
	e.NoRetry = true
	return e
}

// feasibility tells whether a need can ever be met.
type feasibility struct {
	fits bool
	// gpus is the number of GPUs of the largest node; large is the memory of the largest GPU.
	gpus  int
	large api.Bytes
}

// feasible computes whether any node can hold need, if it were empty.
func (t *Topology) feasible(need api.Memory) (v feasibility) {
	for _, k := range t.kinds {
		n := &t.nodes[k]
		gpus, fit := 0, 0
		for _, d := range n.gpus {
			if !t.devs[d].Joins(need.Devices) {
				continue
			}
			gpus++
			v.large = max(v.large, t.devs[d].Capacity)
			if t.devs[d].Capacity >= need.PerDevice {
				fit++
			}
		}
		v.gpus = max(v.gpus, gpus)
		v.fits = v.fits || fit >= need.Devices && t.devs[n.host].Capacity >= need.Host
	}
	return v
}
