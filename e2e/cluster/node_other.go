//go:build !linux

package cluster

import (
	"context"
	"os/exec"
)

func lock(context.Context, func()) (func(), error) { return nil, Unable() }

func begin(Places, *record) error { return Unable() }

func end(context.Context, *record) error { return Unable() }

// Init is Linux's.
func Init(Places) error { return Unable() }

func (r *record) in(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, name, args...)
}

func privileges() error { return nil }
