package e2e

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A stream that breaks ends with an error in the shape of its own API, whatever broke it.
func TestBrokenStreams(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "functions.yaml")
	if err := os.WriteFile(path, []byte(`apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: chat}
spec:
  template:
    metadata: {annotations: {rouse.dev/runtime: vllm, rouse.dev/model: sim/llama-8b}}
    spec: {containerConcurrency: 4, containers: [{image: vllm/vllm-openai, env: [{name: VLLMSIM_FLAGS, value: --time-scale=0}]}]}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	p := newStrange(t, "-f", path)
	for _, tt := range []struct {
		path, body string
		name       string // of the last event; empty: it has none
		want       func(t *testing.T, before, last map[string]any)
	}{
		{"/v1/chat/completions", `"messages":[{"role":"user","content":"a"}],"max_tokens":200`, "", openAIError},
		{"/v1/completions", `"prompt":"a","max_tokens":200`, "", openAIError},
		{"/v1/responses", `"input":"a","max_output_tokens":200`, "error", responsesError},
		{"/v1/messages", `"messages":[{"role":"user","content":"a"}],"max_tokens":200`, "error", messagesError},
		{"/serving-endpoints/chat/invocations", `"messages":[{"role":"user","content":"a"}],"max_tokens":200`, "", agentError},
	} {
		for _, fault := range []string{"cut=3", "eof=3", "error-event=3", "crash-after=3", killsFunction} {
			t.Run(tt.path+" "+fault, func(t *testing.T) {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.server.url+tt.path, strings.NewReader(`{"model":"chat","stream":true,`+tt.body+`}`))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Content-Type", "application/json")
				req.Header.Set("X-Rouse-Resume", "off") // else those that can go on elsewhere do
				req.Header.Set("X-Vllmsim-Fault", fault)
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				in := bufio.NewReader(resp.Body)
				if fault == killsFunction {
					if _, err := in.Peek(1); err != nil {
						t.Fatal(err)
					}
					if err := p.killFunction("chat"); err != nil {
						t.Fatal(err)
					}
				}
				raw, err := io.ReadAll(in)
				if err != nil || resp.StatusCode != http.StatusOK {
					t.Fatalf("%s, %v: %s", resp.Status, err, raw)
				}
				events := strings.Split(strings.TrimSuffix(string(raw), "\n\n"), "\n\n")
				agent := strings.HasSuffix(tt.path, "/invocations")
				switch n := len(events) - 1; {
				case events[n] == "data: [DONE]" && (agent || fault == "error-event=3"):
					events = events[:n] // vLLM ends its own streams so, and MLflow all
				case agent:
					t.Errorf("the last event is %q, want [DONE]", events[n])
				}
				if len(events) < 2 || len(events) < 3 && fault != killsFunction {
					t.Fatalf("too few events:\n%s", raw)
				}
				name, last := eventOf(t, events[len(events)-1])
				_, before := eventOf(t, events[len(events)-2])
				if name != tt.name {
					t.Errorf("the last event is %q, want the name %q", events[len(events)-1], tt.name)
				}
				tt.want(t, before, last)
			})
		}
	}
}

// A model server that reports that it is full does not make Rouse refuse a client: a waiting client gets its answer a
// little later.
func TestBusyModelServer(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "functions.yaml")
	if err := os.WriteFile(path, []byte(`apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: chat}
spec:
  template:
    metadata: {annotations: {rouse.dev/runtime: vllm, rouse.dev/model: sim/llama-8b}}
    spec:
      containerConcurrency: 4
      containers:
        - image: vllm/vllm-openai
          env: [{name: VLLMSIM_FLAGS, value: --time-scale=0}, {name: VLLMSIM_FAULTS, value: status=503@2x3}] # after the probe and what runs
`), 0o600); err != nil {
		t.Fatal(err)
	}
	p := newStrange(t, "-f", path)
	ask := func(fields, fault string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.server.url+"/v1/completions", strings.NewReader(`{"model":"chat","prompt":"a",`+fields+`}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-Vllmsim-Fault", fault)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	runs := ask(`"stream":true,"ignore_eos":true,"max_tokens":1000`, "slow=1s")
	if _, err := bufio.NewReader(runs.Body).Peek(1); err != nil || runs.StatusCode != http.StatusOK {
		t.Fatalf("what runs: %s, %v", runs.Status, err)
	}
	for range 2 {
		resp := ask(`"max_tokens":3`, "")
		raw, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("beside it: %s %s, %v", resp.Status, raw, err)
		}
	}
	runs.Body.Close()
	metrics, err := http.Get(p.server.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer metrics.Body.Close()
	if raw, _ := io.ReadAll(metrics.Body); !strings.Contains(string(raw), `reason="busy"} 3`) {
		t.Error("it was not refused three times")
	}
}

// killsFunction is no fault of the runtime's: its tokens come slowly, and the function's process is killed at the first.
const killsFunction = "slow=100ms"

// eventOf reads one event.
func eventOf(t *testing.T, text string) (name string, data map[string]any) {
	t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if n, found := strings.CutPrefix(line, "event: "); found {
			name = n
		} else if raw, found := strings.CutPrefix(line, "data: "); !found || json.Unmarshal([]byte(raw), &data) != nil {
			t.Errorf("the line %q of an event is no data", line)
		}
	}
	return name, data
}

func openAIError(t *testing.T, _, last map[string]any) {
	t.Helper()
	e, _ := last["error"].(map[string]any)
	_, coded := e["code"].(string) // the code distinguishes our errors from a model server's
	if message, _ := e["message"].(string); message == "" || e["type"] == "" || !coded {
		t.Errorf("the error is %v, want message, type and a code", last)
	}
}

func responsesError(t *testing.T, before, last map[string]any) {
	openAIError(t, before, last) // which client libraries make an error of
	number, _ := before["sequence_number"].(float64)
	_, coded := last["code"].(string)
	if message, _ := last["message"].(string); last["type"] != "error" || message == "" || !coded || last["sequence_number"] != number+1 {
		t.Errorf("the error is %v after %v, want type, message, code and the next number", last, before)
	}
}

// agentError checks the error of MLflow's AgentServer.
func agentError(t *testing.T, _, last map[string]any) {
	if text, _ := last["error"].(string); text == "" || len(last) != 1 {
		t.Errorf("the error is %v, want its text alone", last)
	}
}

func messagesError(t *testing.T, _, last map[string]any) {
	e, _ := last["error"].(map[string]any)
	if message, _ := e["message"].(string); last["type"] != "error" || message == "" || e["type"] == "" {
		t.Errorf("the error is %v, want Anthropic's", last)
	}
}
