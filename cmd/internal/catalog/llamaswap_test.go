package catalog_test

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/cmd/internal/catalog"
	"github.com/rouse-dev/rouse/config"
)

// swapConfig has each setting of llama-swap once, and ways to write them wrongly.
const swapConfig = `# comments may name ${env.ANYTHING}
healthCheckTimeout: 500
logLevel: debug
globalTTL: 0
newInTheNextVersion: true
selectors: {fast: {targets: [kept]}}
apiKeys: [sk-secret]
macros:
  dir: ${env.SWAP_MODELS}
  server: llama-server --port ${PORT} -c ${ctx}
  ctx: 4096
  both: ${dir}/x --ctx ${ctx}
models:
  Big-1.5:120b:
    macros: {ctx: 16384, few: 3, long: 90}
    cmd: |
      # ${server} is not used
      "/opt/my server" --port ${PORT} \
      -m ${both} --json '{"a": 1}'
    env: ["CUDA_VISIBLE_DEVICES=0,1", "DIR=${dir}", "HOST=:${PORT}"]
    ttl: ${long}
    checkEndpoint: /custom
    useModelName: org/big
    concurrencyLimit: "${few}"
    timeouts: {responseHeader: 60}
    aliases: [gpt-4o, {id: gpt-4o-mini, unlisted: true}]
    filters: {setParamsByID: {"${MODEL_ID}:high": {a: 1}}}
  fixed:
    cmd: serve --listen=0.0.0.0:9001 --seed 9001x
    proxy: http://127.0.0.1:9001
    cmdStop: kill ${PID}
    unlisted: true
  kept:
    cmd: run -p ${PORT}:8080 ${MODEL_ID}
    healthCheckTimeout: 1
  big-1-5-120b: {cmd: "x --port ${PORT}"}
  unknown: {cmd: "x --port ${PORT} ${nope}"}
  unset: {cmd: "x --port ${PORT} ${env.SWAP_UNSET}"}
  elsewhere: {cmd: "x --port ${PORT}", proxy: "http://192.0.2.1:1"}
  below: {cmd: "x --port ${PORT}", proxy: "http://localhost:${PORT}/v2"}
  mute: {cmd: x}
  open: {cmd: "x ' ${PORT}"}
  none: {name: nothing}
  large: {cmd: "x ${PORT}", ttl: 99999999999}
  wordy: {cmd: "x ${PORT}", ttl: "${server}", concurrencyLimit: 1}
groups:
  always: {persistent: true, swap: false, members: [kept]}
hooks: {on_startup: {preload: [kept]}}
`

func swapFile(t *testing.T, text string) string {
	t.Helper()
	t.Setenv("SWAP_MODELS", "/models")
	return write(t, []byte(text), t.TempDir(), "config.yaml")
}

func TestLlamaSwap(t *testing.T) {
	path := swapFile(t, swapConfig)
	functions, left, err := catalog.LlamaSwap(path, catalog.GPU{Is: true, Devices: 1})
	if err != nil {
		t.Fatal(err)
	}
	want := []api.Function{
		{
			Name: "default/big-1-5-120b", Aliases: []api.ModelName{"Big-1.5:120b", "Big-1.5:120b:high", "gpt-4o", "gpt-4o-mini"},
			Runtime: api.Runtime{
				Kind: api.RuntimeCommand, Model: "org/big", Env: []string{"DIR=/models", "HOST=:$(PORT)"},
				Command: []string{"/opt/my server", "--port", "$(PORT)", "-m", "/models/x", "--ctx", "16384", "--json", `{"a": 1}`},
			},
			Memory: api.Memory{Devices: 2}, Concurrency: 3, StartTimeout: 500 * time.Second, FirstByteTimeout: time.Minute, SleepAfter: 90 * time.Second,
		},
		{
			Name:    "default/fixed",
			Runtime: api.Runtime{Kind: api.RuntimeCommand, Command: []string{"serve", "--listen=0.0.0.0:$(PORT)", "--seed", "9001x"}},
			Memory:  api.Memory{Devices: 1}, StartTimeout: 500 * time.Second, SleepAfter: 24 * time.Hour,
		},
		{
			Name:    "default/kept",
			Runtime: api.Runtime{Kind: api.RuntimeCommand, Command: []string{"run", "-p", "$(PORT):8080", "kept"}},
			Memory:  api.Memory{Devices: 1}, StartTimeout: 15 * time.Second, MinScale: 1,
		},
	}
	for i := range want {
		want[i].Origin, want[i].UnloadAfter = path, config.DefaultUnloadAfter
		want[i] = want[i].WithDefaults()
	}
	if diff := cmp.Diff(want, functions); diff != "" {
		t.Errorf("functions (-want +got):\n%s", diff)
	}
	var all strings.Builder
	for _, l := range left {
		all.WriteString(strings.TrimPrefix(l.String(), path) + "\n")
	}
	got := all.String()
	for _, line := range []string{
		":3: logLevel is", ":5: newInTheNextVersion is left out: Rouse has nothing like it", ":6: selectors is left out: its names reach no model", ":7: apiKeys is", ":46: groups is", ":48: hooks is",
		":22: models.Big-1.5:120b.checkEndpoint is", ":25: models.Big-1.5:120b.timeouts is", ":27: models.Big-1.5:120b.filters is", ":26: models.Big-1.5:120b.aliases.unlisted is",
		"models.Big-1.5:120b.env CUDA_VISIBLE_DEVICES=0,1 is left out: the function gets 2 GPUs",
		":31: models.fixed.cmdStop is", ":32: models.fixed.unlisted is", "config.yaml:14: models.Big-1.5:120b has taken the name big-1-5-120b",
		":37: models.unknown is left out: ${nope}", ":38: models.unset is left out: ${env.SWAP_UNSET}", ":39: models.elsewhere is left out: its proxy",
		":40: models.below is left out: its proxy", ":41: models.mute is left out: its command does not say on which port", ":42: models.open is", "models.none is left out: there is no command",
		`:44: models.large is left out: "99999999999" stands`, `:45: models.wordy is left out: "llama-server --port ${PORT} -c `,
	} {
		if !strings.Contains(got, line) {
			t.Errorf("lacks %q", line)
		}
	}
	if strings.Contains(got, "sk-secret") || strings.Contains(got, ".ttl is") || t.Failed() {
		t.Errorf("left out are:\n%s", got)
	}
}

// TestLlamaSwapFiles: without a GPU the environment stays; merged mappings count; what is no such file says so.
func TestLlamaSwapFiles(t *testing.T) {
	path := swapFile(t, "x: &x {ttl: 0, cmd: 'a --port ${PORT}', env: [CUDA_VISIBLE_DEVICES=0]}\nmodels:\n  a:\n    <<: *x\n    unlisted: true\n")
	functions, left, err := catalog.LlamaSwap(path, catalog.GPU{})
	if err != nil || len(functions) != 1 {
		t.Fatalf("%v, %v, %v", functions, left, err)
	}
	if f := functions[0]; f.Memory.Devices != 0 || f.Runtime.Env[0] != "CUDA_VISIBLE_DEVICES=0" || f.SleepAfter != 24*time.Hour {
		t.Errorf("the function is %+v", f)
	}
	if len(left) != 3 || !strings.Contains(left[1].String(), ":1: models.a.ttl is left out: 0 would") {
		t.Errorf("left out are %v", left)
	}
	for _, text := range []string{"", "models: [a]", "kind: Service", "models: {a: {cmd: [", "[]", "&a [*a]"} {
		if functions, _, err := catalog.LlamaSwap(swapFile(t, text), catalog.GPU{}); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q has %d functions, and the error %v: want one line", text, len(functions), err)
		}
	}
	if _, _, err := catalog.LlamaSwap(filepath.Join(t.TempDir(), "none.yaml"), catalog.GPU{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// TestLlamaSwapOverrides: a mapping's own keys override those that it merges.
func TestLlamaSwapOverrides(t *testing.T) {
	path := swapFile(t, "x: &x {a: &a {cmd: 'one --port ${PORT}', unlisted: true, ttl: 9}}\nmodels:\n  <<: *x\n  a:\n    <<: *a\n    cmd: 'two --port ${PORT}'\n    unlisted: true\n")
	functions, left, err := catalog.LlamaSwap(path, catalog.GPU{})
	if err != nil || len(functions) != 1 || functions[0].Runtime.Command[0] != "two" {
		t.Errorf("%+v, %v", functions, err)
	}
	if len(left) != 2 || !strings.Contains(left[0].String(), ":1: x is") || !strings.Contains(left[1].String(), ":7: models.a.unlisted is") {
		t.Errorf("left out are %v", left)
	}
}

// TestLlamaSwapMerges: of a list of merged mappings the first that has a key counts, as where a model is decoded.
func TestLlamaSwapMerges(t *testing.T) {
	path := swapFile(t, "x: &x\n  a: &a {cmd: 'one --port ${PORT}', unlisted: true}\ny: &y\n  a: {}\n  b: &b {cmd: 'two --port ${PORT}', name: b}\nmodels:\n  <<: [*x, *y]\n  c:\n    <<: [*a, *b]\n")
	functions, left, err := catalog.LlamaSwap(path, catalog.GPU{})
	if err != nil {
		t.Fatal(err)
	}
	var got, lost []string
	for _, f := range functions {
		got = append(got, string(f.Name)+" "+f.Runtime.Command[0])
	}
	for _, l := range left {
		_, what, _ := strings.Cut(l.String(), path+":")
		what, _, _ = strings.Cut(what, " is left out")
		lost = append(lost, what)
	}
	slices.Sort(got)
	slices.Sort(lost)
	if d := cmp.Diff([]string{"default/a one", "default/b two", "default/c one"}, got); d != "" {
		t.Errorf("functions, -want +got:\n%s", d)
	}
	if d := cmp.Diff([]string{"1: x", "2: models.a.unlisted", "2: models.c.unlisted", "3: y", "5: models.b.name", "5: models.c.name"}, lost); d != "" {
		t.Errorf("left out, -want +got:\n%s", d)
	}
}

func FuzzLlamaSwap(f *testing.F) {
	f.Add(swapConfig)
	f.Add("models: &a {<<: *a}")
	f.Fuzz(func(t *testing.T, text string) {
		functions, _, _ := catalog.LlamaSwap(swapFile(t, text), catalog.GPU{Is: true, Devices: 1})
		for _, f := range functions {
			if f.Name == "" || len(f.Runtime.Command) == 0 {
				t.Errorf("a function is %+v", f)
			}
		}
	})
}

func TestCommand(t *testing.T) {
	one := func() catalog.GPU { return catalog.GPU{Is: true, Devices: 1} }
	f, err := catalog.Command(`qwen2.5:7b=serve -m "a b.gguf" --port $(PORT) --url=x=y`, "--command", one)
	if diff := cmp.Diff([]string{"serve", "-m", "a b.gguf", "--port", "$(PORT)", "--url=x=y"}, f.Runtime.Command); err != nil || diff != "" || f.Memory.Devices != 1 || f.Name != "default/qwen2-5-7b" {
		t.Errorf("%+v, %v\n%s", f, err, diff)
	}
	for _, bad := range []string{"", "serve", "=serve", "a=", "a=serve 'x", "日=serve", "a b=serve"} {
		if f, err := catalog.Command(bad, "--command", nil); err == nil || !strings.Contains(err.Error(), "NAME='PROGRAM") {
			t.Errorf("%q is %+v, %v", bad, f, err)
		}
	}
}
