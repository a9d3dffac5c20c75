// Command activator is Rouse's activator for a cluster: it stands where Knative's
// activator stood and serves every class of revisions. It takes no flags; its
// environment is Knative's activator's, and K_SINK, K_CE_OVERRIDES,
// ROUSE_CONTROL, ROUSE_DRAIN, ROUSE_TRUSTED_PROXIES, ROUSE_TRUSTED_PEERS and ROUSE_MAX_EVENT.
// See package activator/knative.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/kelseyhightower/envconfig"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/rouse-dev/rouse/activator/knative"
	"github.com/rouse-dev/rouse/activator/peer"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/memlimit"
)

// environment is what the process is configured by.
type environment struct {
	PodName                  string        `envconfig:"POD_NAME"`
	PodIP                    string        `envconfig:"POD_IP"`
	SystemNamespace          string        `envconfig:"SYSTEM_NAMESPACE"`
	MaxIdleProxyConns        int           `envconfig:"MAX_IDLE_PROXY_CONNS"`
	MaxIdleProxyConnsPerHost int           `envconfig:"MAX_IDLE_PROXY_CONNS_PER_HOST"`
	ProbeTimeout             time.Duration `envconfig:"PROBE_TIMEOUT"`
	ProbeFrequency           time.Duration `envconfig:"PROBE_FREQUENCY"`
	Sink                     string        `envconfig:"K_SINK"`
	Overrides                string        `envconfig:"K_CE_OVERRIDES"`
	Control                  string        `envconfig:"ROUSE_CONTROL"`
	Propagation              time.Duration `envconfig:"ROUSE_PROPAGATION"`
	Drain                    time.Duration `envconfig:"ROUSE_DRAIN"`
	TrustedProxies           string        `envconfig:"ROUSE_TRUSTED_PROXIES"`
	TrustedPeers             string        `envconfig:"ROUSE_TRUSTED_PEERS"`
	MaxEvent                 string        `envconfig:"ROUSE_MAX_EVENT"`
	Kubeconfig               string        `envconfig:"KUBECONFIG"` // empty: the pod's own account
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "rouse-activator:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var env environment
	if err := envconfig.Process("", &env); err != nil {
		return err
	}
	if env.SystemNamespace == "" { // Knative's libraries panic without it
		return fmt.Errorf("SYSTEM_NAMESPACE is empty: set it to the namespace of Knative Serving (fieldRef metadata.namespace)")
	}
	var peers peer.Addresses
	var err error
	if peers.Proxies, err = peer.ParseList(env.TrustedProxies); err != nil {
		return fmt.Errorf("ROUSE_TRUSTED_PROXIES: %w", err)
	}
	if peers.Trusted, err = peer.ParseList(env.TrustedPeers); err != nil {
		return fmt.Errorf("ROUSE_TRUSTED_PEERS: %w", err)
	}
	maxEvent := api.Bytes(0)
	if env.MaxEvent != "" {
		if maxEvent, err = api.ParseBytes(env.MaxEvent); err != nil {
			return fmt.Errorf("ROUSE_MAX_EVENT: %w", err)
		}
	}
	if env.Control != "" {
		e, err := api.ParseEndpoint(env.Control)
		if err != nil {
			return fmt.Errorf("ROUSE_CONTROL: %w", err)
		}
		env.Control = string(e)
	}
	kube, err := rest.InClusterConfig()
	if env.Kubeconfig != "" {
		kube, err = clientcmd.BuildConfigFromFlags("", env.Kubeconfig)
	}
	if err != nil {
		return fmt.Errorf("find the cluster, by KUBECONFIG or as its pod: %w", err)
	}
	kube.QPS, kube.Burst = 50, 100 // client-go's own limits are for a person
	return knative.Run(ctx, knative.Config{
		PodName: env.PodName, PodIP: env.PodIP, Autoscaler: env.Control, Sink: env.Sink, SinkOverrides: env.Overrides,
		MemoryLimit: memlimit.Set(), MaxEvent: maxEvent, Peers: peers,
		Env: os.Getenv, Propagation: env.Propagation, Drain: env.Drain,
		Stock: knative.StockConfig{
			MaxIdle: env.MaxIdleProxyConns, MaxIdlePerHost: env.MaxIdleProxyConnsPerHost,
			ProbeTimeout: env.ProbeTimeout, ProbeEvery: env.ProbeFrequency,
		},
	}, kube)
}
