package autoscaler

import (
	"context"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/autoscaler/usage"
)

// holds tells the meter what the instances of a function hold.
func (a *Autoscaler) holds(name api.FunctionName, now time.Time) {
	f := a.functions[name]
	if f == nil {
		return
	}
	for _, i := range f.Instances {
		s := &i.Status
		h := usage.Holder{Instance: s.Instance, Function: name, Asleep: s.State == api.Asleep && !i.BeingWoken(), Devices: s.Devices, Bytes: s.Memory.PerDevice}
		if !h.Asleep {
			h.Bytes = max(h.Bytes, f.Need.PerDevice)
		}
		a.usage.Set(now, h)
	}
}

// Usage is who has used what, since this process began to decide at the earliest. It waits like [Autoscaler.List].
func (a *Autoscaler) Usage(q admin.UsageQuery) admin.Usage {
	u, _ := ask(context.Background(), a, func() admin.Usage { return a.usage.Report(time.Now(), q) })
	return u
}
