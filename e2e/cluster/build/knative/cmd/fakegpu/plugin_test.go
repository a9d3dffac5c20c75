package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

func TestOffers(t *testing.T) {
	a, b := "GPU-a", "GPU-b"
	for _, tt := range []struct {
		name   string
		config config
		want   []string
	}{
		{"none", config{replicas: 1}, nil},
		{"exclusive", config{gpus: []string{a, b}, replicas: 1}, []string{a, b}},
		{"shared", config{gpus: []string{a, b}, replicas: 2}, []string{a + "::0", a + "::1", b + "::0", b + "::1"}},
	} {
		if diff := cmp.Diff(tt.want, tt.config.offers()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestAllocate(t *testing.T) {
	a, b := "GPU-a", "GPU-b"
	p := plugin{config: config{gpus: []string{a, b}, replicas: 2}}
	answer, err := p.Allocate(t.Context(), &deviceplugin.AllocateRequest{ContainerRequests: []*deviceplugin.ContainerAllocateRequest{
		{DevicesIds: []string{a + "::1"}}, {DevicesIds: []string{b + "::0", a + "::0", b + "::1"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range answer.ContainerResponses {
		got = append(got, c.Envs["NVIDIA_VISIBLE_DEVICES"])
	}
	if diff := cmp.Diff([]string{a, b + "," + a}, got); diff != "" {
		t.Errorf("what containers see (-want +got):\n%s", diff)
	}
	_, err = p.Allocate(t.Context(), &deviceplugin.AllocateRequest{ContainerRequests: []*deviceplugin.ContainerAllocateRequest{
		{DevicesIds: []string{a}}, // without a suffix it is none of those offered
	}})
	if err == nil || !strings.Contains(err.Error(), "no device is called") {
		t.Errorf("an unknown device: got %v", err)
	}
}

// A node without devices has no labels of theirs.
func TestLabels(t *testing.T) {
	for name, value := range (config{replicas: 1, memory: 1}).labels() {
		if value != nil {
			t.Errorf("%s: got %q, want it removed", name, *value)
		}
	}
	got := config{gpus: []string{"GPU-a"}, replicas: 4, memory: 8192}.labels()
	for name, want := range map[string]string{
		"count": "1", "memory": "8192", "replicas": "4", "product": "Fake-GPU-SHARED", "present": "true",
	} {
		if v := got["nvidia.com/gpu."+name]; v == nil || *v != want {
			t.Errorf("nvidia.com/gpu.%s: got %v, want %q", name, v, want)
		}
	}
}

// Every share of a device is as healthy as the device.
func TestHealth(t *testing.T) {
	c := config{gpus: list("GPU-a,GPU-b"), lost: list("GPU-b"), replicas: 2}
	var got []string
	for _, id := range c.offers() {
		got = append(got, c.health(id))
	}
	want := []string{deviceplugin.Healthy, deviceplugin.Healthy, deviceplugin.Unhealthy, deviceplugin.Unhealthy}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("health (-want +got):\n%s", diff)
	}
}
