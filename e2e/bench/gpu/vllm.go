package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rouse-dev/rouse/api"
)

// vllm measures vLLM as a function: its start, its first sleep and later ones, and how soon it answers afterwards.
func (b *bench) vllm(ctx context.Context, p *Part) error {
	env, annotations, args, err := b.vllmFunction(ctx, p)
	if err != nil {
		return err
	}
	u, err := b.startUp(ctx, function("v", annotations, args...), env...)
	if err != nil {
		return err
	}
	defer u.stop()
	ask := func(what string) error {
		took, err := u.firstByte(ctx, completion("v", 8))
		if err != nil {
			return fmt.Errorf("%s: %w: %s", what, err, u.words())
		}
		p.add(what, "s", took.Seconds())
		return nil
	}
	if err := ask("unloaded to first byte"); err != nil {
		return err
	}
	for _, s := range []struct {
		name  string
		level api.Level
	}{{"level 1, first", api.Level1}, {"level 1, second", api.Level1}, {"level 1, third", api.Level1}, {"level 2", api.Level2}} {
		if err := ask(s.name + ": awake to first byte"); err != nil {
			return err
		}
		took, err := u.sleep(ctx, "v", s.level)
		if err != nil {
			return fmt.Errorf("%s: %w: %s", s.name, err, u.words())
		}
		p.add(s.name+": sleep", "s", took.Seconds())
		if err := ask(s.name + ": asleep to first byte"); err != nil {
			return err
		}
		f, err := u.function(ctx, "v", "")
		if err != nil {
			return err
		}
		if wake := f.Learned.Wake[s.level]; wake > 0 {
			p.add(s.name+": wake, as the function measured it", "s", wake.Seconds())
		}
	}
	return nil
}

// vllmFunction is the function: the simulator with --small, else vLLM, where it is installed.
func (b *bench) vllmFunction(ctx context.Context, p *Part) (env []string, annotations map[string]string, args []string, err error) {
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
		p.note("vLLM %s; a model of random weights of %s", b.facts.VLLM, gigabytes(b.vllmWeights))
	} else {
		p.note("vLLM %s; %s", b.facts.VLLM, model)
	}
	annotations["rouse.dev/model"] = model
	return env, annotations, []string{"--max-model-len", "8192"}, nil
}

// findVLLM puts vLLM's program on the PATH where only the interpreter has it.
func (b *bench) findVLLM(ctx context.Context) (env []string, err error) {
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
