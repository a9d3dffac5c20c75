// Package knative is the activator of a cluster. It replaces Knative's own activator, with the
// same ports, probes and statistics, and serves revisions of every class: those of [api.Class]
// by package activator, all others by Knative's code, unchanged. It is the only part of the
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
	"time"

	pkgnet "knative.dev/pkg/network"

	"github.com/rouse-dev/rouse/activator/peer"
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
	// MaxEvent is as in [activator.Config].
	MaxEvent api.Bytes
	// Peers identifies clients, and says which to trust; the zero value trusts none.
	Peers peer.Addresses
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
	case c.Propagation < 0 || c.Drain < 0:
		return fmt.Errorf("ROUSE_PROPAGATION is %s and ROUSE_DRAIN %s: want times above 0", c.Propagation, c.Drain)
	case c.Stock.MaxIdle < 0 || c.Stock.MaxIdlePerHost < 0 || c.Stock.ProbeTimeout < 0 || c.Stock.ProbeEvery < 0:
		return errors.New("MAX_IDLE_PROXY_CONNS, MAX_IDLE_PROXY_CONNS_PER_HOST, PROBE_TIMEOUT or PROBE_FREQUENCY is negative: want a number of connections and a time above 0")
	}
	return nil
}
