package vllmsim

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"
)

// parse reads a command line with an environment of NAME=value.
func parse(t *testing.T, line string, env ...string) (Command, error) {
	t.Helper()
	return Parse(strings.Fields(line), func(name string) string {
		for _, e := range env {
			if value, found := strings.CutPrefix(e, name+"="); found {
				return value
			}
		}
		return ""
	}, io.Discard)
}

func TestVLLMCommandLine(t *testing.T) {
	cmd, err := parse(t, `vllm serve org/model-7b --host 127.0.0.1 --port 8123 --served-model-name one two --enable-sleep-mode --enable-lora --max-loras 4
		--max_model_len 4096 --max-num-seqs 8 --gpu-memory-utilization 0.5 --tensor-parallel-size=2 --api-key a b --no-enable-log-requests --lora-modules sql=/a {"name":"med","path":"/b"}`,
		"VLLM_SERVER_DEV_MODE=1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True", "CUDA_VISIBLE_DEVICES=1,2", "VLLMSIM_DEVICES=/gpus", "VLLM_API_KEY=env", "VLLMSIM_FLAGS=--time-scale 0.5 --weights 2GiB")
	if err != nil {
		t.Fatal(err)
	}
	c := cmd.Config
	for _, check := range []struct {
		what string
		ok   bool
	}{
		{"address", cmd.Host == "127.0.0.1" && cmd.Port == 8123}, {"model", c.Model == "org/model-7b" && c.Surface == VLLM},
		{"names", strings.Join(c.Names, " ") == "one two"}, {"sleep and LoRA", c.Sleep && c.LoRA && c.MaxLoRAs == 4 && c.RuntimeLoRA},
		{"sizes", c.MaxModelLen == 4096 && c.MaxSeqs == 8 && c.Utilization == 0.5}, {"keys", strings.Join(c.APIKeys, " ") == "a b"},
		{"adapters", len(c.Adapters) == 2 && c.Adapters[1] == Adapter{Name: "med", Path: "/b"}},
		{"environment", c.DevMode && *c.Device.Visible == "1,2" && c.Device.Dir == "/gpus"}, {"VLLMSIM_FLAGS", c.TimeScale == 0.5 && c.Weights == 2<<30},
	} {
		if !check.ok {
			t.Errorf("%s: %+v", check.what, cmd)
		}
	}
	if full := c.withDefaults(); full.validate() != nil {
		t.Error(full.validate())
	}
}

func TestOtherCommandLines(t *testing.T) {
	for _, tt := range []struct {
		line string
		want func(Command) bool
	}{
		{"python3 -m sglang.launch_server --model-path org/m --served-model-name x --enable-memory-saver --enable-weights-cpu-backup --enable-metrics --lora-paths sql=/a --mem-fraction-static 0.8",
			func(c Command) bool {
				return c.Config.Surface == SGLang && c.Port == 30000 && c.Config.Sleep && c.Config.WeightsBackup && c.Config.Metrics && len(c.Config.Adapters) == 1 && c.Config.Utilization == 0.8 && c.Config.Names[0] == "x"
			}},
		{"python -m vllm.entrypoints.openai.api_server --model org/m", func(c Command) bool { return c.Config.Surface == VLLM && c.Config.Model == "org/m" }},
		{"/usr/bin/llama-server -m /models/x.gguf --alias a,b --metrics -np 2 -c 2048 --host /run/s.sock --lora /l/a.gguf", func(c Command) bool {
			return c.Config.Surface == LlamaCpp && c.Port == 8080 && strings.Join(c.Config.Names, " ") == "a b" && c.Config.Metrics && c.Config.MaxSeqs == 2 && c.Config.MaxModelLen == 2048 && c.Config.Adapters[0].Path == "/l/a.gguf"
		}},
		{"vllmsim serve --surface llamacpp -m x.gguf", func(c Command) bool { return c.Config.Surface == LlamaCpp }},
		{"ray start --head --block --port=0 --dashboard-port=9000", func(c Command) bool {
			return c.Config.Surface == RayServe && c.Host == "127.0.0.1" && c.Port == 9000
		}},
		{"vllm serve m --wake-time 0 --load-time 3s", func(c Command) bool { return c.Config.WakeTime < 0 && c.Config.LoadTime == 3*time.Second }},
		{"vllm serve m --enable-sleep-mode --enable-lora --no-enable-sleep-mode", func(c Command) bool { return c.Config.LoRA && !c.Config.Sleep }},
		{"vllm serve m --trust-remote-code --made-up 5 --enable-made-up --port 1", func(c Command) bool { return c.Config.Model == "m" && c.Port == 1 }},
	} {
		if cmd, err := parse(t, tt.line); err != nil || !tt.want(cmd) {
			t.Errorf("%s: %v %+v", tt.line, err, cmd)
		}
	}
}

func TestUnknownFlagsAreWarnedOf(t *testing.T) {
	var warnings bytes.Buffer
	if _, err := Parse([]string{"vllm", "serve", "m", "--made-up", "5"}, func(string) string { return "" }, &warnings); err != nil || !strings.Contains(warnings.String(), "--made-up 5") {
		t.Errorf("%v, %q", err, warnings.String())
	}
}

func TestBytes(t *testing.T) {
	for text, want := range map[string]int64{"16GiB": 16 << 30, "16g": 16 << 30, "500MB": 500e6, "1024": 1024, "1.5 KiB": 1536, "0": 0} {
		if got, err := Bytes(text); err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "GiB", "-1", "1 parsec", "1e30", "NaN"} {
		if got, err := Bytes(text); err == nil {
			t.Errorf("%q is %d", text, got)
		}
	}
}

func TestSizeFromTheModelsName(t *testing.T) {
	for name, want := range map[string]int64{"meta-llama/Llama-3.1-8B-Instruct": 16e9, "Qwen/Qwen2.5-0.5B": 1e9, "sim/tiny-1b": 2e9, "gpt2": 1 << 30, "b8b": 1 << 30} {
		if got := (Config{Model: name}).withDefaults().Weights; got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("vllm serve m --port 1 --served-model-name a b --api-key")
	f.Add("llama-server -m x --surface=sglang --weights 9e99 -")
	f.Fuzz(func(t *testing.T, line string) {
		cmd, err := parse(t, line)
		if err == nil {
			_, _ = New(cmd.Config) // whatever comes of it, no panic
		}
	})
}
