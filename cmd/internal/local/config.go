package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	federation "github.com/rouse-dev/rouse/activator/federation/agent"
	"github.com/rouse-dev/rouse/activator/federation/door"
	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/activator/peer"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/flight"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
	"github.com/rouse-dev/rouse/config"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// Config says what a machine serves and how.
type Config struct {
	// Listen is host:port. Default "127.0.0.1:8080"; port 0 picks one.
	Listen string `flag:"listen" help:"<address> to take requests at, host:port or http://host:port; port 0 picks one"`
	TLS    TLS
	// Origins are web pages that may use the front door, besides this machine's; "*": all.
	Origins   []string `flag:"origins" split:"" help:"web <pages> that may use this server from a browser, such as https://chat.example.com, besides those of this machine; '*': all (repeatable)"`
	Functions []api.Function
	// Memory is for all instances together. 0: four fifths of the host's.
	Memory api.Bytes
	NoGPU  bool `flag:"no-gpu" help:"leave GPUs alone"`
	// NvidiaSMI lists GPUs. Default "nvidia-smi".
	NvidiaSMI string
	// GPUInterval is between polls of the GPUs. Default 10 s.
	GPUInterval time.Duration
	// DCGM are URLs of DCGM exporters, in place of nvidia-smi.
	DCGM []string `flag:"dcgm" help:"<URL> of a DCGM exporter that says what is used of the GPUs, in place of nvidia-smi (repeatable)"`
	// BaseDir holds one folder per running server. Default: [BaseDir].
	BaseDir string
	// Program is the rouse binary, which instances run. Default: the running one.
	Program string
	// Sink gets a copy of every event (Knative's K_SINK); empty: none.
	Sink string
	// SinkOverrides is the JSON of K_CE_OVERRIDES.
	SinkOverrides string
	// MemoryLimit is this process's; 0: no bound. See [inbound.Within].
	MemoryLimit api.Bytes
	// Peers trusts nobody if it is zero.
	Peers peer.Addresses
	// AdminToken, if not nil, opens the administrative API on the front door to requests with the returned token.
	AdminToken func() (string, error)
	// Keys is the file of client keys; empty: clients need none.
	Keys string `flag:"keys" help:"<file> with the keys that clients must have (rouse keys create); it is read again on change (default: none is needed)"`
	// Store keeps files, batches, later answers and responses, unless At is empty.
	Store store.Config
	// Clusters makes the server a front door of clusters; Join, a cluster of other front doors. Both may be nil.
	Clusters *door.File
	Join     *federation.Config
	// AcceptKinds are runtimes that front doors may use here. Default: the engine's, which runs no other program.
	AcceptKinds []string `flag:"accept-runtimes" split:"" help:"<runtimes> of such functions; command lets them run any program"`
	// DrainTimeout bounds requests at the end. Default 30 s.
	DrainTimeout time.Duration `flag:"drain" help:"how long requests may go on after the first Ctrl-C"`
	Traces       *waketrace.Exporter
	Version      string
	// Access gets a line for each request to a model; may be nil.
	Access *slog.Logger
	// Logger; nil: nothing is logged.
	Logger *slog.Logger
	// Observe, if not nil, gets each event, in order; it must not block for long.
	Observe func(api.Event)
	// Tell, if not nil, gets a line when clusters and front doors come and go; it must not block for long.
	Tell func(line string)
	// Follow, if not nil, changes declarations while requests are accepted, until its context ends. Its error ends the server.
	Follow func(context.Context, Declarations) error
	// StateDir keeps what was learned; empty: it is forgotten.
	StateDir string
	// RecordBytes bounds the flight record, which a user's servers share; 0: nothing is recorded.
	RecordBytes int64
	// Ready, if not nil, is called once requests are accepted.
	Ready func(Info)
}

// Info describes a server, in the administrative API.
type Info struct {
	Version string       `json:"version"`
	URL     string       `json:"url"`
	Admin   api.Endpoint `json:"admin"`
	// Page is a secret: it has the token that administers this server.
	Page string `json:"page"`
	// Fingerprint is the SHA-256 of Certificate, a file; empty: no TLS.
	Certificate string `json:"certificate,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	// Clusters is where clusters join; empty: they don't.
	Clusters string    `json:"clusters,omitempty"`
	Keys     bool      `json:"keys,omitempty"`
	Models   string    `json:"models,omitempty"`
	PID      int       `json:"pid"`
	Started  time.Time `json:"started"`
}

// Declarations change what a server serves. They are safe for many goroutines, and wait for each other.
type Declarations interface {
	// Declare declares or changes a function, and returns "created", "configured" or "unchanged".
	Declare(ctx context.Context, f api.Function) (string, error)
	// Withdraw removes a function, if it is still the one declared in origin.
	Withdraw(ctx context.Context, name api.FunctionName, origin string) error
}

func (c Config) withDefaults() (Config, error) {
	c.Listen, c.BaseDir = cmp.Or(c.Listen, DefaultListen), cmp.Or(c.BaseDir, BaseDir())
	c.DrainTimeout, c.GPUInterval = cmp.Or(c.DrainTimeout, 30*time.Second), cmp.Or(c.GPUInterval, 10*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if len(c.AcceptKinds) == 0 {
		c.AcceptKinds = []string{api.RuntimeEngine}
	}
	if err := (inventory.DCGM{URLs: c.DCGM}).Validate(); err != nil {
		return c, err
	}
	if c.Program == "" {
		var err error
		if c.Program, err = os.Executable(); err == nil {
			_, err = os.Stat(c.Program) // it is gone if the file was replaced
		}
		if err != nil {
			return c, fmt.Errorf("find the program that instances run: %w", err)
		}
	}
	return c, nil
}

// DefaultListen is a server's default address.
const DefaultListen = "127.0.0.1:8080"

// Validate reports the first invalid field.
func (c Config) Validate() error {
	if address, err := api.ListenAddress(c.Listen); c.Listen != "" && address != c.Listen {
		return fmt.Errorf("listen address %q: want host:port, such as 127.0.0.1:8080 (%w)", c.Listen, err)
	}
	for _, o := range c.Origins {
		if err := checkOrigin(o); err != nil {
			return err
		}
	}
	for _, kind := range c.AcceptKinds {
		if !slices.Contains(api.RuntimeKinds, kind) {
			return fmt.Errorf("accepted runtime %q: want one of %s", kind, strings.Join(api.RuntimeKinds, ", "))
		}
	}
	if c.Join != nil {
		if err := (config.Accept{Models: c.Join.Accept.Models}).Validate(); err != nil {
			return fmt.Errorf("accepted models: %w", err)
		}
	}
	if c.Memory < 0 {
		return fmt.Errorf("memory %d: want a positive amount, such as 2Gi", c.Memory)
	}
	if len(c.Functions) == 0 && c.Clusters == nil && (c.Join == nil || len(c.Join.Accept.Functions) == 0) {
		return errors.New("no functions to serve")
	}
	return nil
}

// RecordDir is the folder of the flight record in StateDir.
const RecordDir = "record"

func (c Config) record() flight.Config {
	if c.StateDir == "" || c.RecordBytes == 0 {
		return flight.Config{}
	}
	return flight.Config{Folder: filepath.Join(c.StateDir, RecordDir), MostBytes: c.RecordBytes, Version: c.Version}
}
