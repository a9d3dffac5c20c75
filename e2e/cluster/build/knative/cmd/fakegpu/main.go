// Command fakegpu offers simulated GPUs to the kubelet as NVIDIA's device plugin does, and labels the node as its
// feature discovery does.
//
//  1. fakegpu listens beside the kubelet's socket and registers.
//  2. The kubelet asks for the devices; with -replicas, each is offered that often, as UUID::0, UUID::1, …
//  3. For a pod's container it answers with NVIDIA_VISIBLE_DEVICES: UUIDs without a suffix, each once.
//  4. A new kubelet empties its folder: back to 1.
//
// A device of -lost is unhealthy: the kubelet gives it to nobody.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const resource = "nvidia.com/gpu"

type config struct {
	dir        string
	gpus       []string // UUIDs
	lost       []string // those that are unhealthy
	replicas   int
	memory     int
	node       string
	kubeconfig string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "fakegpu:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var c config
	flags := flag.NewFlagSet("fakegpu", flag.ContinueOnError)
	flags.StringVar(&c.dir, "dir", "/var/lib/kubelet/device-plugins", "the kubelet's folder for device plugins")
	gpus := flags.String("gpus", "", "`UUIDs` of the devices, with commas between them")
	lost := flags.String("lost", "", "`UUIDs` of those that are unhealthy")
	flags.IntVar(&c.replicas, "replicas", 1, "pods that may share a device")
	flags.IntVar(&c.memory, "memory", 16384, "MiB of memory of a device, for the node's label")
	flags.StringVar(&c.node, "node", "", "the node to label; empty: none")
	flags.StringVar(&c.kubeconfig, "kubeconfig", "", "how to reach the cluster, for the labels")
	if err := flags.Parse(args); err != nil {
		return err
	}
	c.gpus, c.lost = list(*gpus), list(*lost)
	if c.replicas < 1 || c.memory < 1 {
		return fmt.Errorf("-replicas and -memory must be at least 1: got %d and %d", c.replicas, c.memory)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if c.node != "" {
		go label(ctx, c, log) // it ends with the process
	}
	return serve(ctx, c, log)
}

func list(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' })
}

// serve offers the devices to every kubelet that comes.
func serve(ctx context.Context, c config, log *slog.Logger) error {
	for ctx.Err() == nil {
		if _, err := os.Stat(filepath.Join(c.dir, kubeletSocket)); err != nil {
			pause(ctx, 100*time.Millisecond)
			continue
		}
		if err := offer(ctx, c, log); err != nil {
			log.Warn("the kubelet does not take the devices", "error", err)
			pause(ctx, time.Second)
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
