package main

import (
	"context"
	"fmt"
	"os/exec"
)

func Build(ctx context.Context, path, pkg string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "github.com/rouse-dev/rouse/"+pkg)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return nil
}

// Simulator stands for model servers.
const Simulator = "e2e/vllmsim/cmd/vllmsim"
