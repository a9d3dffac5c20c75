package decide

import (
	"fmt"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// BenchmarkPlan measures one plan with 100 functions and 200 instances: quiet,
// and with ten functions that want room which has to be made.
func BenchmarkPlan(b *testing.B) {
	world := func() *sim {
		s := newSim()
		s.Devices[0].Capacity = 110 * api.GiB
		for k := range 100 {
			name := fmt.Sprintf("f%03d", k)
			s.declare(api.Function{Name: api.NewFunctionName("", name), Memory: api.Memory{Host: api.GiB}, SleepAfter: time.Minute, UnloadAfter: time.Hour}.WithDefaults())
		}
		for k := range 100 {
			for j := range 2 {
				i := Instance{Since: s.now.Add(-10 * time.Second), Status: api.InstanceStatus{
					Instance: api.InstanceID(fmt.Sprintf("f%03d-%d", k, j)), Function: api.NewFunctionName("", fmt.Sprintf("f%03d", k)), State: api.Awake}}
				if j == 1 || k%10 == 0 {
					i.Status.State, i.Status.Level = api.Asleep, 1
				}
				s.weigh(&i)
				s.Instances = append(s.Instances, i)
			}
		}
		s.Sort()
		return s
	}
	b.Run("quiet", func(b *testing.B) {
		s := world()
		s.Devices[0].Capacity = 90 * api.GiB // nothing is left to grant
		b.ReportAllocs()
		for b.Loop() {
			s.records.plan(s.now)
		}
	})
	b.Run("wake", func(b *testing.B) {
		s := world()
		s.Functions[50].Waiting, s.Functions[50].WaitingSince = 1, s.now
		b.ReportAllocs()
		for b.Loop() {
			if as, _ := s.records.plan(s.now); as[0].Kind != Wake {
				b.Fatal(as)
			}
		}
	})
	b.Run("ten victims", func(b *testing.B) {
		s := world()
		s.Devices[0].Capacity = 90 * api.GiB
		for k := 0; k < 100; k += 10 {
			s.Functions[k].Waiting, s.Functions[k].WaitingSince = 1, s.now
		}
		b.ReportAllocs()
		for b.Loop() {
			if as, _ := s.records.plan(s.now); len(as) < 20 {
				b.Fatal(as)
			}
		}
	})
}
