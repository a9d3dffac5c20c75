package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// measured is one runtime of [TestProtocolMetrics], and the values that can be known of it.
type measured struct {
	args func(t *testing.T, dir string) []string // of rouse function, from --runtime on
	env  string
	// native are paths and bodies of the runtime's own API; nil: it has none that is asked.
	native func(text string, tokens int) (path, body string)
	// blocks: it says the size and number of its cache's blocks. capacity: it says how many tokens it holds.
	blocks, capacity bool
	// adapters is how many adapters it can use at once; 0: none.
	adapters int
	// perToken: each token but the first is an observation of time_per_output_token_seconds, and not each request.
	perToken bool
}

// runtimes lists the runtimes whose metrics are compared with the counts.
var runtimes = map[string]measured{
	"engine": {
		args: func(*testing.T, string) []string {
			return []string{"--runtime", "engine", "--model", "pico", "--adapters", "shout=pico/shout,pirate=pico/pirate", "--", "--max-num-seqs", "8"}
		},
		blocks: true, capacity: true, adapters: 8, perToken: true,
	},
	"vllm": {
		args: func(*testing.T, string) []string {
			return []string{"--runtime", "vllm", "--model", "q/w", "--adapters", "shout=/tmp,pirate=/tmp", "--", "--max-loras", "3"}
		},
		blocks: true, capacity: true, adapters: 3, perToken: true,
	},
	"vllm of 2024": {
		args: func(*testing.T, string) []string { return []string{"--runtime", "vllm", "--model", "q/w"} },
		env:  " --old-metrics", blocks: true, capacity: true, perToken: true,
	},
	"sglang": {
		args: func(*testing.T, string) []string {
			return []string{"--runtime", "sglang", "--model", "q/w", "--adapters", "shout=/tmp,pirate=/tmp", "--", "vllmsim", "--surface", "sglang"}
		},
		blocks: true, capacity: true, adapters: 8, perToken: true,
	},
	"llamacpp": {
		args: func(t *testing.T, dir string) []string {
			file := filepath.Join(dir, "m.gguf")
			if err := os.WriteFile(file, []byte("GGUF"), 0o600); err != nil {
				t.Fatal(err)
			}
			return []string{"--runtime", "llamacpp", "--model", file}
		},
		native: func(text string, tokens int) (string, string) {
			return "/completion", fmt.Sprintf(`{"prompt":%q,"n_predict":%d}`, text, tokens)
		},
		capacity: true,
	},
	"ollama": {
		args: func(t *testing.T, dir string) []string {
			program := realOllama(t)
			if err := os.Symlink(program, filepath.Join(dir, "ollama")); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, "m.Modelfile")
			text := fmt.Sprintf("FROM %s\nPARAMETER temperature 0\nPARAMETER num_thread 1\n", absolute(t, "../engine/pico/pico-q8_0.gguf"))
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			return []string{"--runtime", "ollama", "--model", file}
		},
		native: func(text string, tokens int) (string, string) {
			return "/api/generate", fmt.Sprintf(`{"model":"m","prompt":%q,"stream":false,"options":{"num_predict":%d}}`, text, tokens)
		},
		capacity: true,
	},
}

// One runtime after the other: requests are counted here, and the metrics have to say the same,
// awake and asleep, whether anybody looked at them in between or not.
func TestProtocolMetrics(t *testing.T) {
	for name, runtime := range runtimes {
		t.Run(name, func(t *testing.T) { testMetrics(t, runtime) })
	}
}

func testMetrics(t *testing.T, m measured) {
	f := newMeasured(t, m)
	f.cycle() // the first sleep also learns the canary, by requests of its own
	f.wake()
	before := f.scrape()
	f.wantSizes(before, "awake")
	f.wantLoad(before, "idle", 0, 0)

	f.busy()
	idle := f.until(func(s samples) bool { return s.get("vllm:num_requests_running") == 0 })
	f.wantLoad(idle, "idle again", 0, 0)

	before = idle
	truth := f.ask()
	f.sleep() // and it was not read since
	asleep := f.scrape()
	f.wantTotals(before, asleep, truth)
	f.wantSizes(asleep, "asleep")
	f.wantLoad(asleep, "asleep", 0, 0)
	for _, name := range []string{"vllm:max_token_capacity", "vllm:cache_config_info", "vllm:lora_requests_info"} {
		if name != "vllm:lora_requests_info" && before.get(name) != asleep.get(name) || before.label(name) != asleep.label(name) {
			t.Errorf("%s awake: %v, asleep: %v", name, before[name], asleep[name])
		}
	}
	f.wake()
	f.wantSizes(f.scrape(), "awake again")
}

// measuredFunction is a running function.
type measuredFunction struct {
	measured
	t       *testing.T
	at      api.Endpoint
	http    *http.Client
	control *control.Client
	epoch   uint64
}

func newMeasured(t *testing.T, m measured) *measuredFunction {
	t.Helper()
	p, err := newPlace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	})
	transport := api.NewTransport(16)
	t.Cleanup(transport.CloseIdleConnections)
	f := &measuredFunction{measured: m, t: t, at: api.Endpoint("unix:" + filepath.Join(p.dir, "s")), http: &http.Client{Transport: transport}, control: control.New(transport, nil), epoch: 1}
	args := append([]string{"function", "--listen", string(f.at), "--function", "m", "--concurrency", "8", "--probe-interval", "-1s"}, m.args(t, p.dir)...)
	cmd := exec.Command(filepath.Join(bin, "rouse"), args...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), p.env()...)
	cmd.Env = append(cmd.Env, "PATH="+p.dir+":"+bin+":"+os.Getenv("PATH"), "VLLMSIM_DEVICES="+filepath.Join(p.dir, "gpus"),
		"VLLMSIM_FLAGS=--time-scale 1 --load-time 0 --sleep-time 0 --wake-time 0 --reload-time 0 --step-time 2ms --device-memory 80GiB --weights 1GiB"+m.env)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the function printed:\n%s", log.String())
		}
	})
	if err := retry(func() error {
		s, err := f.control.State(t.Context(), f.at)
		if err == nil && s.State != api.Awake {
			err = fmt.Errorf("it is %s: %s", s.State, s.Message)
		}
		return err
	}); err != nil {
		t.Fatalf("it does not come: %v\n%s", err, log.String())
	}
	return f
}

func (f *measuredFunction) sleep() {
	f.t.Helper()
	f.epoch++
	if _, err := f.control.Sleep(f.t.Context(), f.at, control.SleepRequest{Level: api.Level1, Epoch: f.epoch}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *measuredFunction) wake() {
	f.t.Helper()
	f.epoch++
	if _, err := f.control.Wake(f.t.Context(), f.at, api.Grant{Epoch: f.epoch}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *measuredFunction) cycle() { f.sleep(); f.wake() }

// counted holds the sums over the answers.
type counted struct {
	requests          int
	prompt, generated int
	later             int // tokens after the first of a request
}

// usage is in an answer, or in the last event of a stream.
type usage struct {
	Usage struct {
		Prompt    int `json:"prompt_tokens"`
		Generated int `json:"completion_tokens"`
	} `json:"usage"`
	EvalPrompt    int `json:"prompt_eval_count"`
	Eval          int `json:"eval_count"`
	TokensPrompt  int `json:"tokens_evaluated"`
	TokensPredict int `json:"tokens_predicted"`
}

func (f *measuredFunction) post(ctx context.Context, path, body string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, f.at.URL(path), strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := f.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s %s", path, body, resp.Status, raw)
	}
	return raw, err
}

// ask sends 24 requests without streams, one behind the other, and six streams; where the runtime has an API of its own, half of the first by that.
func (f *measuredFunction) ask() (c counted) {
	f.t.Helper()
	for i := range 30 {
		text := strings.Repeat("apple pear ", 1+i%7)
		path := "/v1/chat/completions"
		body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}],"max_tokens":%d`, text, 2+i%5)
		native := f.native != nil && i < 12
		switch {
		case native:
			path, body = f.native(text, 2+i%5)
		case i >= 24:
			body += `,"stream":true,"stream_options":{"include_usage":true}}`
		default:
			body += "}"
		}
		raw, err := f.post(f.t.Context(), path, body)
		if err != nil {
			f.t.Fatal(err)
		}
		if at := bytes.LastIndex(raw, []byte("data: {")); at >= 0 {
			raw = bytes.TrimSuffix(bytes.TrimSpace(raw[at+len("data: "):]), []byte("data: [DONE]"))
		}
		var u usage
		if err := json.Unmarshal(raw, &u); err != nil {
			f.t.Fatalf("%s: %v", raw, err)
		}
		prompt, generated := u.Usage.Prompt+u.EvalPrompt+u.TokensPrompt, u.Usage.Generated+u.Eval+u.TokensPredict
		if prompt == 0 || generated == 0 {
			f.t.Fatalf("an answer without numbers: %s", raw)
		}
		c.requests++
		c.prompt += prompt
		c.generated += generated
		c.later += generated - 1
	}
	return c
}

// wantTotals compares what the metrics have counted in between.
func (f *measuredFunction) wantTotals(before, after samples, c counted) {
	f.t.Helper()
	perToken := c.requests
	if f.perToken {
		perToken = c.later
	}
	for name, want := range map[string]int{
		"vllm:prompt_tokens_total": c.prompt, "vllm:generation_tokens_total": c.generated,
		"vllm:time_to_first_token_seconds_count": c.requests, "vllm:time_per_output_token_seconds_count": perToken,
	} {
		if got := after.get(name) - before.get(name); got != float64(want) {
			f.t.Errorf("%s rose by %v, want %d", name, got, want)
		}
	}
	for _, name := range []string{"vllm:time_to_first_token_seconds_sum", "vllm:time_per_output_token_seconds_sum", "rouse_time_per_prefill_token_seconds_count", "rouse_time_per_prefill_token_seconds_sum"} {
		if after.get(name) <= before.get(name) {
			f.t.Errorf("%s was %v, and is %v", name, before.get(name), after.get(name))
		}
	}
	mean := func(name string) float64 {
		return (after.get(name+"_sum") - before.get(name+"_sum")) / (after.get(name+"_count") - before.get(name+"_count"))
	}
	if first, token := mean("vllm:time_to_first_token_seconds"), mean("rouse_time_per_prefill_token_seconds"); token >= first {
		f.t.Errorf("a token of a prompt takes %v s, and the first token %v s", token, first)
	}
}

// wantSizes checks the constant metrics.
func (f *measuredFunction) wantSizes(s samples, when string) {
	f.t.Helper()
	capacity, cache, lora := s.get("vllm:max_token_capacity"), s.label("vllm:cache_config_info"), s.label("vllm:lora_requests_info")
	if f.capacity != (capacity > 0) {
		f.t.Errorf("%s: the capacity is %v", when, capacity)
	}
	if f.blocks != (cache != "") {
		f.t.Errorf("%s: the cache is %q", when, cache)
	}
	var size, number float64
	if f.blocks {
		if _, err := fmt.Sscanf(cache, "block_size=%f,model_name=m,num_gpu_blocks=%f", &size, &number); err != nil || size*number != capacity {
			f.t.Errorf("%s: the cache is %s, which makes %v tokens; %v are said to fit: %v", when, cache, size*number, capacity, err)
		}
	}
	want := ""
	if f.adapters > 0 {
		want = fmt.Sprintf("max_lora=%d,model_name=m,running_lora_adapters=,waiting_lora_adapters=", f.adapters)
	}
	if lora != want {
		f.t.Errorf("%s: adapters are %q, want %q", when, lora, want)
	}
	var info struct {
		Config struct{ MaxActiveAdapters int }
		State  struct{ ActiveAdapters []string }
	}
	if err := json.Unmarshal(f.fetch("/adapters/info"), &info); err != nil || info.Config.MaxActiveAdapters != f.adapters || f.adapters > 0 && len(info.State.ActiveAdapters) != 2 {
		f.t.Errorf("%s: /adapters/info says %+v, %v; want at most %d at once", when, info, err, f.adapters)
	}
}

// wantLoad checks the changing metrics.
func (f *measuredFunction) wantLoad(s samples, when string, running, tokens float64) {
	f.t.Helper()
	for name, want := range map[string]float64{
		"vllm:num_requests_running": running, "vllm:num_requests_waiting": 0, "vllm:num_tokens_running": tokens, "vllm:num_tokens_waiting": 0, "vllm:kv_cache_usage_perc": 0,
	} {
		if got, found := s[name]; !found || got.value != want {
			f.t.Errorf("%s: %s is %v (there: %v), want %v", when, name, got.value, found, want)
		}
	}
}

// busy has four clients ask without streams, again and again, until the metrics have shown that
// all of them run: tokens too, never more than fit.
func (f *measuredFunction) busy() {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.t.Context())
	var clients sync.WaitGroup
	defer func() { cancel(); clients.Wait() }()
	for i := range 4 {
		clients.Go(func() {
			for ctx.Err() == nil {
				model, text := "m", strings.Repeat("apple pear ", 20)
				if i == 0 && f.adapters > 0 {
					model = "shout"
				}
				_, err := f.post(ctx, "/v1/completions", fmt.Sprintf(`{"model":%q,"prompt":%q,"max_tokens":300,"ignore_eos":true}`, model, text))
				if err != nil && ctx.Err() == nil {
					f.t.Error(err)
					return
				}
			}
		})
	}
	f.until(func(s samples) bool {
		tokens, capacity, usage := s.get("vllm:num_tokens_running"), s.get("vllm:max_token_capacity"), s.get("vllm:kv_cache_usage_perc")
		if tokens > capacity || usage < 0 || usage > 1 || usage != s.get("vllm:gpu_cache_usage_perc") {
			f.t.Errorf("%v tokens run of %v, usage %v", tokens, capacity, usage)
		}
		lora := s.label("vllm:lora_requests_info")
		if strings.Contains(lora, "pirate") {
			f.t.Errorf("an adapter that nobody uses: %s", lora)
		}
		return s.get("vllm:num_requests_running") == 4 && tokens >= 4*10 && tokens <= 4*(400+300) && usage > 0 && (f.adapters == 0 || strings.Contains(lora, "running_lora_adapters=shout,"))
	})
}

// until scrapes until the metrics are as they should be.
func (f *measuredFunction) until(is func(samples) bool) (s samples) {
	f.t.Helper()
	if err := retry(func() error {
		if s = f.scrape(); is(s) {
			return nil
		}
		return fmt.Errorf("the metrics stay at %v", s)
	}); err != nil {
		f.t.Fatal(err)
	}
	return s
}
