package cluster

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/rouse-dev/rouse/e2e/vllmsim/device"
)

// GPUs are the fake devices of the node. Simulated model servers account their memory on them (package device).
type GPUs struct {
	Count    int
	Replicas int   // pods that may share a device; 1: none share
	MemoryMB int   // of each device
	Lost     []int // unhealthy, and a process that uses them fails
}

// Validate returns an error if the numbers are impossible.
func (g GPUs) Validate() error {
	if g.Count < 0 || g.Replicas < 1 || g.MemoryMB < 1 {
		return fmt.Errorf("fake devices: there must be at least 0, for at least 1 pod each, with at least 1 MiB: got %d, %d, %d",
			g.Count, g.Replicas, g.MemoryMB)
	}
	for _, i := range g.Lost {
		if i < 0 || i >= g.Count {
			return fmt.Errorf("fake devices: %d can't be lost: there are %d, counted from 0", i, g.Count)
		}
	}
	return nil
}

// UUID is the name of a device: the same at every start.
func (g GPUs) UUID(i int) string {
	b := sha256.Sum256(fmt.Appendf(nil, "fake GPU %d", i))
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

func (g GPUs) uuids(lost bool) string {
	var all []string
	for i := range g.Count {
		if !lost || slices.Contains(g.Lost, i) {
			all = append(all, g.UUID(i))
		}
	}
	return strings.Join(all, ",")
}

// make makes the devices in dir. An existing one keeps its holders; one that is not wanted any more stays until it has
// none.
func (g GPUs) make(dir string) error {
	if err := device.Create(dir); err != nil {
		return err
	}
	now, err := device.List(dir)
	if err != nil {
		return err
	}
	for _, d := range now {
		if lost := slices.Contains(g.Lost, d.Index); lost || d.Index >= g.Count && len(d.Processes) == 0 {
			if err := device.Remove(dir, d.Index); err != nil {
				return err
			}
		}
	}
	for i := range g.Count {
		if slices.Contains(g.Lost, i) {
			continue
		}
		if err := device.Create(dir, device.Device{Index: i, UUID: g.UUID(i), Name: "Fake-GPU", Memory: int64(g.MemoryMB) << 20}); err != nil {
			return err
		}
	}
	return nil
}

func (p Places) devices() string { return p.node("gpus") }

func (n node) fakegpu(g GPUs) Service {
	return n.service("fakegpu", n.programs.path("own", "fakegpu"),
		"-gpus="+g.uuids(false), "-lost="+g.uuids(true), "-replicas="+strconv.Itoa(g.Replicas), "-memory="+strconv.Itoa(g.MemoryMB),
		"-dir="+kubeletDir+"/device-plugins", "-node="+NodeName, "-kubeconfig="+n.places.Kubeconfig())
}

const runtimeScript = "#!/bin/sh\nexec %q -runc %q -devices %q -- \"$@\"\n"

func giveGPUs(p Places, built programs) (string, error) {
	file := p.node("runc-with-gpus")
	body := fmt.Sprintf(runtimeScript, built.path("own", "gpuruntime"), built.path("runc", "runc"), p.devices())
	if err := os.WriteFile(file, []byte(body), 0o755); err != nil {
		return "", fmt.Errorf("write the node's configuration: %w", err)
	}
	return file, nil
}

// SetGPUs shows other fake devices to the kubelet. Pods that have one keep it, unless it is lost.
func (c *Cluster) SetGPUs(ctx context.Context, g GPUs) error {
	if err := g.Validate(); err != nil {
		return err
	}
	if !c.Ready() {
		return errors.New("the cluster is not up as a whole yet")
	}
	built, err := builder{c.places, slog.New(slog.DiscardHandler)}.one(ctx, ownSet())
	if err != nil {
		return err
	}
	if err := g.make(c.places.devices()); err != nil {
		return err
	}
	return c.super.run(ctx, node{c.places, built}.fakegpu(g))
}

// Devices reads the fake devices and their holders.
func (c *Cluster) Devices() ([]device.Device, error) {
	return device.List(c.places.devices())
}
