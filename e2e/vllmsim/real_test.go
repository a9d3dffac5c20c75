package vllmsim

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const ofProtocol = "Rouse's own, of instances and its engine"

// deviations lists the names that are in no list of a real server, with the reason. A name has the form "surface kind
// name".
var deviations = map[string]string{
	"llamacpp answer max_model_len":                      "client.go reads it of vLLM and SGLang alone",
	"llamacpp answer parent":                             "client.go reads it of vLLM alone",
	"llamacpp answer reasoning":                          "the other name of the same",
	"llamacpp answer root":                               "client.go reads it of vLLM alone",
	"llamacpp field continuous_usage_stats":              "sampling.ask passes over it",
	"llamacpp field min_tokens":                          "sampling.ask passes over it",
	"llamacpp field return_token_ids":                    "sampling.ask passes over it",
	"sglang field lora":                                  "sampling.ask passes over it",
	"vllm field lora":                                    "sampling.ask passes over it",
	"llamacpp metric llamacpp:kv_cache_usage_ratio":      "of servers before 2025",
	"sglang answer relevance_score":                      "of others: SGLang's is score",
	"sglang metric sglang:cache_config_info":             "of servers before 0.5.11",
	"sglang metric sglang:time_per_output_token_seconds": "the older name of request_time_per_output_token_seconds",
	"vllm answer reasoning_content":                      "the other name of the same",
	"vllm metric vllm:gpu_cache_usage_perc":              "the older name of kv_cache_usage_perc, which readers of ours want too",
	"vllm metric vllm:max_token_capacity":                ofProtocol,
	"vllm metric vllm:num_tokens_running":                ofProtocol,
	"vllm metric vllm:num_tokens_waiting":                ofProtocol,
	"vllm metric vllm:time_per_output_token_seconds":     "the older name of inter_token_latency_seconds, which the model server protocol has",
	"rayserve variable RAY_AUTH_TOKEN":                   "read by its C++",
	"rayserve path POST /v1/chat/completions":            "the application's, not Serve's",
	"sglang option --dp":                                 "the beginning of --dp-size, which argparse takes for it",
	"sglang option --tp":                                 "the beginning of --tp-size, which argparse takes for it",
	"sglang option --no-enable-memory-saver":             "the adapter's own, which it does not pass on",
	"llamacpp field lora_path":                           "sampling.ask passes over it",
}

// Fields that one server has and another has not are passed over by the other's simulator.
func TestFieldsOfOtherServers(t *testing.T) {
	all := sampling{MinTokens: 1, IDs: true, LoRA: []scale{{ID: 1}}, LoRAPath: "a", Stream: true}
	if err := json.Unmarshal([]byte(`{"include_usage": true, "continuous_usage_stats": true}`), &all.StreamOptions); err != nil {
		t.Fatal(err)
	}
	for surface, want := range map[Surface]ask{
		VLLM: {min: 1, ids: true, steady: true}, SGLang: {min: 1, ids: true, steady: true, loraPath: "a"}, LlamaCpp: {lora: all.LoRA},
	} {
		got, err := all.ask(surface)
		if err != nil || got.min != want.min || got.ids != want.ids || got.steady != want.steady || len(got.lora) != len(want.lora) || got.loraPath != want.loraPath {
			t.Errorf("%s: %+v, %v; want %+v", surface, got, err, want)
		}
	}
}

// ollama is simulated nowhere: the tests run a real one.
const ollama Surface = "ollama"

// lists are the names of the lists.
var lists = map[Surface]string{VLLM: "vllm", SGLang: "sglang", LlamaCpp: "llamacpp", RayServe: "ray", ollama: "ollama"}

// listed returns what a real server understands: the lines of testdata/real/NAME.txt, which make pins reads from its source.
func listed(t *testing.T, name string) map[string]bool {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "real", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	if len(lines) < 100 {
		t.Fatalf("the list of %s has %d lines: it was not read", name, len(lines))
	}
	all := map[string]bool{}
	for _, line := range lines {
		all[line] = true
	}
	return all
}

// understoodBySimulator returns the names that the simulator of a surface understands, as lines of such a list. For
// fields of answers see answered.
func understoodBySimulator(t *testing.T, surface Surface) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	cmd := Command{Config: Config{Surface: surface, Model: "m", Sleep: true, LoRA: true, RuntimeLoRA: true, DevMode: true, Metrics: true}}
	server, known := servers[surface], flags{}
	server.flags(&cmd, known)
	for name := range known {
		all["option "+name] = true
	}
	names := map[Surface]string{VLLM: "vllm", SGLang: "sglang", LlamaCpp: "llama-server", RayServe: "ray"}
	if _, err := Parse([]string{names[surface], "m"}, func(name string) string {
		if !strings.HasPrefix(name, "VLLMSIM_") {
			all["variable "+name] = true
		}
		return ""
	}, io.Discard); err != nil {
		t.Fatal(err)
	}
	s, err := New(cmd.Config)
	if err != nil {
		t.Fatal(err)
	}
	paths := server.routes(s)
	if server.admin != nil {
		maps.Copy(paths, server.admin(s))
	}
	for pattern := range paths {
		all["path "+pattern] = true
	}
	if surface != RayServe { // its port has no metrics
		families, err := s.metrics.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			all["metric "+strings.TrimSuffix(family.GetName(), "_total")] = true
		}
	}
	return all
}

// theRest is the devices' and the simulator's own.
var theRest = regexp.MustCompile(`^variable (CUDA|NVIDIA)_VISIBLE_DEVICES$`)

// TestRealServers checks that all names that the simulators and Rouse use of servers are in the servers' lists, except
// for the deviations with a reason.
func TestRealServers(t *testing.T) {
	var deviating []string
	parts := map[string]func(t *testing.T, surface Surface) map[string]bool{"Understand": understood, "Say": answered, "SayWhatIsRead": fieldsRead, "HaveTheMetrics": metricsRead}
	for part, of := range parts {
		t.Run(part, func(t *testing.T) {
			for surface, list := range lists {
				there := listed(t, list)
				for _, line := range slices.Sorted(maps.Keys(of(t, surface))) {
					if there[line] || theRest.MatchString(line) {
						continue
					}
					name := string(surface) + " " + line
					deviating = append(deviating, name)
					if deviations[name] == "" {
						t.Errorf("%s is not in testdata/real: the real server has no such thing", name)
					}
				}
			}
			delete(parts, part)
		})
	}
	for name := range deviations {
		if len(parts) == 0 && !slices.Contains(deviating, name) {
			t.Errorf("%s deviates no more: remove it from the list", name)
		}
	}
}

// understood returns the names that the simulator of a surface understands, and those that the adapter of
// functions/runtime passes to it.
func understood(t *testing.T, surface Surface) map[string]bool {
	t.Helper()
	all := passed(t, surface, listed(t, lists[surface]))
	maps.Copy(all, fields(t, surface))
	if surface != ollama {
		maps.Copy(all, understoodBySimulator(t, surface))
	}
	if len(all) < 8 {
		t.Errorf("%s: only %d names were found", surface, len(all))
	}
	return all
}

// literals calls back for each string constant, and for each field's tag, of a file.
func literals(t *testing.T, file string, text, tag func(string)) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			if n.Tag != nil {
				s, _ := strconv.Unquote(n.Tag.Value)
				tag(s)
			}
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				s, _ := strconv.Unquote(n.Value)
				text(s)
			}
		}
		return true
	})
}

// fields are those of bodies and options' JSON that the simulator reads, by the tags of its structs.
func fields(t *testing.T, surface Surface) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	files := map[Surface][]string{
		VLLM:     {"request.go", "forms.go", "kvevents.go"},
		SGLang:   {"request.go"},
		LlamaCpp: {"request.go"},
	}
	for _, file := range files[surface] {
		literals(t, file, func(string) {}, func(tag string) {
			if name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ","); name != "" {
				all["field "+name] = true
			}
		})
	}
	return all
}

var (
	anOption   = regexp.MustCompile(`^--?[a-z][a-z0-9-]*$`)
	aVariable  = regexp.MustCompile(`^((?:VLLM|SGLANG|SGL|RAY|LLAMA|OLLAMA)_[A-Z0-9_]+)(?:=.*)?$`)
	aPath      = regexp.MustCompile(`^(/[a-z_][a-z0-9_/-]*)(?:\?.*)?$`)
	ofAdapters = map[Surface][]string{VLLM: {"vllm.go", "sleepmode.go"}, SGLang: {"sglang.go"}, LlamaCpp: {"llamacpp.go"}, RayServe: {"rayserve.go", "ray.go"}, ollama: {"ollama.go", "ollamamake.go", "ollamarequest.go"}}
)

// passed returns the options, variables and paths that the adapter of functions/runtime has as constants. A path that is not
// in the list as a GET is taken for a POST.
func passed(t *testing.T, surface Surface, there map[string]bool) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, file := range ofAdapters[surface] {
		literals(t, filepath.Join("..", "..", "functions", "runtime", file), func(s string) {
			if anOption.MatchString(s) {
				all["option "+s] = true
			} else if m := aVariable.FindStringSubmatch(s); m != nil {
				all["variable "+m[1]] = true
			} else if m := aPath.FindStringSubmatch(s); m != nil && !there["path GET "+m[1]] && !beginning(there, m[1]) {
				all["path POST "+m[1]] = true
			}
		}, func(string) {})
	}
	return all
}

// beginning reports whether a path that ends with a slash is the beginning of one in there.
func beginning(there map[string]bool, path string) bool {
	for line := range there {
		if strings.HasSuffix(path, "/") && strings.HasPrefix(line, "path POST "+path) {
			return true
		}
	}
	return false
}
