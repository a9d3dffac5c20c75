package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestDevicesAreAdded(t *testing.T) {
	const before = `{"ociVersion":"1.2.0","process":{"user":{"uid":65532},"env":["PATH=/bin","NVIDIA_VISIBLE_DEVICES=GPU-a"],"oomScoreAdj":999},` +
		`"mounts":[{"destination":"/proc","type":"proc","source":"proc"}],"linux":{"resources":{"memory":{"limit":9223372036854771712}}}}`
	raw, err := add([]byte(before), "/var/gpus")
	if err != nil {
		t.Fatal(err)
	}
	var after struct {
		Process struct {
			Env         []string
			OomScoreAdj int
		}
		Mounts []struct{ Destination, Source string }
	}
	if err := json.Unmarshal(raw, &after); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(after.Process.Env, "VLLMSIM_DEVICES=/run/fake-gpus") || len(after.Process.Env) != 3 || after.Process.OomScoreAdj != 999 {
		t.Errorf("process: %+v", after.Process)
	}
	if n := len(after.Mounts); n != 2 || after.Mounts[1].Destination != "/run/fake-gpus" || after.Mounts[1].Source != "/var/gpus" {
		t.Errorf("mounts: %+v", after.Mounts)
	}
	if !strings.Contains(string(raw), "9223372036854771712") {
		t.Errorf("a number has changed: %s", raw)
	}
}

func TestOthersAreLeftAlone(t *testing.T) {
	for _, spec := range []string{`{}`, `{"process":{}}`, `{"process":{"env":["A=b"]}}`, `{"process":{"env":["NVIDIA_VISIBLE_DEVICES=void"]}}`, `{"process":{"env":["NVIDIA_VISIBLE_DEVICES="]}}`} {
		if got, err := add([]byte(spec), "/var/gpus"); got != nil || err != nil {
			t.Errorf("%s: got %s, %v; want it as it was", spec, got, err)
		}
	}
	if _, err := add([]byte(`{"process":[]}`), "/var/gpus"); err == nil {
		t.Error("what is no description is taken for one")
	}
}

func TestBundle(t *testing.T) {
	for _, tt := range []struct {
		args, bundle string
		is           bool
	}{
		{"--root /r --log /l create --bundle /b --pid-file /p id", "/b", true},
		{"create --bundle=/b id", "/b", true},
		{"run id", ".", true},
		{"--root /r delete id", "", false},
	} {
		if bundle, is := created(strings.Fields(tt.args)); bundle != tt.bundle || is != tt.is {
			t.Errorf("%s: got %q, %v; want %q, %v", tt.args, bundle, is, tt.bundle, tt.is)
		}
	}
}
