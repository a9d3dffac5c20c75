package kn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/cmd/internal/render"
	"github.com/rouse-dev/rouse/cmd/internal/verb"
)

const (
	home      = "\x1b[H"
	clearLine = "\x1b[K\n"
	clearRest = "\x1b[J"
)

func topCommand() *cobra.Command {
	var once bool
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show devices and functions, and keep them current",
		Long: `Show which functions use the memory of the cluster's devices, and their load. It is
printed once if the output is not a terminal.`,
		Example: `  kn rouse top -A
  kn rouse top --once`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, d, err := enter(cmd)
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			if once || !render.IsTerminal(w) {
				return c.top(cmd.Context(), d, w, time.Now())
			}
			return c.live(cmd.Context(), d, w)
		},
	}
	namespaceFlags(cmd, true)
	cmd.Flags().BoolVar(&once, "once", false, "show it once")
	return cmd
}

// live redraws until the user leaves. Errors after the first picture are shown: the leader may change.
func (c *cluster) live(ctx context.Context, d *verb.Client, w io.Writer) error {
	var picture bytes.Buffer
	if err := c.top(ctx, d, &picture, time.Now()); err != nil {
		return err
	}
	fmt.Fprint(w, "\x1b[2J")
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		fmt.Fprint(w, home, strings.ReplaceAll(picture.String(), "\n", clearLine), clearRest)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		picture.Reset()
		switch err := c.top(ctx, d, &picture, time.Now()); {
		case errors.Is(err, context.Canceled):
			return nil
		case err != nil:
			picture.Reset()
			fmt.Fprintf(&picture, "%s  %v\n", time.Now().Format(time.TimeOnly), err)
		}
	}
}

func (c *cluster) top(ctx context.Context, d *verb.Client, w io.Writer, now time.Time) error {
	var devices []admin.Device
	if err := d.Call(ctx, http.MethodGet, admin.PathDevices, nil, &devices); err != nil {
		return err
	}
	f, err := c.survey(ctx, d, c.scope())
	if err != nil {
		return err
	}
	f.hide()
	waiting, running := 0, 0
	for _, fn := range f.functions {
		waiting += fn.Activator.Waiting
		running += fn.Activator.Running
	}
	fmt.Fprintf(w, "%s  functions in the cluster: %d, requests waiting: %d, running: %d\n\n", now.Format(time.TimeOnly), len(f.functions), waiting, running)
	if err := render.Devices(w, devices); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if len(f.services) == 0 {
		_, err := fmt.Fprintf(w, "No functions in %s.\n", c.where())
		return err
	}
	return render.Table(w, rows(f.services, c.all, now))
}
