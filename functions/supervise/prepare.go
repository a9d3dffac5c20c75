package supervise

import (
	"context"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/runtime"
)

const progressInterval = 200 * time.Millisecond

func (s *Supervisor) prepareModel() {
	s.phase = fetching
	s.coming.begin(api.StepFetching)
	s.cfg.Log.Mark() // output of an earlier process explains nothing now
	s.enterState(api.Starting, api.StepFetching)
	s.gate.expect(s.expectedFetching(0, time.Now()))
	s.beginOperation(opFetch)
}

// reportShare returns the function that a preparation reports to. It passes a share on to the owner if the last one is old enough.
func (o *operation) reportShare(ctx context.Context) func(float64) {
	var mu sync.Mutex // guards last: parts of a model may arrive concurrently
	var last time.Time
	return func(share float64) {
		mu.Lock()
		defer mu.Unlock()
		if now := time.Now(); now.Sub(last) >= progressInterval {
			last = now
			o.tell(ctx, func(s *Supervisor) { s.noteShare(share) })
		}
	}
}

func (s *Supervisor) noteShare(share float64) {
	if s.phase != fetching || !(share >= 0) { // also false for NaN
		return
	}
	share = min(share, 1)
	s.gate.expect(s.expectedFetching(share, time.Now()))
	s.reports.send(s.reports.change(func(st *api.InstanceStatus) { st.Progress = share }))
}

// finishFetch: 1. another state is wanted, or was meanwhile: step goes on without a process; 2. the fetch failed; 3. the process is
// started.
func (s *Supervisor) finishFetch(op *operation, r result) {
	s.phase = off
	switch {
	case s.want.state != api.Awake && !s.proc.attached, s.want.state == api.Gone, r.err != nil && op.stopped: // 1.
	case r.err != nil: // 2.
		s.startFailed("the model could not be made ready: "+r.err.Error(), runtime.Permanent(r.err))
	default: // 3.
		s.launchRuntime(op.model)
	}
}
