package vllmsim

import (
	"io"
	"strings"
	"testing"
)

// A turn after a sleep finds in the host's memory what was said before it, where the connector does not forget it.
func TestOffloadAndSleep(t *testing.T) {
	long := strings.Repeat("what was said before ", 40)
	for _, tt := range []struct {
		name  string
		flags string
		// external are the hits in the host's memory after level 1, and after level 2 in the order that vLLM documents.
		after1, after2 bool
	}{
		{"no connector", "", false, false},
		{"native", "--kv-offloading-size 2", false, false},
		{"native, of a version that does not forget", "--kv-offloading-size 2 --offload-outlives-sleep", true, true},
		{"lmcache", "--kv-offloading-size 2 --kv-offloading-backend lmcache", true, true},
		{"a configuration of it", `--kv-transfer-config {"kv_connector":"LMCacheConnectorV1","kv_role":"kv_both"}`, true, true},
		{"a configuration of the native one", `--kv-transfer-config={"kv_connector":"OffloadingConnector","kv_connector_extra_config":{"cpu_bytes_to_use":1000000000}}`, false, false},
		{"between servers", `--kv-transfer-config {"kv_connector":"NixlConnector","kv_role":"kv_both"}`, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			words := append([]string{"vllm", "serve", "sim/tiny-1b", "--enable-sleep-mode"}, strings.Fields(tt.flags)...)
			cmd, err := Parse(words, func(name string) string {
				return map[string]string{"VLLM_SERVER_DEV_MODE": "1", "VLLMSIM_FLAGS": "--time-scale 0"}[name]
			}, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			s := start(t, cmd.Config)
			seen := 0
			external := func() bool {
				s.engine.mu.Lock()
				defer s.engine.mu.Unlock()
				was := seen
				seen = s.engine.batch.Counts().External
				return seen > was
			}
			want := answer(t, s, long)
			again := func(what string, found bool) {
				t.Helper()
				if got := answer(t, s, long); got != want {
					t.Errorf("%s: %q, want %q", what, got, want)
				}
				if external() != found {
					t.Errorf("%s: found in the host's memory: %t, want %t", what, !found, found)
				}
			}
			again("awake", false) // it is in the cache
			ok(t, post(s, "/sleep?level=1", ""))
			ok(t, post(s, "/wake_up", ""))
			again("after level 1", tt.after1)
			ok(t, post(s, "/sleep?level=2", ""))
			ok(t, post(s, "/wake_up?tags=weights", ""))
			ok(t, post(s, "/collective_rpc", `{"method":"reload_weights"}`))
			ok(t, post(s, "/wake_up?tags=kv_cache", ""))
			ok(t, post(s, "/reset_prefix_cache?reset_external=true", ""))
			again("after level 2", tt.after2)
			if st := state(t, s); st["stale_hits"] != 0.0 {
				t.Errorf("%v", st)
			}
		})
	}
}

func TestOffloadFlags(t *testing.T) {
	for flags, want := range map[string]string{
		"--kv-offloading-size 0":                                      "above 0",
		"--kv-offloading-size -3":                                     "--kv-offloading-size",
		"--kv-offloading-size much":                                   "--kv-offloading-size",
		"--kv-offloading-backend disk":                                "invalid choice",
		"--kv-transfer-config {":                                      "--kv-transfer-config",
		"--kv-offloading-size 99999999999":                            "--kv-offloading-size",
		`--kv-transfer-config={"kv_connector":"OffloadingConnector"}`: "cpu_bytes_to_use",
	} {
		_, err := Parse(append([]string{"vllm", "serve", "sim/tiny-1b"}, strings.Fields(flags)...), func(string) string { return "" }, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", flags, err, want)
		}
	}
}
