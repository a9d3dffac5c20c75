package supervise_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/supervise"
)

// keeper is a runtime that keeps that much of its prefix cache in a sleep.
type keeper struct {
	*world
	kept api.Tokens
}

func (k *keeper) Kept() api.Tokens { return k.kept }

// TestKept: a sleeping instance reports what its runtime has kept, and nothing once it is awake.
func TestKept(t *testing.T) {
	w := &world{traits: inPlace}
	k := &keeper{world: w}
	run(t, w, func(t *testing.T, s *supervise.Supervisor) {
		for n, tc := range []struct {
			kept api.Tokens
			want *api.Load
		}{{640, &api.Load{Cached: 640, CacheKnown: true}}, {0, nil}} {
			k.kept = tc.kept
			epoch := uint64(2 + 2*n)
			wantCode(t, "sleep", sleep(s, epoch, 1, second), "")
			if diff := cmp.Diff(tc.want, s.Status().Load); diff != "" {
				t.Errorf("asleep with %d tokens kept (-want +got):\n%s", tc.kept, diff)
			}
			wantCode(t, "wake", wake(s, epoch+1), "")
			if l := s.Status().Load; l != nil {
				t.Errorf("awake it says %+v", l)
			}
		}
	}, func(c *supervise.Config) { c.Runtime = k })
}
