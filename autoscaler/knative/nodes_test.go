package knative

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
)

func TestDevicesGetTheirNames(t *testing.T) {
	inCluster(t, 0, nil, func(t *testing.T, c *cluster) {
		if d := c.fleet.Devices(); len(d) != 3 || d[0].Capacity != 8*api.GiB || d[1].ID != "node1/gpu-0" || d[2].Capacity != api.GiB {
			t.Fatalf("got %+v", d)
		}
		c.declare(scaling{initialized: true})
		id, err := c.begin("tiny-00001-0001", api.Grant{Devices: []api.DeviceID{"node1/gpu-1"}})()
		if err != nil {
			t.Fatal(err)
		}
		c.addressed(string(id), "10.0.0.1")
		if _, err := c.join(string(id), "10.0.0.1", "GPU-aa::3"); err != nil {
			t.Fatal(err)
		}
		c.mu.Lock()
		d := c.devices
		c.mu.Unlock()
		if len(d) != 3 || d[1].ID != "node1/gpu-0" || d[2].ID != "GPU-aa" || d[2].Was != "node1/gpu-1" {
			t.Errorf("got %+v, want the granted one under its own name", d)
		}
		_ = c.report(string(id), "10.0.0.1", api.Awake, 3)
		if s := c.last(string(id)); !slices.Equal(s.Devices, []api.DeviceID{"GPU-aa"}) {
			t.Errorf("the core heard of the devices %v", s.Devices)
		}
	})
}

// TestAGPUInThePlaceOfAnother: two pods were granted the GPU that the node had when its pods last named them. The first that
// joins says which one is there now, and what was planned for the old one is planned for that.
func TestAGPUInThePlaceOfAnother(t *testing.T) {
	inCluster(t, 0, nil, func(t *testing.T, c *cluster) {
		c.fleet.mu.Lock()
		c.fleet.nodes.byName["node1"].ids, c.fleet.nodes.byName["node1"].shared = []api.DeviceID{"GPU-old"}, true
		c.fleet.mu.Unlock()
		c.declare(scaling{initialized: true})
		var pods []string
		for k, name := range []api.InstanceID{"a", "b"} {
			id, err := c.begin(name, api.Grant{Epoch: uint64(k + 1), Devices: []api.DeviceID{"GPU-old"}})()
			if err != nil {
				t.Fatal(err)
			}
			pods = append(pods, string(id))
			c.addressed(string(id), fmt.Sprintf("10.0.0.%d", k+1))
		}
		if _, err := c.join(pods[0], "10.0.0.1", "GPU-new"); err != nil {
			t.Fatal(err)
		}
		c.mu.Lock()
		d := slices.Clone(c.devices)
		c.mu.Unlock()
		if len(d) != 2 || d[1].ID != "GPU-new" || d[1].Was != "GPU-old" {
			t.Errorf("got %+v, want GPU-new in the place of GPU-old", d)
		}
		if a, err := c.join(pods[1], "10.0.0.2", "GPU-new"); err != nil || a.Asleep {
			t.Errorf("the second joins with %+v and %v, want it to come up where its room is", a, err)
		}
	})
}

// TestAPodMakesNoDevices: a node has as many GPUs as Kubernetes says, whatever its pods call them.
func TestAPodMakesNoDevices(t *testing.T) {
	inCluster(t, 2, nil, func(t *testing.T, c *cluster) {
		c.declare(scaling{initialized: true})
		c.addressed("pod-1", "10.0.0.1")
		c.addressed("pod-2", "10.0.0.2")
		devices := func() string {
			c.mu.Lock()
			defer c.mu.Unlock()
			var ids []string
			for _, d := range c.devices[1:] {
				ids = append(ids, string(d.ID))
			}
			return strings.Join(ids, " ")
		}
		for _, step := range []struct {
			pod, ip string
			says    api.DeviceID
			want    string
		}{
			{"pod-1", "10.0.0.1", "GPU-a", "GPU-a node1/gpu-1"},
			{"pod-2", "10.0.0.2", "GPU-b", "GPU-a GPU-b"},
			{"pod-2", "10.0.0.2", "GPU-c", "GPU-a GPU-c"}, // it was replaced: nobody else has it
			{"pod-2", "10.0.0.2", "GPU-a", "GPU-a GPU-c"},
			{"pod-1", "10.0.0.1", "GPU-d", "GPU-a GPU-d"},
			{"pod-1", "10.0.0.1", "GPU-e", "GPU-a GPU-e"},
		} {
			if _, err := c.join(step.pod, step.ip, step.says); err != nil {
				t.Fatal(err)
			}
			if got := devices(); got != step.want {
				t.Errorf("%s says %s: got %s, want %s", step.pod, step.says, got, step.want)
			}
		}
		if _, err := c.join("pod-2", "10.0.0.2", "GPU-f", "GPU-g", "GPU-h"); err != nil {
			t.Fatal(err)
		}
		if got := devices(); len(strings.Fields(got)) != 2 {
			t.Errorf("got the devices %s, want two of them", got)
		}
	})
}

// gpus are those that the core was told of last, with what they were called before.
func (c *cluster) gpuNames() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var names []string
	for _, d := range c.devices[1:] {
		names = append(names, strings.TrimSuffix(string(d.ID)+" was "+string(d.Was), " was "))
	}
	return names
}

// TestANameThatComesBack: a GPU had another in its place, and is there again beside it. Its holder keeps it.
func TestANameThatComesBack(t *testing.T) {
	inCluster(t, 2, nil, func(t *testing.T, c *cluster) {
		c.declare(scaling{initialized: true})
		c.addressed("pod-1", "10.0.0.1")
		c.addressed("pod-2", "10.0.0.2")
		for _, step := range []struct {
			pod, ip string
			says    []api.DeviceID
			want    []string
		}{
			{"pod-1", "10.0.0.1", []api.DeviceID{"GPU-a", "GPU-b"}, []string{"GPU-a was node1/gpu-0", "GPU-b was node1/gpu-1"}},
			{"pod-1", "10.0.0.1", []api.DeviceID{"GPU-c", "GPU-d"}, []string{"GPU-c was GPU-a", "GPU-d was GPU-b"}},
			{"pod-1", "10.0.0.1", []api.DeviceID{"GPU-c"}, []string{"GPU-c was GPU-a", "GPU-d was GPU-b"}},
			{"pod-2", "10.0.0.2", []api.DeviceID{"GPU-a"}, []string{"GPU-c", "GPU-a was GPU-d"}},
		} {
			if _, err := c.join(step.pod, step.ip, step.says...); err != nil {
				t.Fatal(err)
			}
			if got := c.gpuNames(); !slices.Equal(got, step.want) {
				t.Errorf("%s says %s: got %q, want %q", step.pod, step.says, got, step.want)
			}
		}
	})
}

// TestAGPULessWhileItIsHeld: a GPU that a node has lost goes when its last pod does, without news of the node.
func TestAGPULessWhileItIsHeld(t *testing.T) {
	inCluster(t, 2, nil, func(t *testing.T, c *cluster) {
		c.declare(scaling{initialized: true})
		for k, name := range []string{"pod-1", "pod-2"} {
			ip := fmt.Sprintf("10.0.0.%d", k+1)
			c.runs(name, ip)
			if _, err := c.join(name, ip, api.DeviceID("GPU-"+name)); err != nil {
				t.Fatal(err)
			}
		}
		c.fleet.mu.Lock()
		n := c.fleet.nodes.byName["node1"]
		n.count = 1
		c.fleet.nodes.dropExcess("node1")
		had := slices.Clone(n.ids)
		c.fleet.mu.Unlock()
		if !slices.Equal(had, []api.DeviceID{"GPU-pod-1", "GPU-pod-2"}) {
			t.Fatalf("the node has %q, want the one that pod-2 holds too", had)
		}
		c.deletePod("pod-2")
		c.end("pod-2")
		if got := c.gpuNames(); len(got) != 1 || !strings.HasPrefix(got[0], "GPU-pod-1") {
			t.Errorf("the core has %q, want the GPU that is left", got)
		}
	})
}
