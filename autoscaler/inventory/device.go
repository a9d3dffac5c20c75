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
	// Node is the machine that it is of; empty where there is only one. The host memory of a
	// node of a cluster has the ID "NODE/host".
	Node string
	// Name is for people: "host memory", "NVIDIA L4".
	Name string
	// Cost is its price for an hour, in any unit that is the same for all; 0 is 1.
	Cost float64
	// Others is what processes use that are not instances; it is never given away.
	Others api.Bytes
	// Capacity is what instances may use of it, all together.
	Capacity api.Bytes
	// Total is all that the device has.
	Total api.Bytes
	// Was is what the device, or the one in whose place it is, was called in the list before; empty if it was called the same.
	Was api.DeviceID
}

// Config says what to look for. The zero value finds everything.
type Config struct {
	// Memory is the host memory that instances may use. 0 takes Share of what the machine has.
	Memory api.Bytes
	// Share is the part of the host's memory that is used where Memory is 0. Default 0.8.
	Share float64
	// NvidiaSMI is the program that lists GPUs. Default "nvidia-smi"; where it is not installed there are no GPUs.
	NvidiaSMI string
	// NoGPU leaves GPUs alone.
	NoGPU bool
	// Timeout bounds the search. Default 5 s.
	Timeout time.Duration
}

// Discover lists the devices of this machine, the host first. It runs a
// program and reads files: call it once, at start. Where the GPUs can't be read
// it returns the host together with the error, and the caller may go on without them.
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

// HostTotal is the memory of this machine, or of the container where that has less.
func HostTotal() (api.Bytes, error) {
	m, err := hostMemory()
	return m.total, err
}

// host sizes the host's memory.
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

// memory is what the machine says of its host memory.
type memory struct{ total, available api.Bytes }
