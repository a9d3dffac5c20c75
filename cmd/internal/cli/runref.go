package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/cmd/internal/local"
	"github.com/rouse-dev/rouse/config"
)

// dialFor finds the server for a question to a function, or to a model that is declared first. Where none runs, and none was
// named, one is started that serves that model until end is called.
func dialFor(cmd *cobra.Command, nameOrModel string) (c *client, door api.Endpoint, name string, end func(), err error) {
	c, door, err = dialDoor(cmd)
	switch {
	case errors.Is(err, errNoServer):
		return serveFor(cmd, nameOrModel)
	case err != nil:
		return nil, "", "", nil, err
	}
	if !config.IsReference(nameOrModel) {
		return c, door, nameOrModel, func() {}, nil
	}
	f, err := config.ForModel(nameOrModel, "rouse run")
	if err != nil {
		return nil, "", "", nil, err
	}
	if err := c.declare(cmd, f, nameOrModel); err != nil {
		return nil, "", "", nil, err
	}
	return c, door, f.ServiceName().Name(), func() {}, nil
}

// declare has the server serve a model, unless it does already.
func (c *client) declare(cmd *cobra.Command, f api.Function, model string) error {
	var there []admin.Function
	if err := c.Call(cmd.Context(), http.MethodGet, admin.PathFunctions, nil, &there); err != nil {
		return fmt.Errorf("declare %s: %w", f.Name.Short(), err)
	}
	for _, other := range there {
		switch {
		case other.Function.Name != f.Name:
		case other.Function.Runtime.Kind == f.Runtime.Kind && other.Function.Runtime.Model == f.Runtime.Model:
			return nil
		default:
			return fmt.Errorf("another function is called %s already: name this one with NAME=%s", f.Name.Short(), model)
		}
	}
	var done admin.Declared
	if err := c.Call(cmd.Context(), http.MethodPost, admin.PathFunctions, f, &done); err != nil {
		return fmt.Errorf("declare %s: %w", f.Name.Short(), err)
	}
	if done.Doubts != "" {
		return fmt.Errorf("%s can't start as things are: %s", f.Name.Short(), done.Doubts)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s is declared: rouse rm %[1]s takes it away\n", f.Name.Short())
	return nil
}

// serveFor serves one model until end is called.
func serveFor(cmd *cobra.Command, model string) (c *client, door api.Endpoint, name string, end func(), err error) {
	if !config.IsReference(model) && model != "pico" {
		return nil, "", "", nil, fmt.Errorf("%w; or give a model to run: a GGUF file, hf.co/ORG/NAME, or pico, which ships with Rouse", errNoServer)
	}
	flags := &upFlags{models: []string{model}, listen: "127.0.0.1:0", maxEvent: "1Mi"}
	cfg, err := flags.config()
	if err != nil {
		return nil, "", "", nil, err
	}
	cfg.Logger = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelError}))
	ready := make(chan local.Info, 1)
	cfg.Ready = func(info local.Info) { ready <- info }
	ctx, stop := context.WithCancel(context.WithoutCancel(cmd.Context())) // the first Ctrl-C ends an answer
	ended := make(chan error, 1)
	go func() { ended <- local.Run(ctx, cfg) }()
	select {
	case info := <-ready:
		door = api.Endpoint(info.URL)
	case err := <-ended:
		stop()
		return nil, "", "", nil, fmt.Errorf("serve %s: %w", model, err)
	}
	end = func() {
		stop()
		if err := <-ended; err != nil {
			fmt.Fprintln(cmd.ErrOrStderr(), "rouse: the server:", err)
		}
	}
	return newClient(door, ""), door, cfg.Functions[0].Name.Name(), end, nil
}
