package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config"
)

const patch = `{"spec":{"containers":[{"name":"user-container"}]}}`

// scaling has annotations with every scaling key.
var scaling = map[string]string{
	"rouse.dev/target-ttft":        "800ms",
	"rouse.dev/cost":               "2.5",
	"rouse.dev/variant-of":         "big",
	"rouse.dev/fallback":           "small, other/tiny",
	config.AnnotationDualPods:      "true",
	config.AnnotationProviderPatch: patch,
	"rouse.dev/canary-tokens":      "0",
}

var scalingWant = api.Function{
	Target: api.Target{TTFT: 800 * time.Millisecond},
	Cost:   2.5, VariantOf: "big", Fallback: []api.ModelName{"small", "other/tiny"}, DualPods: true, ProviderPatch: patch, CanaryTokens: -1,
}

// scalingOf returns the fields of f that are set in scalingWant.
func scalingOf(f api.Function) api.Function {
	return api.Function{Target: f.Target, Cost: f.Cost, VariantOf: f.VariantOf, Fallback: f.Fallback, DualPods: f.DualPods, ProviderPatch: f.ProviderPatch, CanaryTokens: f.CanaryTokens}
}

// manifestWith returns the full manifest with further annotations.
func manifestWith(annotations map[string]string) string {
	var lines strings.Builder
	base := full
	for k, v := range annotations {
		if _, after, found := strings.Cut(base, "        "+k+": "); found { // replace it
			value, _, _ := strings.Cut(after, "\n")
			base = strings.Replace(base, "        "+k+": "+value+"\n", "", 1)
		}
		lines.WriteString("        " + k + ": '" + v + "'\n")
	}
	return strings.Replace(base, "        autoscaling.knative.dev/window: 40s\n", lines.String(), 1)
}

func TestScalingKeys(t *testing.T) {
	got, err := config.Parse(strings.NewReader(manifestWith(scaling)), "m.yaml", ".")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(scalingWant, scalingOf(got[0])); diff != "" {
		t.Errorf("manifest (-want +got):\n%s", diff)
	}
	f, err := config.Revision(revision(`{"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]}`, scaling))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(scalingWant, scalingOf(f)); diff != "" {
		t.Errorf("revision (-want +got):\n%s", diff)
	}
}

// TestScalingErrorsSayWhatToChange sets each key to a bad value, in a manifest and in a revision.
func TestScalingErrorsSayWhatToChange(t *testing.T) {
	for key, bad := range map[string]map[string]string{ // the value, and words of the error
		"rouse.dev/target-ttft":        {"fast": "30s", "-1s": "30s"},
		"rouse.dev/cost":               {"0": "above 0", "free": "2.5", "Inf": "above 0", "NaN": "above 0"},
		"rouse.dev/variant-of":         {"": "name of one model", "a, b": "without spaces", "tiny-chat": "name of its own"},
		"rouse.dev/fallback":           {"": "name of one model", "a,,b": "name of one model", "a, https://api.example.com/v1": "not sent to other providers"},
		config.AnnotationDualPods:      {"both": "true or false"},
		config.AnnotationProviderPatch: {"[1]": "JSON object", "null": "JSON object", "{": "JSON object", strings.Repeat("{", 100000): "JSON object", "{}": config.AnnotationDualPods},
		"rouse.dev/reuse-connections":  {"maybe": "true or false"},
		config.AnnotationMemory:        {"0": "more than 0", "-1Gi": "such as 512Mi"},
		config.AnnotationMaxScale:      {"-1": "0 to 2147483647", "99999999999": "0 to 2147483647"},
		"rouse.dev/hold-memory":        {"0": "more than 0"},
		"rouse.dev/canary-tokens":      {"-1": "0 to 64", "65": "0 to 64", "x": "whole number"},
	} {
		for value, want := range bad {
			annotations := map[string]string{key: value}
			_, err := config.Parse(strings.NewReader(manifestWith(annotations)), "m.yaml", ".")
			if err == nil || !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), want) || len(err.Error()) > 500 {
				t.Errorf("manifest with %s: %q: error %v\nlacks the key or %q", key, value, err, want)
			}
			annotations[config.AnnotationServedName] = "tiny-chat"
			f, err := config.Revision(revision(`{"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]}`, annotations))
			if err == nil || !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), want) {
				t.Errorf("revision with %s: %q: error %v\nlacks the key or %q", key, value, err, want)
			}
			if diff := cmp.Diff(api.Function{}, scalingOf(f)); diff != "" {
				t.Errorf("revision with %s: %q keeps what is wrong (-want +got):\n%s", key, value, diff)
			}
		}
	}
}

func TestDualPodsNeedGPUs(t *testing.T) {
	annotations := map[string]string{config.AnnotationDualPods: "true", config.AnnotationProviderPatch: patch}
	manifest := strings.Replace(manifestWith(annotations), "nvidia.com/gpu: 2", "cpu: 2", 1)
	_, err := config.Parse(strings.NewReader(manifest), "m.yaml", ".")
	if err == nil || !strings.Contains(err.Error(), "nvidia.com/gpu of at least 1") {
		t.Errorf("manifest: error %v, want one that asks for a GPU", err)
	}
	f, err := config.Revision(revision(`{"containers": [{}]}`, annotations))
	if err == nil || !strings.Contains(err.Error(), "nvidia.com/gpu of at least 1") || f.DualPods {
		t.Errorf("revision: dual pods %t, error %v; want none, and an error that asks for a GPU", f.DualPods, err)
	}
}

func TestVariantsShareOneName(t *testing.T) {
	a := api.Function{Name: "default/a", Model: "a", VariantOf: "big"}
	b := api.Function{Name: "default/b", Model: "b", VariantOf: "big"}
	if err := config.CheckUnique([]api.Function{a, b}); err != nil {
		t.Error(err)
	}
	b.VariantOf, b.Aliases = "", []api.ModelName{"big"}
	if err := config.CheckUnique([]api.Function{a, b}); err == nil || !strings.Contains(err.Error(), `default/a is a variant of "big", which is the name of default/b`) {
		t.Errorf("error %v, want one that names both", err)
	}
}
