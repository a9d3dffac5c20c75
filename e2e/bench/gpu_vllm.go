package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
)

func (b *gpuBench) vllm(ctx context.Context, p *gpuPart) error {
	env, annotations, args, err := b.vllmFunction(ctx, p)
	if err != nil {
		return err
	}
	if err := p.goOn(ctx, b.vllmSleeps(ctx, p, env, annotations, args)); err != nil {
		return err
	}
	if err := p.goOn(ctx, b.vllmRehearsed(ctx, p, env, annotations, args)); err != nil {
		return err
	}
	for _, c := range b.connectors() {
		if err := b.vllmTurns(ctx, p, c.name, env, annotations, slices.Concat(args, c.options)); err != nil {
			if ctx.Err() != nil || b.small || len(c.options) == 0 {
				if err := p.goOn(ctx, fmt.Errorf("%s: %w", c.name, err)); err != nil {
					return err
				}
				continue
			}
			p.note("%s: left out, this vLLM does not start or sleep with it: %s", c.name, lastLine(err.Error()))
		}
	}
	return nil
}

// connector keeps vLLM's KV cache elsewhere, too.
type connector struct {
	name    string
	options []string
}

func (b *gpuBench) connectors() []connector {
	list := []connector{{"no connector", nil}, {"native connector", []string{"--kv-offloading-size", "8"}}}
	if b.small || b.facts.LMCache != "" {
		list = append(list, connector{"LMCache", []string{"--kv-transfer-config", `{"kv_connector":"LMCacheConnectorV1","kv_role":"kv_both"}`}})
	}
	return list
}

func (b *gpuBench) vllmTurns(ctx context.Context, p *gpuPart, name string, env []string, annotations map[string]string, args []string) error {
	u, err := b.startUp(ctx, gpuFunction("v", annotations, append(args, "--enable-prompt-tokens-details")...), env...)
	if err != nil {
		return err
	}
	defer u.Stop()
	said := strings.Repeat("What was said before, in so many words. ", 100)
	ask := func(what string) error {
		first, cached, err := u.turn(ctx, map[string]any{"model": "v", "prompt": said, "max_tokens": 4, "temperature": 0, "stream": true, "stream_options": map[string]bool{"include_usage": true}})
		if err != nil {
			return fmt.Errorf("%s: %w: %s", what, err, u.Words())
		}
		p.add(name+", "+what+": to first byte", "s", first.Seconds())
		if cached >= 0 {
			p.add(name+", "+what+": of the prompt was there", "tokens", float64(cached))
		}
		said += "And what is said now. "
		return nil
	}
	if _, err := u.firstByte(ctx, gpuCompletion("v", 4)); err != nil { // it starts
		return fmt.Errorf("%w: %s", err, u.Words())
	}
	for _, what := range []string{"a conversation begins", "its next turn", "a turn after level 1", "a turn after level 2"} {
		if level := api.Level(what[len(what)-1] - '0'); level == api.Level1 || level == api.Level2 {
			if _, err := u.sleep(ctx, "v", level); err != nil {
				return fmt.Errorf("%s: %w: %s", what, err, u.Words())
			}
		}
		if err := ask(what); err != nil {
			return err
		}
	}
	return nil
}

func (b *gpuBench) vllmSleeps(ctx context.Context, p *gpuPart, env []string, annotations map[string]string, args []string) error {
	u, err := b.startUp(ctx, gpuFunction("v", annotations, args...), env...)
	if err != nil {
		return err
	}
	defer u.Stop()
	ask := func(what string) error {
		took, err := u.firstByte(ctx, gpuCompletion("v", 8))
		if err != nil {
			return fmt.Errorf("%s: %w: %s", what, err, u.Words())
		}
		p.add(what, "s", took.Seconds())
		return nil
	}
	if err := ask("unloaded to first byte"); err != nil {
		return err
	}
	if err := u.tokenIDs(ctx, p); err != nil {
		return err
	}
	for k, s := range []struct {
		name  string
		level api.Level
	}{{"level 1, first", api.Level1}, {"level 1, second", api.Level1}, {"level 1, third", api.Level1}, {"level 2", api.Level2}} {
		if err := ask(s.name + ": awake to first byte"); err != nil {
			return err
		}
		took, err := u.sleep(ctx, "v", s.level)
		if err != nil {
			return fmt.Errorf("%s: %w: %s", s.name, err, u.Words())
		}
		p.add(s.name+": sleep", "s", took.Seconds())
		if err := ask(s.name + ": asleep to first byte"); err != nil {
			return err
		}
		var wake time.Duration
		if err := u.Await(ctx, "v", "measured", func(f admin.Function) bool { // a moment after the first byte
			wake = f.Learned.Wake[s.level]
			return f.Learned.Wakes > k
		}); err != nil {
			return fmt.Errorf("%s: %w: %s", s.name, err, u.Words())
		}
		p.add(s.name+": wake, as the function measured it", "s", wake.Seconds())
	}
	return nil
}

const rehearsalWithin = 3 * time.Minute

func (b *gpuBench) vllmRehearsed(ctx context.Context, p *gpuPart, env []string, annotations map[string]string, args []string) error {
	with := maps.Clone(annotations)
	with["rouse.dev/rehearse"] = api.RehearseAlways
	u, err := b.startUp(ctx, gpuFunction("v", with, args...), env...)
	if err != nil {
		return err
	}
	defer u.Stop()
	if _, err := u.firstByte(ctx, gpuCompletion("v", 4)); err != nil {
		return fmt.Errorf("before a rehearsal: %w: %s", err, u.Words())
	}
	limited, stop := context.WithTimeoutCause(ctx, rehearsalWithin, lacks("no rehearsal within %s of idleness", rehearsalWithin))
	defer stop()
	var took time.Duration
	if err := u.Await(limited, "v", "rehearsed", func(f admin.Function) bool {
		took = f.Learned.FirstSleep
		return f.Learned.Sleeps > 0 && len(f.Instances) == 1 && f.Instances[0].State == api.Awake
	}); err != nil {
		return fmt.Errorf("rehearsal: %w", cmp.Or(context.Cause(limited), err))
	}
	p.add("rehearsal: its sleep, for which nobody waited", "s", took.Seconds())
	again, err := u.sleep(ctx, "v", api.Level1)
	if err != nil {
		return fmt.Errorf("after a rehearsal: %w: %s", err, u.Words())
	}
	p.beside("after a rehearsal: the first sleep that somebody waits for", "s", again.Seconds(), took.Seconds(), "the rehearsal")
	return nil
}

// tokenIDs notes whether a stream has its tokens' numbers, by which it can go on elsewhere.
func (u *Up) tokenIDs(ctx context.Context, p *gpuPart) error {
	body, told := gpuCompletion("v", 8), 0
	body["return_token_ids"] = true
	if _, err := u.Door.First(ctx, "/v1/completions", body, func(data string) {
		var event struct {
			Choices []struct {
				IDs []int `json:"token_ids"`
			}
		}
		if json.Unmarshal([]byte(data), &event) == nil { // the last one is no JSON
			for _, c := range event.Choices {
				told += len(c.IDs)
			}
		}
	}); err != nil {
		p.note("a stream with return_token_ids: %v", err)
		return ctx.Err()
	}
	p.beside("a stream of 8 tokens with return_token_ids: ids that it tells", "tokens", float64(told), 8, "of")
	return nil
}

func (b *gpuBench) vllmFunction(ctx context.Context, p *gpuPart) (env []string, annotations map[string]string, args []string, err error) {
	annotations = map[string]string{"rouse.dev/runtime": "vllm"}
	if b.small {
		if env, err = b.simulated(ctx); err != nil {
			return nil, nil, nil, err
		}
		p.note("the simulator stands for vLLM, a hundred times faster than its model of it")
		annotations["rouse.dev/model"], annotations["rouse.dev/device-memory"] = "sim/llama-8b", "73Gi"
		return env, annotations, nil, nil
	}
	if env, err = b.findVLLM(ctx); err != nil {
		return nil, nil, nil, err
	}
	model := b.vllmModel
	if model == "" {
		if model, err = b.vllmFolder(ctx); err != nil {
			return nil, nil, nil, err
		}
		p.note("vLLM %s; a model of random weights of %s", b.facts.VLLM, gigabytes(vllmWeights))
	} else {
		p.note("vLLM %s; %s", b.facts.VLLM, model)
	}
	annotations["rouse.dev/model"] = model
	return env, annotations, []string{"--max-model-len", "8192"}, nil
}

// The interpreter may have vLLM's program where the PATH has not.
func (b *gpuBench) findVLLM(ctx context.Context) (env []string, err error) {
	if b.facts.VLLM == "" {
		return nil, lacks("vLLM is not installed: %s has no package vllm", b.python)
	}
	if _, err := exec.LookPath("vllm"); err == nil {
		return nil, nil
	}
	out, err := exec.CommandContext(ctx, b.python, "-c", "import sysconfig; print(sysconfig.get_path('scripts'))").Output()
	if err != nil {
		return nil, fmt.Errorf("ask %s for its scripts: %w", b.python, err)
	}
	scripts := strings.TrimSpace(string(out))
	if _, err := os.Stat(filepath.Join(scripts, "vllm")); err != nil {
		return nil, lacks("the program vllm is neither on the PATH nor in %s", scripts)
	}
	return []string{"PATH=" + scripts + string(os.PathListSeparator) + os.Getenv("PATH")}, nil
}
