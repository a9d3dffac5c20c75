package verb

import (
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api/admin"
)

func TestPrintClusters(t *testing.T) {
	var out strings.Builder
	if err := printClusters(&out, []admin.Cluster{
		{Name: "attic", State: admin.ClusterAway},
		{Name: "desk", State: admin.ClusterJoined, Since: time.Now().Add(-90 * time.Second), Agents: []admin.ClusterAgent{{Way: 12345 * time.Microsecond}, {Way: 345 * time.Microsecond}}, Functions: []string{"default/a", "default/b"}, Awake: 1, Running: 3, Refused: []string{"default/z: it is not declared"}},
		{Name: "fronts", State: admin.ClusterJoined, Front: true},
	}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"CLUSTER STATE AGENTS LATENCY MODELS AWAKE RUNNING SINCE",
		"attic away 0 - 0 0 0 never",
		"desk joined 2 350µs 2 1 3 1m30s ago",
		"fronts (front door) joined 0 - 0 0 0 never",
		"desk is refused default/z: it is not declared",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	out.Reset()
	if err := printClusters(&out, nil); err != nil || !strings.Contains(out.String(), "No clusters are declared here") {
		t.Errorf("%q, %v", out.String(), err)
	}
}
