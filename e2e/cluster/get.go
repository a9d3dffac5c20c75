package cluster

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// found is what the first Get of a test binary found.
var found = sync.OnceValues(func() (*Cluster, error) {
	ctx := context.Background()
	if err := Unable(); err != nil {
		if file := os.Getenv("KUBECONFIG"); file != "" {
			return foreign(ctx, file)
		}
		return nil, &cannot{err}
	}
	p, err := FindPlaces(ctx)
	if err != nil {
		return nil, err
	}
	// As a program of its own, for the node's first process is the program that starts it.
	cmd := exec.CommandContext(ctx, "go", "run", "./e2e/cluster/cmd/cluster", "up")
	cmd.Dir, cmd.Env, cmd.Stderr = p.Checkout, append(os.Environ(), "GOFLAGS=-trimpath -buildvcs=false"), os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, errors.New("the cluster does not come up; what it said is above")
	}
	return Running(p)
})

// cannot is the reason why there is no cluster for tests that is no fault.
type cannot struct{ error }

// Get is the cluster for a test: the one of this checkout, which Get brings up if
// it does not run and which goes on running after the test; where the machine can't
// run one, that of KUBECONFIG, if it has Knative. Where there is none, the test is
// skipped. KUBECONFIG is used only there, so that no test meets a cluster by
// mistake.
//
// The first Get of a checkout builds Kubernetes and takes minutes; later ones take a
// quarter of a minute, or nothing. If the test fails and ROUSE_CLUSTER_LOGS names a
// folder, what is needed to see why lies in a folder of the test's name there.
func Get(t testing.TB) *Cluster {
	t.Helper()
	c, err := found()
	if reason := (*cannot)(nil); errors.As(err, &reason) {
		t.Skipf("no cluster: %v; or set KUBECONFIG to a cluster with Knative %s", reason, knativeVersion)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if bad, err := c.Unhealthy(ctx); err != nil || bad != "" {
			t.Logf("of the cluster itself: %s (%v)", bad, err)
		}
		if dir := os.Getenv("ROUSE_CLUSTER_LOGS"); dir != "" {
			dir += "/" + strings.NewReplacer("/", "_", " ", "_").Replace(t.Name())
			if err := c.Collect(ctx, dir); err != nil {
				t.Logf("some logs are missing: %v", err)
			}
			t.Logf("logs: %s", dir)
		}
	})
	return c
}

// foreign is a cluster that somebody else runs, if it has Knative.
func foreign(ctx context.Context, kubeconfig string) (*Cluster, error) {
	c := &Cluster{Kubeconfig: kubeconfig, IngressURL: strings.TrimSuffix(os.Getenv(EnvIngress), "/")}
	for _, program := range []string{"kubectl", "kn"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, &cannot{errors.New(program + " is not in PATH, and the cluster of KUBECONFIG needs it")}
		}
	}
	if _, err := c.Kubectl(ctx, "get", "deployment", "activator", "-n", "knative-serving"); err != nil {
		return nil, &cannot{errors.New("the cluster of KUBECONFIG has no Knative Serving: " + err.Error())}
	}
	return c, nil
}
