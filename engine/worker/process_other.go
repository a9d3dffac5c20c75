//go:build !unix

package worker

import (
	"context"
	"errors"
	"log/slog"
	"os"
)

var errNoProcess = errors.New("worker processes need Unix sockets: run the worker in the engine's process")

// Process configures a worker's process.
type Process struct {
	Command []string
	Env     []string
	Files   []*os.File
	Log     *slog.Logger
}

// Launch fails on this system.
func (p Process) Launch(context.Context) (Running, error) { return nil, errNoProcess }

// Main fails on this system.
func Main(context.Context, Builder) error { return errNoProcess }
