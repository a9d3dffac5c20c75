package decide_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
)

// TestShare: what several have in common is charged once, whatever they say and in whatever order they are named.
func TestShare(t *testing.T) {
	type claim struct{ host, shared api.Bytes }
	for name, c := range map[string]struct {
		claims []claim
		want   string // what is borne of each, and by each for others
	}{
		"one":                    {[]claim{{10, 8}}, "0/0"},
		"two":                    {[]claim{{10, 8}, {10, 8}}, "0/8 8/0"},
		"four":                   {[]claim{{10, 8}, {11, 8}, {12, 8}, {9, 8}}, "0/8 8/0 8/0 8/0"},
		"one has more in memory": {[]claim{{10, 4}, {10, 8}}, "4/0 0/4"},
		"more than all it uses":  {[]claim{{10, 8}, {5, 1000}}, "0/5 5/0"},
		"nothing left":           {[]claim{{10, 8}, {10, -8}}, "0/0 0/0"},
	} {
		var all []*decide.Instance
		for k, c := range c.claims {
			i := &decide.Instance{}
			i.Status.Instance, i.Status.Memory.Host = api.InstanceID(fmt.Sprint(k)), c.host
			i.Status.Shared = api.SharedMemory{File: "f", Bytes: c.shared}
			all = append(all, i)
		}
		for range 2 {
			turned := slices.Clone(all)
			slices.Reverse(turned)
			decide.Share(turned)
			got := ""
			for _, i := range all {
				got += fmt.Sprintf(" %d/%d", i.Borne, i.Common)
			}
			if got[1:] != c.want {
				t.Errorf("%s: got%s, want %s", name, got, c.want)
			}
			slices.SortFunc(all, func(a, b *decide.Instance) int { return int(a.Status.Instance[0]) - int(b.Status.Instance[0]) })
		}
	}
}
