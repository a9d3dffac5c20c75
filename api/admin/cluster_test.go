package admin

import (
	"reflect"
	"testing"
	"time"
)

func TestMergeClusters(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	x := []Cluster{
		{Name: "desk", State: ClusterJoined, Since: at(5), Agents: []ClusterAgent{{Name: "a"}}, Functions: []string{"default/b"}, Awake: 1, Running: 1, Refused: []string{"default/z"}},
		{Name: "rack", State: ClusterAway, Since: at(7)},
	}
	y := []Cluster{
		{Name: "rack", State: ClusterLeaving, Since: at(2)},
		{Name: "desk", State: ClusterJoined, Since: at(3), Agents: []ClusterAgent{{Name: "b"}}, Functions: []string{"default/a", "default/b"}, Running: 2},
		{Name: "attic", State: ClusterAway, Since: at(1)},
	}
	z := []Cluster{{Name: "attic", State: ClusterAway, Since: at(4)}, {Name: "desk", State: ClusterAway, Since: at(9)}}
	want := []Cluster{
		{Name: "attic", State: ClusterAway, Since: at(4)},
		{Name: "desk", State: ClusterJoined, Since: at(3), Agents: []ClusterAgent{{Name: "a"}, {Name: "b"}}, Functions: []string{"default/a", "default/b"}, Awake: 1, Running: 3, Refused: []string{"default/z"}},
		{Name: "rack", State: ClusterLeaving, Since: at(2)},
	}
	got := MergeClusters(x, y, z)
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i := range want {
		if len(got[i].Functions) == 0 {
			got[i].Functions = nil
		}
		if len(got[i].Refused) == 0 {
			got[i].Refused = nil
		}
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("got  %+v\nwant %+v", got[i], want[i])
		}
	}
	if got := MergeClusters(); len(got) != 0 {
		t.Errorf("of nobody: %+v", got)
	}
}
