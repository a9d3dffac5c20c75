package simulate

import (
	"cmp"
	"context"
	"slices"
	"time"
)

var ladder = []time.Duration{
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 3 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute,
	20 * time.Minute, 30 * time.Minute, 40 * time.Minute, time.Hour, 2 * time.Hour, Forever,
}

// Search runs p with every Keep, and returns the run with the fewest GPU-hours whose p95 time to first token is at most
// target; if there is none the fastest, with TargetMet false.
//
// Policies with sleepers have KeepSlow in addition: models that don't wake within the target may stay longer. Without
// sleepers every return is longer than any reasonable target.
func Search(ctx context.Context, cfg Config, trace Trace, horizon time.Duration, p Policy, target time.Duration) (Result, error) {
	record := cfg.Record
	cfg.Record = false
	p.Quick = target
	var best Result
	var at Policy
	try := func(keep, slow time.Duration) (Result, error) {
		p.Keep, p.KeepSlow = keep, slow
		r, err := Run(ctx, cfg, trace, horizon, p)
		if err != nil {
			return r, err
		}
		r.TargetMet = r.P95 <= float64(target)/float64(time.Millisecond)
		if at.Name == "" || better(r, best) {
			best, at = r, p
		}
		return r, nil
	}
	met := make(map[time.Duration]bool)
	for _, slow := range ladder {
		r, err := try(slow, slow)
		if err != nil {
			return Result{}, err
		}
		met[slow] = r.TargetMet
	}
	if p.sleeps() {
		for k, slow := range ladder {
			if !met[slow] {
				continue // a lower Keep makes nothing faster
			}
			for _, keep := range ladder[:k] { // a higher Keep costs more and is faster
				r, err := try(keep, slow)
				if err != nil {
					return Result{}, err
				}
				if r.TargetMet || best.TargetMet && r.GPUHours >= best.GPUHours {
					break
				}
			}
		}
	}
	if err := refine(&at, try); err != nil {
		return Result{}, err
	}
	if record {
		cfg.Record = true
		held := best.TargetMet
		var err error
		if best, err = Run(ctx, cfg, trace, horizon, at); err != nil {
			return Result{}, err
		}
		best.TargetMet = held
	}
	return best, nil
}

// refine searches between the values of the ladder. try updates at when it finds better ones.
func refine(at *Policy, try func(keep, slow time.Duration) (Result, error)) error {
	for _, both := range []bool{false, true, false, true} { // KeepSlow, then both, and again
		high, step := at.KeepSlow, time.Duration(0)
		if both {
			high = at.Keep
		}
		if k := slices.Index(ladder, high); k > 0 && high != Forever {
			step = high - ladder[k-1]
		}
		for range 3 {
			step /= 2
			slow := at.KeepSlow
			switch {
			case step < time.Second/4:
				continue
			case !both:
				slow -= step
			case at.Keep == at.KeepSlow:
				slow = at.Keep - step
			}
			keep := at.Keep
			if both || keep == at.KeepSlow {
				keep -= step
			}
			if _, err := try(keep, slow); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p Policy) sleeps() bool { return p.Name == "rouse" || p.Name == "random" }

func better(r, s Result) bool {
	switch {
	case r.TargetMet != s.TargetMet:
		return r.TargetMet
	case r.TargetMet:
		return cmp.Or(cmp.Compare(r.GPUHours, s.GPUHours), cmp.Compare(r.P95, s.P95)) < 0
	}
	return cmp.Or(cmp.Compare(r.P95, s.P95), cmp.Compare(r.GPUHours, s.GPUHours)) < 0
}
