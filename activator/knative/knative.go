// Package knative is a cluster's activator, with the ports, probes and metrics of Knative's own. It serves
// functions with package activator, and others with Knative's code until an earlier version's changes are reverted
// (package settings).
//
//  1. Probes are answered at once.
//  2. The dispatcher finds the revision by the ingress's headers or a host REVISION.NAMESPACE.svc.DOMAIN.
//  3. [activator.Activator.ServeFunction] sends a function's request to its port on the pod, past the queue-proxy.
//  4. Others go to Knative's chain or to the front door.
//
// With [Config.Join] the process is an agent (package activator/federation/agent): it serves front doors, offers
// each Service as one function, and holds no request.
//
// Kubernetes has the revisions, routes and pods (watch), the autoscaler sends states, grants and failures
// (controls), and silent instances are asked (prober).
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
	// Default [control.DefaultControlURL].
	Autoscaler string
	// 0: unbounded; see [inbound.Within].
	MemoryLimit api.Bytes
	Version     string
	Peers       peer.Addresses
	// Clients need a key declared in [control.KeysSecret].
	RequireKeys bool
	Access      *slog.Logger
	// Sink is the URL for a copy of every event.
	Sink string
	// From K_CE_OVERRIDES.
	SinkOverrides string
	// Env has OpenTelemetry's variables for the export of traces.
	Env func(string) string
	// Propagation is how long new requests are accepted after shutdown begins. Default 45 s, as in Knative.
	Propagation time.Duration
	// Drain bounds requests after that. Default 58 min: both must fit into terminationGracePeriodSeconds.
	Drain time.Duration
	// For one activator at a time; an empty At: none.
	Store store.Config
	// Join makes the process only an agent of front doors.
	Join *agent.Config
	// By runtime, for functions of front doors.
	AcceptImages map[string]string
	// Front also makes it a front door of other clusters.
	Front *door.File
	// Picker also makes it an endpoint picker.
	Picker *picker.Config
	Stock  StockConfig
}

// StockConfig is for Knative's activator.
type StockConfig struct {
	// Idle connections to pods. Default 1000 and 100.
	MaxIdle, MaxIdlePerHost int
	// Of probes of pods. Default 300 ms and 200 ms.
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

// nil: nothing
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
