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

// server is "rouse up".
type server struct{ *Up }

// startServer starts "rouse up" on a free port, with the functions of a manifest
// or, if it is empty, with the built-in one, and env besides the environment. It returns when it says that it is ready.
func (b *localBench) startServer(ctx context.Context, manifest string, env ...string) (*server, error) {
	u, err := StartUp(ctx, UpConfig{Rouse: b.rouse, Dir: b.dir, Manifest: manifest, Args: []string{"--no-gpu"}, Env: env})
	if err != nil {
		return nil, err
	}
	return &server{u}, nil
}

// sleep puts the function to sleep at level 1 and waits for its standing grant.
func (s *server) sleep(ctx context.Context, name string) error {
	if err := s.Await(ctx, name, "quiet", Quiet); err != nil {
		return err
	}
	if err := s.Order(ctx, name, "sleep?level=1"); err != nil {
		return err
	}
	return s.Await(ctx, name, "granted", func(f admin.Function) bool { return len(f.Granted) > 0 })
}

// stopFunction stops the function and waits until it has no process.
func (s *server) stopFunction(ctx context.Context, name string) error {
	if err := s.Await(ctx, name, "quiet", Quiet); err != nil {
		return err
	}
	if err := s.Order(ctx, name, "stop"); err != nil {
		return err
	}
	return s.Await(ctx, name, "gone", func(f admin.Function) bool { return len(f.Instances) == 0 })
}
