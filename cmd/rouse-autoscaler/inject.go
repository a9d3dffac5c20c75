package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"

	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	servingclient "knative.dev/serving/pkg/client/clientset/versioned"

	"github.com/rouse-dev/rouse/autoscaler/inject"
	"github.com/rouse-dev/rouse/internal/jsonlog"
)

// runInject runs "autoscaler inject": see package autoscaler/inject.
func runInject(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	cfg := inject.Config{Listen: ":8443", MetricsListen: ":9091"}
	var kubeconfig string
	var level slog.Level
	f := flag.NewFlagSet("rouse-autoscaler inject", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&cfg.Pod, "pod", os.Getenv("POD_NAME"), "the process's own pod (default $POD_NAME)")
	f.StringVar(&cfg.FunctionImage, "function-image", "", "the image with rouse-function that is brought into pods (default: that of the init container \"function\" of its own pod)")
	f.Func("listen", "`address` where the API server asks, host:port (default :8443)", address(&cfg.Listen))
	f.Func("metrics-listen", "`address` where /metrics, /healthz and /readyz are served, host:port (default :9091)", address(&cfg.MetricsListen))
	f.StringVar(&kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "how to reach the API server (default $KUBECONFIG, else the pod's own account)")
	f.TextVar(&level, "log-level", slog.LevelInfo, "debug, info, warn or error")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: there are flags only, see --help", f.Arg(0))
	}
	if cfg.Pod == "" && cfg.FunctionImage == "" {
		return errors.New("the process's own pod is not known: set POD_NAME, or --pod, to its name, or --function-image")
	}
	cfg.Log = jsonlog.New(stdout, level)
	klog.SetSlogLogger(cfg.Log) // client-go's
	config, err := kube(kubeconfig)
	if err != nil {
		return fmt.Errorf("find the API server: %w; run in a pod, or name a file with --kubeconfig", err)
	}
	if cfg.Clients, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if cfg.Serving, err = servingclient.NewForConfig(config); err != nil {
		return err
	}
	return inject.Run(ctx, cfg)
}
