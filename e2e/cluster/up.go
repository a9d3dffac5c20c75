package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
)

// Options say how to bring a cluster up.
type Options struct {
	GPUs   GPUs         // of a running cluster, they stay as they are
	Logger *slog.Logger // may be nil
}

// Up brings the cluster of this checkout up, unless it runs, and returns when Knative is available. What fails on the
// way is taken down again; the logs stay. Of several calls at once one works and the others wait.
func Up(ctx context.Context, p Places, o Options) (*Cluster, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if err := errors.Join(o.GPUs.Validate(), Unable(), lacking(lookPath, seccompHeaders)); err != nil {
		return nil, err
	}
	unlock, err := lock(ctx, func() { o.Logger.Info("waiting for another `cluster` that works on this machine") })
	if err != nil {
		return nil, err
	}
	defer unlock()
	r, err := readRecord()
	if err != nil {
		return nil, err
	}
	switch {
	case r != nil && r.alive() && r.Checkout != p.Checkout:
		return nil, other(r)
	case r != nil && r.alive() && r.Ready:
		o.Logger.Info("it runs already; `cluster gpus` changes its fake devices")
		return open(p, r), nil
	case r != nil:
		o.Logger.Info("cleaning up after a cluster that did not end well")
		if err := end(ctx, r); err != nil {
			return nil, err
		}
	}
	return raise(ctx, p, o)
}

func other(r *record) error {
	return fmt.Errorf("this machine runs the cluster of the checkout %s, and can run one: end that with "+
		"`make cluster-down` there, or use it by hand with KUBECONFIG=%s", r.Checkout, Places{Node: r.Node}.Kubeconfig())
}

func raise(ctx context.Context, p Places, o Options) (*Cluster, error) {
	start := time.Now()
	lap := func(what string) {
		o.Logger.Info(what, "seconds", time.Since(start).Round(100*time.Millisecond).Seconds())
	}
	b := builder{places: p, log: o.Logger}
	built, err := b.all(ctx)
	if err != nil {
		return nil, err
	}
	from, err := b.sources(ctx)
	if err != nil {
		return nil, err
	}
	yaml, err := from.assemble()
	if err != nil {
		return nil, err
	}
	tars, err := archive(p.Cache, images(built))
	if err != nil {
		return nil, err
	}
	lap("programs, images and manifests are there")
	if err := errors.Join(free(), certify(p), configure(p, built), link(p, built)); err != nil {
		return nil, err
	}
	r := &record{Checkout: p.Checkout, Cache: p.Cache, Node: p.Node}
	c := open(p, r)
	err = begin(p, r)
	if err == nil {
		err = c.boot(ctx, node{p, built}, o.GPUs, tars, lap)
	}
	if err == nil {
		err = c.install(ctx, node{p, built}, yaml)
	}
	if err == nil {
		lap("Knative is available")
		r.Ready = true
		err = r.write()
	}
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		return nil, errors.Join(fmt.Errorf("%w (logs: %s)", err, p.node("log")), end(ctx, r))
	}
	return c, nil
}

// link makes the folder of programs for a user of the cluster.
func link(p Places, built programs) error {
	for _, l := range []struct{ set, program string }{{"kubernetes", "kubectl"}, {"kn", "kn"}, {"containerd", "ctr"}} {
		to := filepath.Join(mkdir(p.node("bin")), l.program)
		_ = os.Remove(to)
		if err := os.Symlink(built.path(l.set, l.program), to); err != nil {
			return fmt.Errorf("link %s: %w", l.program, err)
		}
	}
	return nil
}

// boot starts the node's services, in the order in which they need one another, and loads the images.
func (c *Cluster) boot(ctx context.Context, n node, gpus GPUs, tars []string, lap func(string)) error {
	for _, s := range []Service{n.etcd(), n.containerd(), n.apiserver()} {
		if err := c.super.run(ctx, s); err != nil {
			return err
		}
	}
	var jobs errgroup.Group
	jobs.Go(func() error { return c.Load(ctx, tars...) })
	jobs.Go(func() error {
		if err := c.serves(ctx); err != nil {
			return err
		}
		for _, s := range []Service{n.controllers(), n.scheduler(), n.kubelet(), n.proxy(), n.dns()} {
			if err := c.super.run(ctx, s); err != nil {
				return err
			}
		}
		if err := gpus.make(n.places.devices()); err != nil {
			return err
		}
		if gpus.Count > 0 {
			if err := c.super.run(ctx, n.fakegpu(gpus)); err != nil {
				return err
			}
		}
		lap("the control plane is up")
		return nil
	})
	return jobs.Wait()
}

func (c *Cluster) serves(ctx context.Context) error {
	client, err := c.Client()
	if err == nil {
		err = until(ctx, time.Minute, func() error { return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() })
	}
	if err != nil {
		return fmt.Errorf("wait for the API server: %w; its log: %s", err, c.places.log("apiserver"))
	}
	return nil
}

// until calls f until it returns nil, and returns its last error when the time is up.
func until(ctx context.Context, patience time.Duration, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Down takes down the cluster of this checkout, or what is left of it. With wipe the node's files go too.
func Down(ctx context.Context, p Places, wipe bool) error {
	if err := Unable(); err != nil {
		return err
	}
	unlock, err := lock(ctx, func() {})
	if err != nil {
		return err
	}
	defer unlock()
	r, err := readRecord()
	if err != nil {
		return err
	}
	if r != nil {
		if r.alive() && r.Checkout != p.Checkout {
			return other(r)
		}
		if err := end(ctx, r); err != nil {
			return err
		}
	}
	if wipe {
		if err := os.RemoveAll(p.Node); err != nil {
			return fmt.Errorf("remove the node's files: %w", err)
		}
	}
	return nil
}

// free reports whether the cluster's addresses and control groups are nobody else's on this host.
func free() error {
	if groups := groups(); len(groups) > 0 {
		return fmt.Errorf("this host has the control group %s, so another kubelet or containerd runs here: "+
			"end it, or remove the group if it is empty", groups[0])
	}
	path, err := lookPath("ip")
	if err != nil {
		return err
	}
	for _, cidr := range []string{linkCIDR, PodCIDR, ServiceCIDR} {
		out, err := exec.Command(path, "-4", "route", "show", "root", cidr).Output()
		if err != nil {
			return fmt.Errorf("look for routes: %w", errors.Join(err, said(err)))
		}
		if len(out) > 0 {
			return fmt.Errorf("this host has a route into %s, which the cluster's addresses are from: %s", cidr, out)
		}
	}
	return nil
}
