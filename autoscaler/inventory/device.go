package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Device is memory that instances share: the host's or one GPU's.
type Device struct {
	ID api.DeviceID
	// Node is empty if there is only one. A node's host memory has the ID "NODE/host".
	Node string
	// Name is for display: "NVIDIA L4".
	Name string
	// Others is the memory that other processes use; it is never allocated.
	Others api.Bytes
	// Capacity is the memory that instances may use.
	Capacity api.Bytes
	Total    api.Bytes
	// Was is the previous ID, or the replaced device's.
	Was api.DeviceID
}

// Config says what to look for. The zero value finds everything.
type Config struct {
	// Memory is the host memory that instances may use. 0: Share of the machine's.
	Memory api.Bytes
	// Share is used if Memory is 0. Default 0.8.
	Share float64
	// NvidiaSMI is the program that lists GPUs, if installed. Default "nvidia-smi".
	NvidiaSMI string
	NoGPU     bool
	// Timeout bounds the search. Default 5 s.
	Timeout time.Duration
}

// Discover lists the devices of this machine, the host first, even if the GPUs can't be read.
func Discover(ctx context.Context, c Config) ([]Device, error) {
	c = c.withDefaults()
	if c.Memory < 0 || c.Share < 0 || c.Share > 1 {
		return nil, fmt.Errorf("host memory: want a budget of at least 0 (have %d) and a share from 0 to 1 (have %g)", c.Memory, c.Share)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("no answer within %s", c.Timeout))
	defer cancel()
	host, err := c.host()
	if err != nil {
		return nil, err
	}
	devices := []Device{host}
	if c.NoGPU {
		return devices, nil
	}
	gpus, err := c.gpus(ctx)
	return append(devices, gpus...), err
}

func (c Config) withDefaults() Config {
	c.Share, c.Timeout, c.NvidiaSMI = cmp.Or(c.Share, 0.8), cmp.Or(c.Timeout, 5*time.Second), cmp.Or(c.NvidiaSMI, "nvidia-smi")
	return c
}

// HostTotal returns the memory of this machine, or of the container.
func HostTotal() (api.Bytes, error) {
	m, err := hostMemory()
	return m.total, err
}

func (c Config) host() (Device, error) {
	d := Device{ID: api.HostMemory, Name: "host memory"}
	m, err := hostMemory()
	d.Total = m.total
	switch {
	case c.Memory > 0:
		d.Capacity = c.Memory
		d.Total = max(d.Total, d.Capacity)
		return d, nil
	case err != nil:
		return d, fmt.Errorf("%w: say how much to use with --memory", err)
	}
	d.Capacity = min(api.Bytes(c.Share*float64(m.total)), api.Bytes(0.9*float64(m.available)))
	if d.Capacity <= 0 {
		return d, errors.New("host memory: none is available: say how much to use with --memory")
	}
	return d, nil
}

type memory struct{ total, available api.Bytes }

// HostOf returns the ID of a node's host memory; "": the only machine.
func HostOf(node string) api.DeviceID {
	if node == "" {
		return api.HostMemory
	}
	return api.DeviceID(node + "/" + string(api.HostMemory))
}

// IsHost reports whether d is the host memory of a machine.
func (d Device) IsHost() bool { return d.ID == api.HostMemory || d.ID == HostOf(d.Node) }

// Joins reports whether d can be one of n devices: a process sees only one slice of a GPU (MIG).
func (d Device) Joins(n int) bool { return n < 2 || !strings.HasPrefix(string(d.ID), "MIG-") }

// Whole returns what an instance takes of a whole device. If others use much, no instance can have it.
func (d Device) Whole() api.Bytes {
	if d.Others <= d.Capacity/10 {
		return d.Capacity - d.Others
	}
	return d.Capacity
}

// Room is the amount that pods may still request on a node: the scheduler counts requests, not use.
type Room struct {
	Node string
	// Leaving is requested by pods that are being deleted.
	Free, Leaving api.Requests
}

// UnmanagedPod is another's pod that fits on no node, or a sleeper's that must get back requests from its node before it
// wakes.
type UnmanagedPod struct {
	Name string // namespace/name
	// Function is the sleeper's; empty for another's pod.
	Function api.FunctionName
	// Requests are, for a sleeper, in addition to those that it has.
	Requests   api.Requests
	Candidates []string
}

// gpuReserve is never allocated: contexts and fragmentation take it.
const gpuReserve = 256 * api.MiB

func (c Config) gpus(ctx context.Context) ([]Device, error) {
	out, err := c.query(ctx)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseGPUs(out)
}

func parseGPUs(out string) ([]Device, error) {
	us, err := parseUsage(out)
	if err != nil {
		return nil, err
	}
	var gpus []Device
	for _, u := range us {
		gpus = append(gpus, u.NewDevice())
	}
	return gpus, nil
}

// mebibytes fails for devices that share the host's memory: "[N/A]".
func mebibytes(s string) (api.Bytes, error) {
	n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(s), " MiB"), 10, 64)
	if err != nil || n < 0 || n > 1<<40 {
		return 0, fmt.Errorf("memory %q: want a number of MiB", s)
	}
	return api.Bytes(n) * api.MiB, nil
}
