package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// Cluster is a running cluster. It is safe for concurrent use.
type Cluster struct {
	Kubeconfig string
	IngressURL string // for requests with a function's host
	Bin        string // has kubectl and kn

	places Places
	record *record
	super  supervisor
}

func open(p Places, r *record) *Cluster {
	return &Cluster{
		Kubeconfig: p.Kubeconfig(), IngressURL: "http://" + NodeIP, Bin: p.node("bin"),
		places: p, record: r, super: dialSupervisor(socketFile()),
	}
}

// Running returns the running cluster of this checkout, or an error that says what to do.
func Running(p Places) (*Cluster, error) {
	r, err := readRecord()
	switch {
	case err != nil:
		return nil, err
	case r == nil || !r.alive():
		return nil, errors.New("no cluster runs here: `make cluster` brings one up")
	case r.Checkout != p.Checkout:
		return nil, other(r)
	}
	return open(p, r), nil
}

// Ready reports whether the cluster was brought up as a whole.
func (c *Cluster) Ready() bool { return c.record.Ready }

// Env is the environment in which kubectl and kn use this cluster.
func (c *Cluster) Env() []string {
	return append(os.Environ(), "KUBECONFIG="+c.Kubeconfig, "PATH="+c.Bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
}

func (c *Cluster) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(c.Bin, name), args...)
	cmd.Env = c.Env()
	return cmd
}

// Kubectl returns kubectl's output.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return output(c.command(ctx, "kubectl", args...))
}

// Client is for frequent requests: a process for each costs more.
func (c *Cluster) Client() (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	return kubernetes.NewForConfig(config)
}

// Kn returns kn's output.
func (c *Cluster) Kn(ctx context.Context, args ...string) (string, error) {
	return output(c.command(ctx, "kn", args...))
}

// output returns a command's standard output; an error has its standard error.
func output(cmd *exec.Cmd) (string, error) {
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w: %s", filepath.Base(cmd.Path), strings.Join(cmd.Args[1:], " "), err, bytes.TrimSpace(said.Bytes()))
	}
	return out.String(), nil
}

// Load puts images into the node, from archives of "docker save". It replaces those of the same names.
func (c *Cluster) Load(ctx context.Context, tars ...string) error {
	err := until(ctx, 30*time.Second, func() error {
		_, err := output(c.record.in(ctx, filepath.Join(c.Bin, "ctr"), "version"))
		return err
	})
	if err != nil {
		return fmt.Errorf("wait for containerd: %w; its log: %s", err, c.places.log("containerd"))
	}
	var jobs errgroup.Group
	jobs.SetLimit(4) // unpacking takes processors, and writing waits
	for _, tar := range tars {
		jobs.Go(func() error {
			file, err := filepath.Abs(tar)
			if err != nil {
				return fmt.Errorf("load %s: %w", tar, err)
			}
			if _, err := output(c.record.in(ctx, filepath.Join(c.Bin, "ctr"), "-n", "k8s.io", "images", "import", file)); err != nil {
				return fmt.Errorf("load %s: %w", tar, err)
			}
			return nil
		})
	}
	return jobs.Wait()
}

// Exec makes a command that runs inside the node.
func (c *Cluster) Exec(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := c.record.in(ctx, name, args...)
	cmd.Env = c.Env()
	return cmd
}

// Services returns the state of the services that run in the node beside pods.
func (c *Cluster) Services(ctx context.Context) ([]ServiceStatus, error) {
	return c.super.list(ctx)
}

// StopKubelet stops the kubelet, as if the node hung: pods continue.
func (c *Cluster) StopKubelet(ctx context.Context) error { return c.super.stop(ctx, "kubelet") }

// StartKubelet starts it again.
func (c *Cluster) StartKubelet(ctx context.Context) error { return c.super.start(ctx, "kubelet") }
