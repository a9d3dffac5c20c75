// Package knative is a cluster's activator, with the ports, probes and metrics of Knative's own. It serves functions
// with package activator. Revisions of other classes are served by Knative's unchanged code. Their requests come here
// only until the changes that an earlier version made to Knative are reverted (package settings). This is the only
// part of the activator that imports Kubernetes and Knative.
//
// The life of a request that reaches one of the ports:
//
// 1. The kubelet's probes and Knative's network probes are answered at once.
//  2. The dispatcher finds the revision: by the headers that the ingress adds, otherwise by a host
//     REVISION.NAMESPACE.svc.DOMAIN of an existing revision.
//  3. For a revision of our class, [activator.Activator.ServeFunction] sends the request directly to the function's
//     port on the pod. It passes neither the queue-proxy nor the tracing and the timeouts of Knative's chain.
//  4. Another revision's request goes to Knative's chain.
//  5. A request without a revision goes to the front door, [activator.Activator.Handler].
//
// With [Config.Join] the process is an agent instead (package activator/federation/agent): one more activator, which
// dials front doors and serves only their requests. It offers each Service as one function (type offers), and never
// holds a request: the order of requests is the front door's.
//
// Package activator is fed from four sources. Revisions, routes and pods come from Kubernetes (type watch). The
// autoscaler sends instance states, grants and failures to the control port (type controls). Finally, instances are
// asked if requests wait and they have not reported (type prober).
//
// The process starts without Rouse's autoscaler: requests wait for it. It is not ready without Knative's autoscaler,
// because revisions of other classes depend on that.
//
// [Run] is called once per process, from one goroutine: Knative's libraries keep their informers and telemetry in
// global state.
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

// Config is the process's configuration. PodName and PodIP are required; the other zero values have defaults.
type Config struct {
	// PodName and PodIP are the name and address of this pod.
	PodName, PodIP string
	// Autoscaler is the base URL of Rouse's autoscaler. Default [control.DefaultControlURL].
	Autoscaler string
	// MemoryLimit bounds this process's memory; 0: unbounded. See [inbound.Within].
	MemoryLimit api.Bytes
	// Version is as in [activator.Config].
	Version string
	// Peers identifies clients and decides which to trust; the zero value trusts none.
	Peers peer.Addresses
	// RequireKeys means that clients need a key declared in the Secret [control.KeysSecret].
	RequireKeys bool
	// Access logs each request to a function; nil: none.
	Access *slog.Logger
	// Sink is the URL for a copy of every event; empty: none.
	Sink string
	// SinkOverrides is the JSON of K_CE_OVERRIDES, which is added to the copies; empty: none.
	SinkOverrides string
	// Env reads the process's environment, where OpenTelemetry's variables configure the export of wake traces; nil:
	// no export.
	Env func(string) string
	// Propagation is how long new requests are accepted after shutdown begins, because their senders may not know of
	// it yet. Default 45 s, as in Knative.
	Propagation time.Duration
	// Drain is how long requests may take to finish after that. Default 58 min: with Propagation it must fit into the
	// pod's terminationGracePeriodSeconds, 3600 in the manifest.
	Drain time.Duration
	// Store is the storage for files, batches, later answers and responses, in a folder for one activator at a time;
	// an empty At: none.
	Store store.Config
	// Join, if not nil, makes the process only an agent of front doors. It serves their requests alone, and only for
	// functions of [config.Class].
	Join *agent.Config
	// AcceptImages are the images by runtime of functions that front doors may create. They are created in the one
	// namespace of the patterns in Join's Accept.
	AcceptImages map[string]string
	// Front, if not nil, also makes it a front door of other clusters.
	Front *door.File
	// Picker, if not nil, also makes it the endpoint picker of gateways.
	Picker *picker.Config
	// Stock configures the serving of the other classes.
	Stock StockConfig
}

// StockConfig is the configuration that Knative's activator reads from its environment.
type StockConfig struct {
	// MaxIdle and MaxIdlePerHost bound idle connections to pods. Default 1000 and 100.
	MaxIdle, MaxIdlePerHost int
	// ProbeTimeout and ProbeEvery are the timeout and interval of the probes of pods. Default 300 ms and 200 ms.
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

// Validate returns an error for the first invalid field, with the valid values.
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
