package main

import (
	"context"
	"path/filepath"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
)

// startEngine starts an engine with pico on a Unix socket and returns when it listens.
func (b *localBench) startEngine(ctx context.Context) (*Engine, error) {
	return StartEngine(ctx, b.rouse, api.Endpoint("unix:"+filepath.Join(b.dir, "e.sock")), "--model", "pico")
}

// startServer starts "rouse up" on a free port, with the functions of a manifest
// or, if it is empty, with the built-in one, and env besides the environment. It returns when it says that it is ready.
func (b *localBench) startServer(ctx context.Context, manifest string, env ...string) (*Up, error) {
	return StartUp(ctx, UpConfig{Rouse: b.rouse, Dir: b.dir, Manifest: manifest, Args: []string{"--no-gpu"}, Env: env})
}

// rest puts a function to sleep at level 1 and waits for its standing grant.
func (u *Up) rest(ctx context.Context, name string) error {
	return u.orderQuiet(ctx, name, "sleep?level=1", "granted", func(f admin.Function) bool { return len(f.Granted) > 0 })
}

// stopFunction stops a function and waits until it has no process.
func (u *Up) stopFunction(ctx context.Context, name string) error {
	return u.orderQuiet(ctx, name, "stop", "gone", func(f admin.Function) bool { return len(f.Instances) == 0 })
}

// orderQuiet waits until a function has no request, orders something of it, and waits until it is as wanted, which state says.
func (u *Up) orderQuiet(ctx context.Context, name, what, state string, wanted func(admin.Function) bool) error {
	if err := u.Await(ctx, name, "quiet", Quiet); err != nil {
		return err
	}
	if err := u.Order(ctx, name, what); err != nil {
		return err
	}
	return u.Await(ctx, name, state, wanted)
}
