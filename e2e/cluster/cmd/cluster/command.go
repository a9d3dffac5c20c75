package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/rouse-dev/rouse/e2e/cluster"
)

const usage = `usage: cluster COMMAND

  up [--gpus N] [--replicas N] [--memory MIB]   bring the cluster up, unless it runs
  down [--wipe]                                 take it down; --wipe removes the node's files too
  able                                          whether this machine can run it; if not, it says why and fails
  status                                        what runs
  env                                           how to reach it, for eval "$(cluster env)"
  load IMAGE.tar ...                            put images into the node
  exec -- COMMAND ...                           run a command inside the node
  gpus [--gpus N] [--replicas N] [--memory MIB] [--unhealthy I,J]
                                                show other fake devices, some of them lost
  logs DIR                                      collect logs, events and the state of objects
`

func run(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) == 0 || args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
		_, err := io.WriteString(stdout, usage)
		return err
	}
	name, args := args[0], args[1:]
	if name == "init" && len(args) == 3 { // by up, as the node's first process
		return cluster.Init(cluster.Places{Checkout: args[0], Cache: args[1], Node: args[2]})
	}
	if name == "able" {
		return cluster.Unable()
	}
	p, err := cluster.FindPlaces(ctx)
	if err != nil {
		return err
	}
	switch name {
	case "up":
		return up(ctx, p, args, stdout)
	case "down":
		flags := flag.NewFlagSet("down", flag.ContinueOnError)
		wipe := flags.Bool("wipe", false, "remove the node's files too")
		if err := flags.Parse(args); err != nil {
			return err
		}
		return cluster.Down(ctx, p, *wipe)
	}
	c, err := cluster.Running(p)
	if err != nil {
		return err
	}
	return inside(ctx, c, name, args, stdout)
}

func inside(ctx context.Context, c *cluster.Cluster, name string, args []string, stdout io.Writer) error {
	switch name {
	case "status":
		return status(ctx, c, stdout)
	case "env":
		return env(c, stdout)
	case "load":
		return c.Load(ctx, args...)
	case "exec":
		return execute(ctx, c, args, stdout)
	case "gpus":
		g, err := gpus(name, args)
		if err != nil {
			return err
		}
		return c.SetGPUs(ctx, g)
	case "logs":
		if len(args) != 1 {
			return errors.New("logs takes the folder to write to")
		}
		return c.Collect(ctx, args[0])
	}
	return fmt.Errorf("no command is called %q; `cluster help` lists them", name)
}

func gpus(name string, args []string) (g cluster.GPUs, err error) {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.IntVar(&g.Count, "gpus", 2, "fake devices")
	flags.IntVar(&g.Replicas, "replicas", 1, "pods that may share a device")
	flags.IntVar(&g.MemoryMB, "memory", 16384, "MiB of memory that a device is said to have")
	flags.Func("unhealthy", "`numbers` of devices that are lost, from 0, with commas between them", func(s string) error {
		for word := range strings.SplitSeq(s, ",") {
			i, err := strconv.Atoi(word)
			if err != nil {
				return err
			}
			g.Lost = append(g.Lost, i)
		}
		return nil
	})
	err = flags.Parse(args)
	return g, err
}

func up(ctx context.Context, p cluster.Places, args []string, stdout io.Writer) error {
	g, err := gpus("up", args)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{ReplaceAttr: short}))
	c, err := cluster.Up(ctx, p, cluster.Options{GPUs: g, Logger: log})
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, `The cluster is up. To reach it:

  export KUBECONFIG=%s PATH=%s:$PATH
  kn service create hello --image %s
  curl -H 'Host: hello.default.%s' %s

`, c.Kubeconfig, c.Bin, cluster.HelloImage, cluster.Domain, c.IngressURL)
	return nil
}

func short(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey) {
		return slog.Attr{}
	}
	return a
}

func status(ctx context.Context, c *cluster.Cluster, stdout io.Writer) error {
	services, err := c.Services(ctx)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SERVICE\tPID\tRESTARTS\tSTATE")
	for _, s := range services {
		state := "runs"
		switch {
		case s.Stopped:
			state = "stopped"
		case s.PID == 0:
			state = "ended: " + s.Last
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\n", s.Name, s.PID, s.Restarts, state)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if !c.Ready() {
		fmt.Fprintln(stdout, "It is not up as a whole: `cluster down`, then `cluster up`.")
		return nil
	}
	pods, err := c.Kubectl(ctx, "get", "pods", "-A")
	fmt.Fprint(stdout, "\n", pods)
	return err
}

func env(c *cluster.Cluster, stdout io.Writer) error {
	_, err := fmt.Fprintf(stdout, "export KUBECONFIG='%s' PATH='%s':\"$PATH\"\n", c.Kubeconfig, c.Bin)
	return err
}

func execute(ctx context.Context, c *cluster.Cluster, args []string, stdout io.Writer) error {
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		return errors.New("exec takes a command: cluster exec -- ip addr")
	}
	cmd := c.Exec(ctx, args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, stdout, os.Stderr
	return cmd.Run()
}
