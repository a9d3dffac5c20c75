package main

import (
	"context"
	"fmt"
	"os/exec"
)

// Build builds the program of a package of this module, such as cmd/rouse, to a path.
func Build(ctx context.Context, path, pkg string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "github.com/rouse-dev/rouse/"+pkg)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return nil
}

// Simulator is the package of the program that stands for model servers.
const Simulator = "e2e/vllmsim/cmd/vllmsim"
