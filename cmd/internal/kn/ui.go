package kn

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/cmd/internal/page"
	"github.com/rouse-dev/rouse/cmd/internal/verb"
)

func uiCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Serve the page of the cluster on this machine",
		Long: `Serve the page of the cluster on this machine, until Ctrl-C: functions and their states, live, a playground, who
held which GPU, decisions, wakes, usage. What it asks goes to the cluster with your own rights, by way of the API
server. Behind its # the address has a token, made anew each time, that the browser keeps for one tab: other users
of this machine, and other pages, have no way in.`,
		Example: "  kn rouse ui\n  kn rouse ui --listen 127.0.0.1:8081",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			listen, _ := cmd.Flags().GetString("listen")
			c, err := connect(cmd)
			if err != nil {
				return err
			}
			return c.serveUI(cmd.Context(), cmd.OutOrStdout(), listen)
		},
	}
	cmd.Flags().String("listen", "127.0.0.1:0", "`address` on loopback; port 0 is any that is free")
	return cmd
}

func (c *cluster) serveUI(ctx context.Context, out io.Writer, listen string) error {
	remote, err := c.remote(ctx)
	if err != nil {
		return err
	}
	l, err := listenLoopback(ctx, listen)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s\nCtrl-C ends it\n", page.Address("http://"+l.Addr().String(), remote.Token))
	return page.Serve(ctx, l, remote.Handler(), 0, slog.New(slog.DiscardHandler)) // streams never end by themselves
}

// remote checks that the cluster has Rouse.
func (c *cluster) remote(ctx context.Context) (page.Remote, error) {
	d, err := c.door(ctx)
	if err != nil {
		return page.Remote{}, err
	}
	admin, err := c.proxy(proxied)
	if err != nil {
		return page.Remote{}, err
	}
	front, err := c.proxy(proxiedFront)
	if err != nil {
		return page.Remote{}, err
	}
	return page.Remote{
		Token: rand.Text(),
		Keys:  verb.ServeKeys(keysSecret{c}),
		Admin: page.Target{URL: admin, Transport: c.http.Transport, Header: d.Header, Refused: fault},
		// The API server's proxy consumes Authorization.
		Front: page.Target{URL: front, Transport: c.http.Transport, KeyHeader: "X-Api-Key", Refused: frontFault},
	}, nil
}

func frontFault(resp *http.Response, method string, raw []byte) error {
	var body struct {
		Kind string `json:"kind"`
	}
	if _ = json.Unmarshal(raw, &body); body.Kind != "Status" {
		return nil // the front door's own, such as a missing key
	}
	err := fault(resp, method, raw)
	var d *denied
	switch {
	case errors.As(err, &d):
		d.name = proxiedFront
		return fmt.Errorf("the playground asks by way of the API server: %w", d)
	case resp.StatusCode == http.StatusServiceUnavailable:
		return fmt.Errorf("no activator answers behind the Service %s/%s: look at `kubectl get pods -n %[1]s -l app=%[3]s`", control.SystemNamespace, control.FrontDoorName, control.ActivatorName)
	}
	return err
}

func listenLoopback(ctx context.Context, listen string) (net.Listener, error) {
	at, err := net.ResolveTCPAddr("tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	if !at.IP.IsLoopback() {
		return nil, fmt.Errorf("--listen %s: the page has your rights in the cluster: want an address on loopback, such as 127.0.0.1:8081", listen)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at.String())
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	return l, nil
}
