package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// simulated puts the simulator where `rouse up` looks for vLLM and nvidia-smi. It returns the environment.
func (b *gpuBench) simulated(ctx context.Context) (env []string, err error) {
	bin := filepath.Join(b.dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return nil, err
	}
	if b.sim == "" {
		b.sim = filepath.Join(b.dir, "vllmsim")
		if err := Build(ctx, b.sim, Simulator); err != nil {
			return nil, err
		}
	}
	program, err := filepath.Abs(b.sim)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"vllm", "nvidia-smi"} {
		if err := os.Symlink(program, filepath.Join(bin, name)); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, err
		}
	}
	devices, err := os.MkdirTemp(b.dir, "devices")
	if err != nil {
		return nil, err
	}
	env = []string{
		"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"), "VLLMSIM_DEVICES=" + devices,
		"VLLMSIM_FLAGS=--time-scale 0.01 --first-sleep 20",
	}
	make := exec.CommandContext(ctx, program, "devices", "--count", "1", "--memory", "80GiB")
	make.Env = append(os.Environ(), env...)
	if out, err := make.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("make a simulated device: %w: %s", err, out)
	}
	return env, nil
}
