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

var found = sync.OnceValues(func() (*Cluster, error) {
	ctx := context.Background()
	if err := Unable(); err != nil {
		return nil, &cannot{err}
	}
	p, err := FindPlaces(ctx)
	if err != nil {
		return nil, err
	}
	// A program of its own: the node's first process is the program that starts it, run again.
	cmd := exec.CommandContext(ctx, "go", "run", "./e2e/cluster/cmd/cluster", "up")
	cmd.Dir, cmd.Env, cmd.Stderr = p.Checkout, append(os.Environ(), "GOFLAGS=-trimpath -buildvcs=false"), os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, errors.New("the cluster does not come up; what it said is above")
	}
	return Running(p)
})

// cannot is why tests are skipped: this machine can't run a cluster.
type cannot struct{ error }

// Get returns the cluster of this checkout, and brings it up if it does not run. It goes on running after the test.
// Where the machine can't run one, the test is skipped.
//
// The first Get of a checkout takes minutes. If the test fails, ROUSE_CLUSTER_LOGS gets a folder that shows why.
func Get(t testing.TB) *Cluster {
	t.Helper()
	c, err := found()
	if reason := (*cannot)(nil); errors.As(err, &reason) {
		t.Skipf("no cluster: %v", reason)
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
