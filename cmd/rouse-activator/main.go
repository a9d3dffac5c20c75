// Command activator is Rouse's activator for a cluster, beside Knative's own, whose environment it has. Its flags join
// it to other clusters (--join, --clusters), and make it the endpoint picker of an InferencePool (--picker-address).
// See package activator/knative.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/kelseyhightower/envconfig"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/federation/agent"
	"github.com/rouse-dev/rouse/activator/federation/door"
	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/activator/knative"
	"github.com/rouse-dev/rouse/activator/peer"
	"github.com/rouse-dev/rouse/activator/picker"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/flagset"
	"github.com/rouse-dev/rouse/internal/inbound"
	"github.com/rouse-dev/rouse/internal/s3"
)

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
	RequireKeys              bool          `envconfig:"ROUSE_REQUIRE_KEYS"`
	AccessLog                string        `envconfig:"ROUSE_ACCESS_LOG" default:"off"`
	Store                    string        `envconfig:"ROUSE_STORE"`
	StoreSize                string        `envconfig:"ROUSE_STORE_SIZE" default:"10Gi"`
	StoreKeep                time.Duration `envconfig:"ROUSE_STORE_KEEP" default:"720h"`
	Kubeconfig               string        `envconfig:"KUBECONFIG"` // empty: the pod's own account
}

// version is set by the linker.
var version = "dev"

// storeWait is how long the previous pod may keep the store.
const storeWait = 100 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "rouse-activator:", err)
		os.Exit(1)
	}
}

type options struct {
	join   *agent.Config     // nil: it is no agent
	front  *door.File        // nil: it is no front door
	images map[string]string // for functions that front doors may create
	picker *picker.Config    // nil: it is no endpoint picker
}

func parse(args []string) (o options, err error) {
	flags := pflag.NewFlagSet("rouse-activator", pflag.ContinueOnError)
	var joins agent.Flags
	accept := acceptFlags{Functions: words("ROUSE_ACCEPT_FUNCTIONS"), Images: words("ROUSE_ACCEPT_IMAGES"), Models: words("ROUSE_ACCEPT_MODELS"), Max: 16}
	far := flags.String("clusters", "", "`file` that makes the activator a front door of other clusters too, and says which")
	var pick picker.Config
	for _, part := range []any{&joins, &accept, &pick} {
		flagset.Add(flags, part)
	}
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("%q: want flags only", flags.Arg(0))
	}
	if flags.Changed("join") && len(joins.Fronts) == 0 {
		return o, errors.New("--join names no front door: want its address, host:port")
	}
	switch {
	case pick.Address != "":
		o.picker = &pick
		if err := pick.Validate(); err != nil {
			return o, err
		}
	case pick != (picker.Config{}):
		return o, errors.New("flags of the endpoint picker are given without --picker-address: want its host:port, such as 0.0.0.0:9002")
	}
	if o.join, err = joins.Config(version); err == nil {
		o.images, err = accept.config(o.join)
	}
	if err == nil && *far != "" {
		o.front, err = door.Read(*far, version)
	}
	return o, err
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	var env environment
	if err := envconfig.Process("", &env); err != nil {
		return err
	}
	if env.SystemNamespace == "" { // Knative's libraries panic without it
		return fmt.Errorf("SYSTEM_NAMESPACE is empty: set it to the namespace of Knative Serving (fieldRef metadata.namespace)")
	}
	var peers peer.Addresses
	if peers.Proxies, err = peer.ParseList(env.TrustedProxies); err != nil {
		return fmt.Errorf("ROUSE_TRUSTED_PROXIES: %w", err)
	}
	if peers.Trusted, err = peer.ParseList(env.TrustedPeers); err != nil {
		return fmt.Errorf("ROUSE_TRUSTED_PEERS: %w", err)
	}
	lines := activator.NewLines(os.Stdout)
	defer lines.Flush()
	access, err := activator.AccessLog(env.AccessLog, lines)
	if err != nil {
		return fmt.Errorf("ROUSE_ACCESS_LOG: %w", err)
	}
	storeSize, err := api.ParseBytes(env.StoreSize)
	if err != nil {
		return fmt.Errorf("ROUSE_STORE_SIZE: %w", err)
	}
	if env.StoreKeep < time.Minute || storeSize < api.MiB {
		return fmt.Errorf("ROUSE_STORE_KEEP is %s and ROUSE_STORE_SIZE %s: want a minute, and 1Mi, or more", env.StoreKeep, storeSize)
	}
	if env.Control != "" {
		e, err := api.ParseEndpoint(env.Control)
		if err != nil {
			return fmt.Errorf("ROUSE_CONTROL: %w", err)
		}
		env.Control = string(e)
	}
	kube, err := cluster(env.Kubeconfig, o.join != nil)
	if err != nil {
		return fmt.Errorf("find the cluster, by KUBECONFIG or as its pod: %w", err)
	}
	return knative.Run(ctx, knative.Config{
		Join: o.join, AcceptImages: o.images, Front: o.front, Picker: o.picker, Store: store.Config{At: env.Store, Limits: store.Limits{MaxBytes: int64(storeSize), Keep: env.StoreKeep, Shared: activator.Anonymous}, Wait: storeWait, S3: s3.Environment(os.Getenv)},
		PodName: env.PodName, PodIP: env.PodIP, Autoscaler: env.Control, Sink: env.Sink, SinkOverrides: env.Overrides,
		MemoryLimit: api.Bytes(inbound.LimitMemory()), Version: version, Peers: peers, RequireKeys: env.RequireKeys, Access: access,
		Env: os.Getenv, Propagation: env.Propagation, Drain: env.Drain,
		Stock: knative.StockConfig{
			MaxIdle: env.MaxIdleProxyConns, MaxIdlePerHost: env.MaxIdleProxyConnsPerHost,
			ProbeTimeout: env.ProbeTimeout, ProbeEvery: env.ProbeFrequency,
		},
	}, kube)
}

// cluster configures the API server's client. joins: the environment's proxy is for front doors only.
func cluster(kubeconfig string, joins bool) (*rest.Config, error) {
	kube, err := rest.InClusterConfig()
	if kubeconfig != "" {
		kube, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return nil, err
	}
	if joins && kubeconfig == "" {
		kube.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil } // none
	}
	kube.QPS, kube.Burst = 50, 100 // client-go's limits are for a person
	return kube, nil
}
