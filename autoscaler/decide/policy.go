package decide

import (
	"errors"
	"fmt"
	"time"
)

// Validate reports what is wrong with p, nil if nothing is.
func (p Policy) Validate() error {
	var errs []error
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"minimum stay", p.MinStay}, {"maximum stay", p.MaxStay}, {"turn wait", p.TurnWait}, {"idle grace", p.IdleGrace},
		{"scale-up after", p.ScaleUpAfter}, {"load settle", p.LoadSettle}, {"drain", p.Drain}, {"grant life", p.GrantLife},
		{"grant grace", p.GrantGrace}, {"slack", p.Slack},
	} {
		if d.value < 0 {
			errs = append(errs, fmt.Errorf("%s: want at least 0, have %s", d.name, d.value))
		}
	}
	if p.SwitchShare < 0 || p.Patience < 0 || p.MaxFailures < 0 {
		errs = append(errs, errors.New("policy: switch share, patience and maximum of failures must be at least 0"))
	}
	if p.SleepersPerDevice < 0 {
		errs = append(errs, fmt.Errorf("sleepers for each GPU: want at least 0, have %d", p.SleepersPerDevice))
	}
	if !(p.ResidueShare >= 0 && p.ResidueShare <= 1) { // not a number either
		errs = append(errs, fmt.Errorf("residue share: want 0 to 1, have %g", p.ResidueShare))
	}
	return errors.Join(errs...)
}
