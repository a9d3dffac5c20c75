// Package knative is the activator of a cluster, with the ports, probes and statistics of Knative's own. It serves functions
// by package activator, and by Knative's code, unchanged, revisions of other classes, whose requests come here
// only until what a version before this one has changed of Knative's is given back (package settings). It is the only part of the
// activator that imports Kubernetes and Knative.
//
// The life of a request that reaches one of the ports:
//
//  1. The kubelet's probes and Knative's network probes are answered at once.
//  2. The dispatcher finds the revision: by the headers that the ingress adds, else by a host
//     REVISION.NAMESPACE.svc.DOMAIN of a revision that exists.
//  3. A revision of our class: [activator.Activator.ServeFunction] sends the request directly
//     to the function's port on the pod. It passes neither the queue-proxy nor the tracing and
//     the timeouts of Knative's chain.
//  4. Another revision: Knative's chain.
//  5. No revision: the front door, [activator.Activator.Handler].
//
// With [Config.Join] the process is an agent instead (package activator/clusteragent): one more activator, which
// dials front doors and takes requests from them only. It offers each Service as one function (type offers), and
// never holds a request, so that the order of requests is the front door's.
//
// Package activator is fed from four sources: revisions, routes and pods from Kubernetes (type
// watch); the states of instances, grants and failures from the autoscaler, at the control port
// (type controls); and the instances themselves, where requests wait and an instance has not
// reported (type prober).
//
// The process starts without the autoscaler: requests wait for what it knows. It is not ready
// without Knative's autoscaler, because revisions of other classes depend on that.
//
// [Run] is called once per process, from one goroutine: Knative's libraries keep their registry
// of informers and their telemetry in the process.
package knative

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	pkgnet "knative.dev/pkg/network"

	"github.com/rouse-dev/rouse/activator/batch/store/place"
	"github.com/rouse-dev/rouse/activator/clusteragent"
	"github.com/rouse-dev/rouse/activator/joining"
	"github.com/rouse-dev/rouse/activator/knative/placed"
	"github.com/rouse-dev/rouse/activator/peer"
	"github.com/rouse-dev/rouse/activator/picker"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// Config is the process's. PodName and PodIP must be given; the other zero values have defaults.
type Config struct {
	// PodName and PodIP are this pod's.
	PodName, PodIP string
	// Autoscaler is the base URL of Rouse's autoscaler. Default [control.DefaultControlURL].
	Autoscaler string
	// MemoryLimit is what this process may use; 0: no bound. See [inbound.Within].
	MemoryLimit api.Bytes
	// MaxEvent and Version are as in [activator.Config].
	MaxEvent api.Bytes
	Version  string
	// Peers identifies clients, and says which to trust; the zero value trusts none.
	Peers peer.Addresses
	// RequireKeys says that clients need a key, of those that the Secret [control.KeysSecret] declares.
	RequireKeys bool
	// Access gets a line for each request to a function; nil: none are written.
	Access *slog.Logger
	// Sink is where a copy of every event goes; empty: nowhere.
	Sink string
	// SinkOverrides is the JSON of K_CE_OVERRIDES: what the copies have besides; empty: nothing.
	SinkOverrides string
	// Env reads the process's environment: OpenTelemetry's variables there say where traces of
	// wakes are exported to; nil: nowhere.
	Env func(string) string
	// Propagation is how long new requests are still accepted after shutdown begins: their
	// senders may not know of it yet. Default 45 s, as in Knative.
	Propagation time.Duration
	// Drain is how long requests may take to finish after that. Default 58 min: with
	// Propagation it must fit into the pod's terminationGracePeriodSeconds, 3600 in the manifest.
	Drain time.Duration
	// Store is where files, batches, later answers and responses are kept, in a folder for one activator at a time; its At empty: they are not.
	Store place.Config
	// Join, if not nil, makes the process an agent of front doors, and nothing else: requests come from them only,
	// and only for functions of [api.Class].
	Join *clusteragent.Config
	// AcceptImages are the images of the runtimes of functions that front doors may have created in the one namespace of the patterns of
	// Join's Accept, by runtime.
	AcceptImages map[string]string
	// Front, if not nil, makes it a front door of clusters elsewhere besides.
	Front *joining.Front
	// Picker, if not nil, makes it the endpoint picker of gateways besides.
	Picker *picker.Config
	// Stock is the configuration of what serves the other classes.
	Stock StockConfig
}

// StockConfig is what Knative's activator takes from its environment.
type StockConfig struct {
	// MaxIdle and MaxIdlePerHost bound idle connections to pods. Default 1000 and 100.
	MaxIdle, MaxIdlePerHost int
	// ProbeTimeout and ProbeEvery are those of the probes of pods. Default 300 ms and 200 ms.
	ProbeTimeout, ProbeEvery time.Duration
}

// withDefaults fills the zero fields.
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

// Validate reports the first field that is wrong, and what it should be.
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

// accepted says what front doors may have created; nil: nothing.
func (c Config) accepted() (*placed.Config, error) {
	if c.Join == nil || len(c.Join.Accept.Functions) == 0 {
		if len(c.AcceptImages) > 0 {
			return nil, errors.New("--accept-images: no function is accepted: give --accept-functions")
		}
		return nil, nil
	}
	namespace, err := placed.Namespace(c.Join.Accept.Functions)
	if err != nil {
		return nil, fmt.Errorf("--accept-functions: %w", err)
	}
	cfg := &placed.Config{Namespace: namespace, Images: c.AcceptImages, Models: c.Join.Accept.Models}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("--accept-images, --accept-models: %w", err)
	}
	return cfg, nil
}
