// Command mini-ingress is the smallest ingress that Knative Serving can use: it serves Ingress objects over HTTP/1 and
// HTTP/2 without TLS.
//
//  1. An Ingress, a Service or an Endpoints object changes: controller.go makes a new table of routes.
//  2. A request's host, path and headers select a route (table.go), its weights a service, and the service's endpoints
//     an address (backend.go). One that nobody listens at is skipped.
//  3. The request is passed on with the route's headers (proxy.go).
//
// The public listener serves the rules that are visible outside; the other all of them, for clients in the cluster.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	networking "knative.dev/networking/pkg/client/clientset/versioned"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mini-ingress:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("mini-ingress", flag.ContinueOnError)
	class := flags.String("class", "mini.ingress.networking.knative.dev", "the ingress class that is served")
	public := flags.String("listen", ":80", "the public listener")
	internal := flags.String("listen-internal", ":8081", "the listener for clients in the cluster")
	kubeconfig := flags.String("kubeconfig", "", "how to reach the cluster; empty: as a pod in it")
	name := flags.String("name", "mini-ingress.knative-serving.svc.cluster.local", "the name by which pods reach the internal listener")
	if err := flags.Parse(args); err != nil {
		return err
	}
	rest, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	rest.QPS, rest.Burst = 200, 400
	kube, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return err
	}
	ingresses, err := networking.NewForConfig(rest)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	c := newController(kube, ingresses, *class, *name, log)
	if err := c.start(ctx); err != nil {
		return err
	}
	b := backends{services: c.services, endpoints: c.endpoints, name: *name, internal: *internal}
	failed := make(chan error, 2) // one for each listener
	for addr, visible := range map[string]bool{*public: true, *internal: false} {
		s := server(addr, newProxy(&c.table, b, visible, log))
		go func() { failed <- s.ListenAndServe() }()
		defer s.Close()
	}
	log.Info("serving", "public", *public, "internal", *internal, "class", *class)
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		if errors.Is(err, http.ErrServerClosed) {
			return nil
		}
		return err
	}
}

func server(addr string, h http.Handler) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{Addr: addr, Handler: h, Protocols: protocols, ReadHeaderTimeout: 30 * time.Second}
}
