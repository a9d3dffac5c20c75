package config_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config"
)

func revision(spec string, annotations map[string]string) config.RevisionSource {
	return config.RevisionSource{Namespace: "team", Name: "tiny-00003", Service: "tiny", Annotations: annotations, Spec: []byte(spec)}
}

func TestRevisionReadsEveryField(t *testing.T) {
	source := revision(`{
		"containerConcurrency": 4, "timeoutSeconds": 300, "responseStartTimeoutSeconds": 300, "enableServiceLinks": false,
		"containers": [
			{"name": "side", "image": "vllm", "env": [{"name": "ROUSE_MODEL", "value": "not-ours"}],
			 "resources": {"requests": {"memory": "1Gi"}, "limits": {"memory": "2Gi", "nvidia.com/gpu.shared": 1}}},
			{"name": "user-container", "image": "dev.local/rouse-function:v1", "command": ["/function"],
			 "args": ["--served-model-name", "by-args", "--concurrency=3", "--", "--runtime=vllm", "--max-model-len", "99"],
			 "ports": [{"name": "h2c", "containerPort": 9000, "protocol": "TCP"}],
			 "env": [{"name": "ROUSE_RUNTIME", "value": "sglang"}, {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}, {"name": "ROUSE_MODEL", "value": "from-env"}],
			 "resources": {"requests": {"memory": "512Mi", "cpu": "100m"}, "limits": {"memory": "1Gi", "nvidia.com/gpu": "2", "example.com/nic": "1"}}}
		]}`, map[string]string{
		"autoscaling.knative.dev/class":         "gpu.autoscaling.rouse.dev",
		"autoscaling.knative.dev/minScale":      "1",
		"autoscaling.knative.dev/maxScale":      "7", // the newer name wins
		"autoscaling.knative.dev/max-scale":     "3",
		"autoscaling.knative.dev/initial-scale": "0",
		"serving.knative.dev/creator":           "somebody",
		"rouse.dev/runtime":                     "vllm",
		"rouse.dev/runtime-endpoint":            "http://127.0.0.1:8000",
		"rouse.dev/aliases":                     "gpt-4o-mini",
		"rouse.dev/request-timeout":             "20m",
		"rouse.dev/first-byte-timeout":          "1m",
		"rouse.dev/idle-timeout":                "30s",
		"rouse.dev/sleep-after":                 "0",
	})
	got, err := config.Revision(source)
	if err != nil {
		t.Fatal(err)
	}
	want := api.Function{
		Name: "team/tiny-00003", Service: "team/tiny", Model: "by-args", Aliases: []api.ModelName{"gpt-4o-mini"},
		Runtime:  api.Runtime{Kind: api.RuntimeVLLM, Model: "from-env", Endpoint: "http://127.0.0.1:8000"},
		MinScale: 1, MaxScale: 3, Concurrency: 3,
		Memory:      api.Memory{Host: 1536 * api.MiB, Devices: 3},
		UnloadAfter: config.DefaultUnloadAfter, SleepLevel: api.Level1,
		Hold:         api.Hold{Capacity: 1000, MaxBytes: 256 * api.MiB, Timeout: 5 * time.Minute},
		StartTimeout: 10 * time.Minute, WakeTimeout: time.Minute,
		RequestTimeout: 20 * time.Minute, FirstByteTimeout: time.Minute, IdleTimeout: 30 * time.Second,
		Origin: "revision team/tiny-00003",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if port := config.RevisionPort(source); port != 9000 {
		t.Errorf("port %d, want 9000", port)
	}
}

// TestConcurrency checks that the concurrency comes from the declaration or the server's settings, in a cluster and
// in a manifest.
func TestConcurrency(t *testing.T) {
	for _, tc := range []struct {
		spec, runtime string
		want          int
		by            string
	}{
		{`"containers": [{"image": "i", "args": ["--", "--max-num-seqs", "48"]}]`, "vllm", 48, "--max-num-seqs"},
		{`"containers": [{"image": "i", "command": ["vllm", "serve"], "args": ["m", "--max-num-seqs=48"]}]`, "", 48, "--max-num-seqs"},
		{`"containers": [{"image": "i", "env": [{"name": "OLLAMA_NUM_PARALLEL", "value": "2"}]}]`, "ollama", 2, "OLLAMA_NUM_PARALLEL"},
		{`"containers": [{"image": "i"}]`, "sglang", 64, "default for sglang"},
		{`"containerConcurrency": 3, "containers": [{"image": "i", "args": ["--", "--parallel", "5"]}]`, "llamacpp", 3, ""},
	} {
		annotations := map[string]string{config.AnnotationModel: "m"}
		if tc.runtime != "" {
			annotations[config.AnnotationRuntime] = tc.runtime
		}
		f, err := config.Revision(revision(`{`+tc.spec+`}`, annotations))
		if err != nil || f.Concurrency != tc.want || f.ConcurrencyBy != tc.by {
			t.Errorf("%s: %d by %q, %v; want %d by %q", tc.spec, f.Concurrency, f.ConcurrencyBy, err, tc.want, tc.by)
		}
		raw, _ := json.Marshal(annotations)
		list, err := config.Parse(strings.NewReader(fmt.Sprintf(`{"apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"template": {"metadata": {"annotations": %s}, "spec": {%s}}}}`, raw, tc.spec)), "m.yaml", ".")
		if err != nil || list[0].Concurrency != tc.want || list[0].ConcurrencyBy != tc.by {
			t.Errorf("%s in a manifest: %+v, %v; want %d by %q", tc.spec, list, err, tc.want, tc.by)
		}
	}
}

// TestTimeouts checks that timeouts mean the same in a revision and in a manifest, and that annotations override
// them.
func TestTimeouts(t *testing.T) {
	for _, tc := range []struct {
		fields           string
		annotations      map[string]string
		all, first, idle time.Duration
	}{
		{`"timeoutSeconds": 20, "responseStartTimeoutSeconds": 10`, nil, 20 * time.Second, 10 * time.Second, 0},
		{`"timeoutSeconds": 20, "idleTimeoutSeconds": 5`, nil, 20 * time.Second, 5 * time.Second, 5 * time.Second},
		{`"responseStartTimeoutSeconds": 10, "idleTimeoutSeconds": 15`, nil, 0, 10 * time.Second, 15 * time.Second},
		{`"timeoutSeconds": 20, "responseStartTimeoutSeconds": 10, "idleTimeoutSeconds": 5`,
			map[string]string{config.AnnotationRequestTimeout: "0", config.AnnotationFirstByteTimeout: "1m", config.AnnotationIdleTimeout: "0"}, 0, time.Minute, 0},
	} {
		source := revision(`{`+tc.fields+`, "containers": [{"image": "i"}]}`, tc.annotations)
		inCluster, err := config.Revision(source)
		if err != nil {
			t.Fatal(err)
		}
		if tc.annotations == nil {
			tc.annotations = map[string]string{}
		}
		tc.annotations[config.AnnotationModel], tc.annotations[config.AnnotationClusters] = "pico", "gpu"
		source.Annotations = tc.annotations
		placed, err := config.Placed(source)
		if err != nil {
			t.Fatal(err)
		}
		manifest, err := config.Here(placed.Manifest, "a manifest", ".")
		if err != nil {
			t.Fatal(err)
		}
		for where, f := range map[string]api.Function{"in a cluster": inCluster, "placed": placed, "in a manifest": manifest} {
			if f.RequestTimeout != tc.all || f.FirstByteTimeout != tc.first || f.IdleTimeout != tc.idle {
				t.Errorf("%s %s: %s, %s, %s; want %s, %s, %s", tc.fields, where, f.RequestTimeout, f.FirstByteTimeout, f.IdleTimeout, tc.all, tc.first, tc.idle)
			}
		}
	}
}

// TestKnativesScaling checks that Knative's annotations set the idle time, and that invalid ones are rejected.
func TestKnativesScaling(t *testing.T) {
	const prefix = "autoscaling.knative.dev/"
	for _, tc := range []struct {
		annotations map[string]string
		want        time.Duration
		wrong       string
	}{
		{map[string]string{"window": "6s"}, 6 * time.Second, ""},
		{map[string]string{"window": "40s", "scale-down-delay": "1m", "scaleToZeroPodRetentionPeriod": "10s", "metric": "concurrency"}, 110 * time.Second, ""},
		{map[string]string{"scale-down-delay": "1m"}, config.DefaultSleepAfter + time.Minute, ""},
		{map[string]string{"window": "5s"}, config.DefaultSleepAfter, `window: "5s": want a duration from 6s to 1h0m0s`},
		{map[string]string{"metric": "rps"}, config.DefaultSleepAfter, `metric: "rps": a function is scaled by the requests`},
	} {
		annotations := map[string]string{}
		for key, value := range tc.annotations {
			annotations[prefix+key] = value
		}
		f, err := config.Revision(revision(`{"containers": [{"image": "i"}]}`, annotations))
		if f.SleepAfter != tc.want || (err != nil) != (tc.wrong != "") || err != nil && !strings.Contains(err.Error(), tc.wrong) {
			t.Errorf("%v: %s, %v; want %s, %q", tc.annotations, f.SleepAfter, err, tc.want, tc.wrong)
		}
		annotations[config.AnnotationSleepAfter] = "7m"
		if f, _ := config.Revision(revision(`{"containers": [{"image": "i"}]}`, annotations)); f.SleepAfter != 7*time.Minute {
			t.Errorf("%v with a sleep-after of 7m: %s", tc.annotations, f.SleepAfter)
		}
		list, err := config.Parse(strings.NewReader(fmt.Sprintf("{apiVersion: serving.knative.dev/v1, kind: Service, metadata: {name: a}, spec: {template: {metadata: {annotations: {rouse.dev/model: pico, %swindow: 9s}}, spec: {containers: [{image: i}]}}}}", prefix)), "m.yaml", ".")
		if err != nil || list[0].SleepAfter != 9*time.Second {
			t.Errorf("in a manifest: %+v, %v", list, err)
		}
	}
}

func TestRevisionThatSaysNothing(t *testing.T) {
	source := revision(`{"timeoutSeconds": 300, "containers": [{"image": "i"}]}`, map[string]string{config.AnnotationMaxScale: "0"})
	got, err := config.Revision(source)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(api.Runtime{}, got.Runtime); diff != "" || got.Model != "tiny" || got.RequestTimeout != 0 || got.FirstByteTimeout != 0 || got.IdleTimeout != 0 || got.MaxScale != math.MaxInt32 || got.Concurrency != 8 || got.SleepAfter != config.DefaultSleepAfter {
		t.Errorf("function %+v; runtime (-want +got):\n%s", got, diff)
	}
	if port := config.RevisionPort(source); port != 8080 {
		t.Errorf("port %d, want 8080", port)
	}
	source.Service = ""
	if got, err = config.Revision(source); err != nil || got.Model != "tiny-00003" || got.ServiceName() != "team/tiny-00003" {
		t.Errorf("without a service: model %s of %s, %v", got.Model, got.ServiceName(), err)
	}
}

// TestRevisionTellsAllThatIsWrong checks that all errors come at once, in a fixed order, and that valid parts are
// kept.
func TestRevisionTellsAllThatIsWrong(t *testing.T) {
	source := revision(`{"containers": [{"resources": {"requests": {"memory": "lots"}, "limits": {"nvidia.com/gpu": "all"}}}]}`, map[string]string{
		"rouse.dev/sleep-afer":              "30s",
		"rouse.dev/sleep-level":             "3",
		"rouse.dev/runtime":                 "cuda",
		"rouse.dev/request-timeout":         "-1s",
		"rouse.dev/aliases":                 "good,,",
		"rouse.dev/hold-timeout":            "7s",
		"autoscaling.knative.dev/min-scale": "5",
		"autoscaling.knative.dev/max-scale": "2",
		"autoscaling.knative.dev/class":     "kpa.autoscaling.knative.dev",
	})
	got, err := config.Revision(source)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"revision team/tiny-00003: ", "unknown annotation rouse.dev/sleep-afer: did you mean rouse.dev/sleep-after?", "rouse.dev/sleep-level: \"3\": want 1 or 2",
		`the runtime "cuda": want one of engine, vllm`, "rouse.dev/request-timeout", "rouse.dev/aliases", `memory "lots"`, `nvidia.com/gpu is "all"`, "min-scale is 5",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q\nlacks %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "kpa") {
		t.Errorf("error %q: want one line, and nothing of the class", err)
	}
	if got.Hold.Timeout != 7*time.Second || got.SleepLevel != api.Level1 || got.Aliases != nil || got.Runtime.Kind != "" || got.MinScale != 2 || got.Memory.Devices != 0 {
		t.Errorf("function %+v: want what is right, and only that", got)
	}
	for range 20 {
		if _, again := config.Revision(source); again.Error() != err.Error() {
			t.Fatalf("error %q, then %q", err, again)
		}
	}
}

func TestRevisionOfABadSpec(t *testing.T) {
	for name, tt := range map[string]struct{ spec, want string }{
		"no JSON":          {`{`, "read the spec"},
		"no container":     {`{}`, "0 entries"},
		"two without port": {`{"containers": [{}, {}]}`, "of which 0 have ports"},
	} {
		t.Run(name, func(t *testing.T) {
			source := revision(tt.spec, nil)
			if got, err := config.Revision(source); err == nil || !strings.Contains(err.Error(), tt.want) || got.Name != "team/tiny-00003" {
				t.Errorf("function %s, error %v; want one that says %q", got.Name, err, tt.want)
			}
			if port := config.RevisionPort(source); port != 8080 {
				t.Errorf("port %d, want the default", port)
			}
		})
	}
}

// FuzzRevision checks that any object of a cluster yields a result.
func FuzzRevision(f *testing.F) {
	f.Add(`{"containers":[{"ports":[{"containerPort":1}],"resources":{"limits":{"nvidia.com/gpu":1}}}]}`, "rouse.dev/handler", "[1]")
	f.Add(`{"containers":null}`, "rouse.dev/adapters", "a=b")
	f.Fuzz(func(t *testing.T, spec, key, value string) {
		got, _ := config.Revision(revision(spec, map[string]string{key: value}))
		if got.Name != "team/tiny-00003" || got.Model == "" || got.Concurrency < 1 || got.MaxScale < 1 || got.RequestTimeout < 0 {
			t.Errorf("function %+v", got)
		}
	})
}

// TestRevisionsOfAllMakers checks the GPU resources of NVIDIA, AMD and Intel, and those in the cluster's settings.
func TestRevisionsOfAllMakers(t *testing.T) {
	for name, want := range map[string]int{"nvidia.com/gpu": 2, "nvidia.com/gpu.shared": 2, "amd.com/gpu": 2, "gpu.intel.com/i915": 2, "gpu.intel.com/xe": 2, "example.com/npu": 2, "example.com/nic": 0} {
		source := revision(`{"containers": [{"resources": {"limits": {"`+name+`": "2"}}}]}`, nil)
		source.GPUs = []string{"example.com/npu"}
		f, err := config.Revision(source)
		if err != nil || f.Memory.Devices != want {
			t.Errorf("a limit of two %s is %d GPUs (%v), want %d", name, f.Memory.Devices, err, want)
		}
	}
	manifest := `{apiVersion: serving.knative.dev/v1, kind: Service, metadata: {name: m}, spec: {template: {metadata: {annotations: {rouse.dev/model: pico}},
		spec: {containers: [{image: x, resources: {limits: {amd.com/gpu: "2"}}}]}}}}`
	fs, err := config.Parse(strings.NewReader(manifest), "m.yaml", ".")
	if err != nil || fs[0].Memory.Devices != 2 {
		t.Errorf("on one machine a limit of two amd.com/gpu is %+v (%v), want 2", fs, err)
	}
}
