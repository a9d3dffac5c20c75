package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions"
)

// parsed is the configuration that a command line and an environment make.
func parsed(t *testing.T, env []string, args ...string) (functions.Config, error) {
	t.Helper()
	var f flags
	cmd := Command()
	cmd.ResetFlags()
	f.define(cmd)
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	err := f.build(cmd.Flags().Args(), env, cmd.Flags().Changed)
	return f.cfg, err
}

const declared = `{"name":"default/m","model":"m","concurrency":3,"runtime":{"kind":"engine","model":"pico","env":["SECRET=s"]},"startTimeout":1000000000}`

func TestFunctionComesFromTheEnvironmentAndFlagsWin(t *testing.T) {
	env := []string{"HOME=/h", EnvFunction + "=" + declared, EnvEvents + "=unix:/e"}
	got, err := parsed(t, env, "--instance", "m-1", "--concurrency", "5", "--start-timeout", "2s", "--engine-binary", "/bin/rouse", "--epoch", "7", "--devices", "a,b", "--max-body", "1Mi")
	if err != nil {
		t.Fatal(err)
	}
	want := functions.Config{
		Function: api.Function{
			Name: "default/m", Model: "m", Concurrency: 5, StartTimeout: 2 * time.Second,
			Runtime: api.Runtime{Kind: api.RuntimeEngine, Model: "pico", Env: []string{"SECRET=s"}},
		},
		Instance: "m-1", Engine: "/bin/rouse", Epoch: 7, Devices: []api.DeviceID{"a", "b"}, MaxBody: api.MiB, Events: "unix:/e", OwnProcess: true,
		Env: []string{"HOME=/h", EnvEvents + "=unix:/e"}, // without the function: it may hold what is not the runtime's
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}

func TestCommandAfterTheDashes(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		want api.Runtime
	}{
		"a command":         {[]string{"--", "vllm", "serve", "--port=$(PORT)"}, api.Runtime{Kind: api.RuntimeCommand, Command: []string{"vllm", "serve", "--port=$(PORT)"}}},
		"one that sleeps":   {[]string{"--runtime-sleeps", "--model", "q", "--", "vllm"}, api.Runtime{Kind: api.RuntimeCommand, Model: "q", Sleeps: true, Command: []string{"vllm"}}},
		"the engine's args": {[]string{"--runtime", "engine", "--model", "pico", "--", "--threads", "2"}, api.Runtime{Kind: api.RuntimeEngine, Model: "pico", Args: []string{"--threads", "2"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parsed(t, nil, tt.args...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got.Function.Runtime); diff != "" {
				t.Errorf("runtime (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFunctionFromAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f.json")
	if err := os.WriteFile(file, []byte(declared), 0o600); err != nil {
		t.Fatal(err)
	}
	// The file is what was asked for, whatever the environment says.
	got, err := parsed(t, []string{EnvFunction + `={"name":"default/other"}`}, "--spec", file)
	if err != nil || got.Function.Name != "default/m" {
		t.Errorf("function %q, %v; want default/m", got.Function.Name, err)
	}
	for name, tt := range map[string]struct {
		env  []string
		args []string
		want string
	}{
		"no such file":  {nil, []string{"--spec", file + "x"}, "--spec"},
		"unknown field": {[]string{EnvFunction + `={"nme":"x"}`}, nil, "nme"},
		"bad size":      {nil, []string{"--max-body", "much"}, "--max-body"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parsed(t, tt.env, tt.args...); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one that says %q", err, tt.want)
			}
		})
	}
}
