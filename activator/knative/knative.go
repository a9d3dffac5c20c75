// Package knative is a cluster's activator, with the ports, probes and metrics of Knative's own. It serves
// functions with package activator, and revisions of other classes with Knative's unchanged code: their requests
// come here only until an earlier version's changes to Knative are reverted (package settings).
//
//  1. Probes of the kubelet and of Knative's network are answered at once.
//  2. The dispatcher finds the revision, by the ingress's headers or a host REVISION.NAMESPACE.svc.DOMAIN.
//  3. [activator.Activator.ServeFunction] sends a function's request directly to its port on the pod, past the
//     queue-proxy and Knative's chain.
//  4. Another revision's request goes to Knative's chain.
//  5. Others go to the front door, [activator.Activator.Handler].
//
// With [Config.Join] the process is an agent instead (package activator/federation/agent): it serves only front
// doors, offers each Service as one function, and holds no request.
//
// Revisions, routes and pods come from Kubernetes (watch); instance states, grants and failures from the autoscaler
// (controls); silent instances are asked (prober). The process starts without Rouse's autoscaler: requests wait for
// it.
//
// [Run] is called once per process: Knative's libraries keep global state.
package knative

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	pkgnet "knative.dev/pkg/network"

	"github.com/rouse-dev/rouse/activator/federation/agent"
	"github.com/rouse-dev/rouse/activator/federation/door"
	"github.com/rouse-dev/rouse/activator/jobs/store"

	"github.com/rouse-dev/rouse/activator/peer"
	"github.com/rouse-dev/rouse/activator/picker"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// Config is the process's configuration. PodName and PodIP are required.
type Config struct {
	PodName, PodIP string
	// Autoscaler is the base URL of Rouse's autoscaler. Default [control.DefaultControlURL].
	Autoscaler string
	// MemoryLimit bounds this process's memory; 0: unbounded. See [inbound.Within].
	MemoryLimit api.Bytes
	Version     string
	Peers       peer.Addresses
	// RequireKeys: clients need a key declared in the Secret [control.KeysSecret].
	RequireKeys bool
	// Access logs each request to a function, if not nil.
	Access *slog.Logger
	// Sink is the URL for a copy of every event; empty: none.
	Sink string
	// SinkOverrides is the JSON of K_CE_OVERRIDES for the copies.
	SinkOverrides string
	// Env reads the environment, where OpenTelemetry's variables configure the export of traces; nil: none.
	Env func(string) string
	// Propagation is how long new requests are accepted after shutdown begins: their senders may not know of it.
	// Default 45 s, as in Knative.
	Propagation time.Duration
	// Drain is how long requests may take to finish after that. Default 58 min: with Propagation it must fit into
	// the pod's terminationGracePeriodSeconds.
	Drain time.Duration
	// Store is for files, batches and answers, in a folder for one activator at a time; an empty At: none.
	Store store.Config
	// Join, if not nil, makes the process only an agent of front doors, for functions of [config.Class].
	Join *agent.Config
	// AcceptImages are the images, by runtime, of functions that front doors may create in the one namespace of
	// Join's Accept.
	AcceptImages map[string]string
	// Front, if not nil, also makes it a front door of other clusters.
	Front *door.File
	// Picker, if not nil, also makes it the endpoint picker of gateways.
	Picker *picker.Config
	Stock  StockConfig
}

// StockConfig is what Knative's activator reads from its environment.
type StockConfig struct {
	// MaxIdle and MaxIdlePerHost bound idle connections to pods. Default 1000 and 100.
	MaxIdle, MaxIdlePerHost int
	// Timeout and interval of the probes of pods. Default 300 ms and 200 ms.
	ProbeTimeout, ProbeEvery time.Duration
}

func (c Config) withDefaults() Config {
	c.Autoscaler = cmp.Or(c.Autoscaler, control.DefaultControlURL)
	c.Propagation = cmp.Or(c.Propagation, pkgnet.DefaultDrainTimeout)
	c.Drain = cmp.Or(c.Drain, 58*time.Minute)
	c.Stock.MaxIdle = cmp.Or(c.Stock.MaxIdle, 1000)
	c.Stock.MaxIdlePerHost = cmp.Or(c.Stock.MaxIdlePerHost, 100)
	c.Stock.ProbeTimeout = cmp.Or(c.Stock.ProbeTimeout, 300*time.Millisecond)
	c.Stock.ProbeEvery = cmp.Or(c.Stock.ProbeEvery, 200*time.Millisecond)
	return c
}

// Validate returns an error for the first invalid field.
func (c Config) Validate() error {
	switch {
	case c.PodName == "":
		return errors.New("POD_NAME is empty: set it to the pod's name (fieldRef metadata.name)")
	case c.PodIP == "":
		return errors.New("POD_IP is empty: set it to the pod's address (fieldRef status.podIP)")
	case c.Join != nil && c.Front != nil:
		return errors.New("one process is an agent (--join) or a front door of others (--clusters): run two")
	case c.Join != nil && c.Store.At != "":
		return errors.New("an agent (--join) has no front door, where files and batches are left (ROUSE_STORE): run two")
	case c.Join != nil && c.Picker != nil:
		return errors.New("an agent (--join) gets its requests from front doors, and is no endpoint picker (--picker-address): run two")
	case c.Join == nil && len(c.AcceptImages) > 0:
		return errors.New("functions of front doors are accepted (--accept-functions, --accept-images), and none is joined: give --join")
	case c.Propagation < 0 || c.Drain < 0:
		return fmt.Errorf("ROUSE_PROPAGATION is %s and ROUSE_DRAIN %s: want times above 0", c.Propagation, c.Drain)
	case c.Stock.MaxIdle < 0 || c.Stock.MaxIdlePerHost < 0 || c.Stock.ProbeTimeout < 0 || c.Stock.ProbeEvery < 0:
		return errors.New("MAX_IDLE_PROXY_CONNS, MAX_IDLE_PROXY_CONNS_PER_HOST, PROBE_TIMEOUT or PROBE_FREQUENCY is negative: want a number of connections and a time above 0")
	}
	_, err := c.accepted()
	return err
}

// accepted returns what front doors may create; nil: nothing.
func (c Config) accepted() (*acceptConfig, error) {
	if c.Join == nil || len(c.Join.Accept.Functions) == 0 {
		if len(c.AcceptImages) > 0 {
			return nil, errors.New("--accept-images: no function is accepted: give --accept-functions")
		}
		return nil, nil
	}
	namespace, err := acceptNamespace(c.Join.Accept.Functions)
	if err != nil {
		return nil, fmt.Errorf("--accept-functions: %w", err)
	}
	cfg := &acceptConfig{Namespace: namespace, Images: c.AcceptImages, Models: c.Join.Accept.Models}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("--accept-images, --accept-models: %w", err)
	}
	return cfg, nil
}
