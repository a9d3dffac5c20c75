package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	servingclient "knative.dev/serving/pkg/client/clientset/versioned"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler/replicas"
	"github.com/rouse-dev/rouse/internal/disk"
)

type relayFlags struct {
	cfg                            replicas.Config
	autoscaler, tokenFile, metrics string
	kube                           *rest.Config
	log                            *slog.Logger
}

func (f *relayFlags) parse(args []string, stdout, stderr io.Writer) (err error) {
	f.metrics, f.autoscaler = ":9091", "http://"+control.AutoscalerName+"."+control.SystemNamespace
	s := flag.NewFlagSet("rouse-autoscaler relay", flag.ContinueOnError)
	s.SetOutput(stderr)
	file := s.String("config", "", "YAML `file` with sources and targets (required)")
	dry := s.Bool("dry-run", false, "say what would be set, and set nothing")
	s.Func("autoscaler", "`URL` where Rouse's autoscaler listens, for its functions; empty: there is none (default "+f.autoscaler+")", func(text string) error {
		if text == "" {
			f.autoscaler = ""
			return nil
		}
		e, err := api.ParseEndpoint(text)
		f.autoscaler = string(e)
		return err
	})
	s.StringVar(&f.tokenFile, "token-file", "", "`file` with the cluster's token, for Rouse's functions (default $ROUSE_TOKEN)")
	s.Func("metrics-listen", "`address` where /metrics, /healthz and /readyz are served, host:port (default :9091)", address(&f.metrics))
	if f.kube, f.log, err = start(s, args, stdout); err != nil {
		return err
	}
	raw, err := os.ReadFile(*file)
	if err != nil {
		return fmt.Errorf("read the relay's configuration (--config): %w", err)
	}
	if f.cfg, err = replicas.Parse(raw); err != nil {
		return err
	}
	f.cfg.DryRun = f.cfg.DryRun || *dry
	return f.cfg.Validate()
}

func (f *relayFlags) token() (string, error) {
	if f.tokenFile != "" {
		return disk.ReadToken(f.tokenFile)
	}
	if text := strings.TrimSpace(os.Getenv("ROUSE_TOKEN")); text != "" {
		return text, nil
	}
	return "", errors.New("there is none: set --token-file, or $ROUSE_TOKEN")
}

// See package autoscaler/replicas.
func runRelay(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var f relayFlags
	if err := f.parse(args, stdout, stderr); err != nil {
		return err
	}
	cluster, err := f.cluster(f.kube)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	r, err := replicas.New(f.cfg, replicas.Deps{
		Client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute}},
		Setter: cluster, Registry: registry, Log: f.log,
	})
	if err != nil {
		return err
	}
	return replicas.Serve(ctx, f.metrics, registry, r)
}

func (f *relayFlags) cluster(config *rest.Config) (*replicas.Cluster, error) {
	config.QPS, config.Burst = float32(4*f.cfg.Rate), int(4*f.cfg.Rate)+10
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	serving, err := servingclient.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	c := &replicas.Cluster{Kube: clients, Serving: serving}
	if f.autoscaler != "" {
		c.Functions = &replicas.Functions{URL: f.autoscaler, Token: f.token, Transport: http.DefaultTransport, Lifetime: f.cfg.Lifetime}
	}
	return c, nil
}
