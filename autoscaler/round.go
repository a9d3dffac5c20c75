package autoscaler

import (
	"time"

	"github.com/rouse-dev/rouse/api"
)

type round struct{}

func (r *round) begin(a *Autoscaler, now time.Time, step time.Duration) {}
func (r *round) took(in input)                                          {}
func (r *round) decided(d api.Decision)                                 {}
func (r *round) end()                                                   {}
func (a *Autoscaler) startRecorder() func()                             { return func() {} }
