package inventory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Device is memory that instances share: the host's or one GPU's.
type Device struct {
	ID api.DeviceID
	// Node is its machine; empty if there is only one. The host memory of a node of a cluster has the ID "NODE/host".
	Node string
	// Name is for display: "host memory", "NVIDIA L4".
	Name string
	// Others is the memory that other processes use; it is never allocated.
	Others api.Bytes
	// Capacity is the memory that instances may use, all together.
	Capacity api.Bytes
	// Total is the device's whole memory.
	Total api.Bytes
	// Was is the previous ID of the device, or of the one that it replaces; empty if the ID is the same.
	Was api.DeviceID
}

// Config says what to look for. The zero value finds everything.
type Config struct {
	// Memory is the host memory that instances may use. 0: Share of the machine's.
	Memory api.Bytes
	// Share is the part of the host's memory to use if Memory is 0. Default 0.8.
	Share float64
	// NvidiaSMI is the program that lists GPUs. Default "nvidia-smi"; if it is not installed there are no GPUs.
	NvidiaSMI string
	// NoGPU ignores GPUs.
	NoGPU bool
	// Timeout bounds the search. Default 5 s.
	Timeout time.Duration
}

// Discover lists the devices of this machine, the host first. It runs a program and reads files: call it once, at start. If
// the GPUs can't be read it returns the host together with the error, and the caller may continue without them.
func Discover(ctx context.Context, c Config) ([]Device, error) {
	if c.Share == 0 {
		c.Share = 0.8
	}
	if c.Memory < 0 || c.Share < 0 || c.Share > 1 {
		return nil, fmt.Errorf("host memory: want a budget of at least 0 (have %d) and a share from 0 to 1 (have %g)", c.Memory, c.Share)
	}
	c = c.withDefaults()
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
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Second
	}
	if c.NvidiaSMI == "" {
		c.NvidiaSMI = "nvidia-smi"
	}
	return c
}

// HostTotal returns the memory of this machine, or of the container if that has less.
func HostTotal() (api.Bytes, error) {
	m, err := hostMemory()
	return m.total, err
}

// host returns the host memory as a device.
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

// memory is the machine's host memory.
type memory struct{ total, available api.Bytes }
