package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"

	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	servingclient "knative.dev/serving/pkg/client/clientset/versioned"

	"github.com/rouse-dev/rouse/autoscaler/inject"
)

// See package autoscaler/inject.
func runInject(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	cfg := inject.Config{Listen: ":8443", MetricsListen: ":9091"}
	f := flag.NewFlagSet("rouse-autoscaler inject", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&cfg.Pod, "pod", os.Getenv("POD_NAME"), "the process's own pod (default $POD_NAME)")
	f.StringVar(&cfg.FunctionImage, "function-image", "", "the image with rouse-function that is brought into pods (default: that of the init container \"function\" of its own pod)")
	f.Func("listen", "`address` where the API server asks, host:port (default :8443)", address(&cfg.Listen))
	f.Func("metrics-listen", "`address` where /metrics, /healthz and /readyz are served, host:port (default :9091)", address(&cfg.MetricsListen))
	config, log, err := start(f, args, stdout)
	if err != nil {
		return err
	}
	if cfg.Pod == "" && cfg.FunctionImage == "" {
		return errors.New("the process's own pod is not known: set POD_NAME, or --pod, to its name, or --function-image")
	}
	cfg.Log = log
	klog.SetSlogLogger(cfg.Log) // client-go's
	if cfg.Clients, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if cfg.Serving, err = servingclient.NewForConfig(config); err != nil {
		return err
	}
	return inject.Run(ctx, cfg)
}
