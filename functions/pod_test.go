package functions

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
)

func TestPod(t *testing.T) {
	for name, tt := range map[string]struct {
		namespace, resolver string
		want                Pod
	}{
		"a pod":              {"team\n", "search team.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\noptions ndots:5\n", Pod{Namespace: "team", Domain: "cluster.local"}},
		"no service account": {"", "nameserver 10.96.0.10\nsearch team.svc.corp.example. svc.corp.example. corp.example.\n", Pod{Namespace: "team", Domain: "corp.example"}},
		"the last search":    {"", "search old.svc.old svc.old\nsearch example.com", Pod{Namespace: "old", Domain: ""}},
		"no cluster":         {"", "search example.com a.b.svc.c\nnameserver 127.0.0.1", Pod{}},
		"nothing":            {"", "", Pod{}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, podOf([]byte(tt.namespace), []byte(tt.resolver))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestVisibleDevices(t *testing.T) {
	for visible, want := range map[string][]api.DeviceID{
		"": nil, "all": nil, "void": nil, "none": nil,
		"GPU-a":                  {"GPU-a"},
		"GPU-a,GPU-b":            {"GPU-a", "GPU-b"},
		"GPU-a::0, GPU-a::7,":    {"GPU-a"},
		"MIG-1::3,GPU-b::1,void": {"MIG-1", "GPU-b"},
	} {
		if diff := cmp.Diff(want, VisibleDevices(visible)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", visible, diff)
		}
	}
}
