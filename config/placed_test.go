package config_test

import (
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config"
)

// TestPlaced checks that other clusters get a revision's Service and read from it what was declared.
func TestPlaced(t *testing.T) {
	source := revision(`{"containerConcurrency": 3, "timeoutSeconds": 300, "responseStartTimeoutSeconds": 300, "enableServiceLinks": false, "volumes": [{"name": "v", "emptyDir": {}}],
		"containers": [{"name": "user-container", "image": "dev.local/rouse-vllm:v1", "args": ["--", "--max-model-len", "99"], "ports": [{"containerPort": 8080}],
			"readinessProbe": {"successThreshold": 1}, "volumeMounts": [{"name": "v", "mountPath": "/v"}], "resources": {"requests": {"memory": "2Gi"}, "limits": {"nvidia.com/gpu": "2"}}}]}`,
		map[string]string{
			"autoscaling.knative.dev/class": "gpu.autoscaling.rouse.dev", "autoscaling.knative.dev/max-scale": "3", "autoscaling.knative.dev/initial-scale": "0",
			"serving.knative.dev/creator": "somebody", "rouse.dev/runtime": "vllm", "rouse.dev/model": "Qwen/Qwen3-0.6B", "rouse.dev/clusters": "gpu in (h100)", "rouse.dev/remove-after": "30m",
		})
	adapters, err := config.Adapters("fr=/adapters/fr")
	if err != nil {
		t.Fatal(err)
	}
	source.Adapters = &adapters
	got, err := config.Placed(source)
	if err != nil {
		t.Fatal(err)
	}
	if got.Name != "team/tiny" || got.Service != "" || got.Model != "tiny" || got.Clusters != "gpu in (h100)" || got.RemoveAfter.Minutes() != 30 || got.Memory.Devices != 2 || got.RequestTimeout != 0 {
		t.Errorf("%+v", got)
	}
	if strings.Contains(got.Manifest, "somebody") || strings.Contains(got.Manifest, "volume") {
		t.Errorf("the manifest has what is its own cluster's:\n%s", got.Manifest)
	}
	there, err := config.Here(got.Manifest, "a front door", ".")
	if err != nil {
		t.Fatal(err)
	}
	if there.Name != got.Name || there.Clusters != "" || there.Runtime.Kind != api.RuntimeVLLM || there.Concurrency != 3 || there.MaxScale != 3 || strings.Join(there.Runtime.Args, " ") != "--max-model-len 99" ||
		len(there.Runtime.Adapters) != 1 || there.Memory.Host != 2*api.GiB {
		t.Errorf("there it is %+v", there)
	}
}

// TestPlacedBadly checks the errors for what another cluster could not have.
func TestPlacedBadly(t *testing.T) {
	for spec, want := range map[string]string{
		`[]`:                 "read the spec",
		`{"containers": []}`: "0 entries",
		`{"containers": [{"image": "i", "env": [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}]}]}`: "HF_TOKEN",
	} {
		if _, err := config.Placed(revision(spec, map[string]string{config.AnnotationClusters: "gpu", config.AnnotationModel: "pico"})); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", spec, err, want)
		}
	}
}
