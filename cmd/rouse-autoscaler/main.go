// Command autoscaler decides which functions of a cluster are awake: see package autoscaler/leader, for "autoscaler
// relay" autoscaler/replicas, for "autoscaler inject" autoscaler/inject.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/leader"
	"github.com/rouse-dev/rouse/internal/inbound"
	"github.com/rouse-dev/rouse/internal/jsonlog"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// version is set by the build.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "rouse-autoscaler:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	inbound.LimitMemory()
	if len(args) > 0 && args[0] == "relay" {
		return runRelay(ctx, args[1:], stdout, os.Stderr)
	}
	if len(args) > 0 && args[0] == "inject" {
		return runInject(ctx, args[1:], stdout, os.Stderr)
	}
	cfg := leader.Config{Sink: os.Getenv("K_SINK"), SinkOverrides: os.Getenv("K_CE_OVERRIDES"), Version: version}
	f := flag.NewFlagSet("rouse-autoscaler", flag.ContinueOnError)
	f.StringVar(&cfg.Pod, "pod", os.Getenv("POD_NAME"), "the process's own pod (default $POD_NAME)")
	f.Func("listen", "`address` where the leader serves instances, activators and people, host:port (default :8080)", address(&cfg.Listen))
	f.Func("metrics-listen", "`address` where /metrics, /healthz and /readyz are served, host:port (default :9091)", address(&cfg.MetricsListen))
	f.BoolVar(&cfg.AllowUntested, "allow-untested-knative", false, "work with a version of Knative Serving that Rouse was not tested with")
	f.BoolVar(&cfg.Fleet.NodesOnDemand, "nodes-on-demand", false, "nodes are added where pods need them, so that what no node can hold is not refused at once (taken to be so on a cloud's nodes and Karpenter's)")
	f.Func("gpu-resource", "another extended resource that is GPUs, as DOMAIN/NAME (repeatable; NVIDIA's, AMD's and Intel's are known)", func(name string) error {
		cfg.Fleet.GPUResources = append(cfg.Fleet.GPUResources, name)
		return nil
	})
	f.Func("device-memory", "the memory of GPUs whose node has no label that says it (default 80Gi)", positive(&cfg.Fleet.DeviceMemory, api.ParseBytes))
	f.BoolVar(&cfg.Fleet.KeepRequests, "keep-requests", false, "pods of sleepers keep the CPU and memory that they request, though Kubernetes (1.33 and newer) could resize them in place")
	f.Func("provision-timeout", "how long requests are held beyond their own limits while a node is being added for a pod (default 15m)", positive(&cfg.Fleet.ProvisionTimeout, time.ParseDuration))
	f.StringVar(&cfg.Record.Folder, "record", os.Getenv("ROUSE_RECORD"), "`folder` in which the leader records what it takes in and decides, for kn rouse record (default $ROUSE_RECORD; empty: nothing is recorded)")
	f.Func("record-size", "`space` on the disk that the record may take, such as 50M, the default", positive(&cfg.Record.MostBytes, func(s string) (int64, error) {
		size, err := api.ParseBytes(s)
		return int64(size), err
	}))
	f.Func("dcgm", "URL of a DCGM exporter that says what is used of GPUs, such as http://dcgm-exporter.gpu-operator:9400/metrics (repeatable)", func(u string) error {
		cfg.DCGM = append(cfg.DCGM, u)
		return nil
	})
	var err error
	if cfg.Kube, cfg.Log, err = start(f, args, stdout); err != nil {
		return err
	}
	klog.SetSlogLogger(cfg.Log) // client-go's
	if cfg.Traces, err = waketrace.FromEnvironment(os.Getenv, version, cfg.Log); err != nil {
		cfg.Log.Warn("no traces are exported", "error", err)
	}
	return leader.Run(ctx, cfg)
}

func positive[T cmp.Ordered](to *T, parse func(string) (T, error)) func(string) error {
	return func(s string) (err error) {
		var none T
		if *to, err = parse(s); err == nil && *to <= none {
			err = errors.New("want more than 0")
		}
		return err
	}
}

func address(dst *string) func(string) error {
	return func(s string) (err error) {
		*dst, err = api.ListenAddress(s)
		return err
	}
}

func start(f *flag.FlagSet, args []string, stdout io.Writer) (*rest.Config, *slog.Logger, error) {
	kubeconfig := f.String("kubeconfig", os.Getenv("KUBECONFIG"), "how to reach the API server (default $KUBECONFIG, else the pod's own account)")
	var level slog.Level
	f.TextVar(&level, "log-level", slog.LevelInfo, "debug, info, warn or error")
	if err := f.Parse(args); err != nil {
		return nil, nil, err
	}
	if f.NArg() > 0 {
		return nil, nil, fmt.Errorf("unexpected argument %q: there are flags only, see --help", f.Arg(0))
	}
	reach := rest.InClusterConfig
	if *kubeconfig != "" {
		reach = func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", *kubeconfig) }
	}
	config, err := reach()
	if err != nil {
		return nil, nil, fmt.Errorf("find the API server: %w; run in a pod, or name a file with --kubeconfig", err)
	}
	return config, jsonlog.New(stdout, level), nil
}
