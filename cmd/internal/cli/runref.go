package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/cmd/internal/catalog"

	"github.com/rouse-dev/rouse/cmd/internal/local"
	"github.com/rouse-dev/rouse/cmd/internal/render"
	"github.com/rouse-dev/rouse/config"
	"github.com/rouse-dev/rouse/engine/pico"
)

// freshEnough is how long a fetched model is run without asking its source.
const freshEnough = 24 * time.Hour

type target struct {
	*client
	door api.Endpoint
	name string
	// end ends a server that was started for the question.
	end func()
	// meant has suggestions for an unknown name; may be nil.
	meant error
}

// dialFor finds the server for a function, or for a model that is fetched and declared first. If none runs or is named, it starts one,
// until end.
func dialFor(cmd *cobra.Command, nameOrModel string) (t target, err error) {
	c, door, err := dialDoor(cmd)
	switch {
	case errors.Is(err, errNoServer):
		return serveFor(cmd, nameOrModel)
	case err != nil:
		return t, err
	}
	t = target{client: c, door: door, name: nameOrModel, end: func() {}}
	_, here := c.endpoint.Socket()
	there, known := c.declared(cmd.Context())
	if !config.IsReference(nameOrModel) && (!here || !known || c.serves(cmd.Context(), door, there, nameOrModel)) {
		return t, nil
	}
	f, err := resolveAsking(cmd, nameOrModel, func() catalog.GPU { return c.gpu(cmd.Context()) })
	switch {
	case err != nil && !config.IsReference(nameOrModel): // the server decides
		t.meant = fmt.Errorf("%w\nThe server that runs here has %s", err, some(there))
		return t, nil
	case err != nil:
		return t, err
	}
	t.name = f.Name.Short()
	created, err := c.declare(cmd, f, nameOrModel, there) // reports what is missing, before the fetch
	if err != nil || !here {
		return t, err
	}
	info, _ := c.info(cmd.Context())
	if err = fetchFor(cmd, f, info.Models); err != nil && created {
		err = errors.Join(err, c.Call(context.WithoutCancel(cmd.Context()), http.MethodDelete, admin.FunctionPath(f.Name, ""), nil, nil))
	}
	return t, err
}

// resolveAsking asks on a terminal whether to fetch a missing model from Ollama's library.
func resolveAsking(cmd *cobra.Command, model string, gpu func() catalog.GPU) (api.Function, error) {
	f, err := catalog.Resolve(model, "rouse run", catalog.StoreOf(os.Getenv), gpu)
	var missing *catalog.Missing
	if !errors.As(err, &missing) || missing.Library == "" {
		return f, err
	}
	if in := cmd.InOrStdin(); render.IsTerminal(in) {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s is not here: fetch it from Ollama's library? [y/N] ", model)
		answer, _ := bufio.NewReader(in).ReadString('\n')
		if answer = strings.ToLower(strings.TrimSpace(answer)); answer == "y" || answer == "yes" {
			return catalog.Resolve(missing.Library, "rouse run", nil, gpu)
		}
	}
	return f, fmt.Errorf("%w\nFrom Ollama's library:  %s run %s", err, program(), missing.Library)
}

// fetchFor shows progress. It does nothing if this user can't write to the cache.
func fetchFor(cmd *cobra.Command, f api.Function, dir string) error {
	if !fetched(f.Runtime.Model) {
		return nil
	}
	m, _, err := fetchShown(cmd.Context(), cmd.ErrOrStderr(), f.Runtime.Model, dir, freshEnough)
	if errors.Is(err, os.ErrPermission) {
		return nil
	}
	m.Release()
	return err
}

func (c *client) gpu(ctx context.Context) catalog.GPU {
	var devices []admin.Device
	if c.Call(ctx, http.MethodGet, admin.PathDevices, nil, &devices) == nil && len(devices) > 1 { // the first is the host's memory
		return catalog.GPU{Is: true, Devices: 1}
	}
	return catalog.GPU{Is: catalog.Metal}
}

func (c *client) declared(ctx context.Context) (there []admin.Function, known bool) {
	err := c.Call(ctx, http.MethodGet, admin.PathFunctions, nil, &there)
	return there, err == nil
}

// serves is true if the server does not tell.
func (c *client) serves(ctx context.Context, door api.Endpoint, there []admin.Function, name string) bool {
	if slices.ContainsFunc(there, func(f admin.Function) bool { return called(f, name) }) {
		return true
	}
	var models struct { // with adapters, and models of attached servers
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if c.at(door).Call(ctx, http.MethodGet, "/v1/models", nil, &models) != nil {
		return true
	}
	for _, m := range models.Data {
		if m.ID == name {
			return true
		}
	}
	return false
}

const mostNamed = 8

func some(there []admin.Function) string {
	var names []string
	for _, f := range there[:min(len(there), mostNamed)] {
		names = append(names, f.Function.Name.Short())
	}
	text := cmp.Or(strings.Join(names, ", "), "no function")
	if more := len(there) - mostNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func (c *client) declare(cmd *cobra.Command, f api.Function, model string, there []admin.Function) (created bool, err error) {
	for _, other := range there {
		switch {
		case other.Function.Name != f.Name:
		case other.Function.Runtime.Kind == f.Runtime.Kind && other.Function.Runtime.Model == f.Redacted().Runtime.Model:
			return false, nil
		default:
			return false, fmt.Errorf("another function is called %s already: name this one with NAME=%s", f.Name.Short(), model)
		}
	}
	var done admin.Declared
	if err := c.Call(cmd.Context(), http.MethodPost, admin.PathFunctions, f, &done); err != nil {
		return false, fmt.Errorf("declare %s: %w", f.Name.Short(), err)
	}
	if done.Problem != "" {
		return false, fmt.Errorf("%s can't start as things are: %s", f.Name.Short(), done.Problem)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s is declared until the server ends: rouse apply --save --model %s keeps it, rouse rm %[1]s takes it away\n", f.Name.Short(), model)
	return true, nil
}

func serveFor(cmd *cobra.Command, model string) (t target, err error) {
	f, err := resolveAsking(cmd, model, catalog.FindGPU)
	if err != nil {
		if !config.IsReference(model) && model != pico.Name {
			err = fmt.Errorf("%w\nFor a function: %w", err, errNoServer)
		}
		return t, err
	}
	if why := catalog.ProcessorOnly(f); why != "" && catalog.FindGPU().Is {
		fmt.Fprintf(render.Harmless(cmd.ErrOrStderr()), "%s: %s\n", f.Name.Short(), why)
	}
	if why := local.NoProgram(f); why != "" {
		return t, fmt.Errorf("%s can't start: %s", f.Name.Short(), why)
	}
	if err := fetchFor(cmd, f, ""); err != nil {
		return t, err
	}
	flags := &upFlags{Config: local.Config{Listen: "127.0.0.1:0"}, NoConfig: true, From: sources{Functions: []api.Function{f}}}
	cfg, err := flags.config()
	if err != nil {
		return t, err
	}
	cfg.Logger = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelError}))
	ready := make(chan local.Info, 1)
	cfg.Ready = func(info local.Info) { ready <- info }
	ctx, stop := context.WithCancel(context.WithoutCancel(cmd.Context())) // the first Ctrl-C ends an answer
	ended := make(chan error, 1)
	go func() { ended <- local.Run(ctx, cfg) }()
	select {
	case info := <-ready:
		t.door, t.client = api.Endpoint(info.URL), newClient(info.Admin, "")
	case err := <-ended:
		stop()
		return t, fmt.Errorf("serve %s: %w", model, err)
	}
	t.end = func() {
		stop()
		if err := <-ended; err != nil {
			fmt.Fprintln(cmd.ErrOrStderr(), "rouse: the server:", err)
		}
	}
	t.name = f.Name.Name()
	return t, nil
}
