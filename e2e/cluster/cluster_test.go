package cluster

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// namespace makes a namespace that goes with the test. Its pods take their time to
// go, so each has a name of its own.
func namespace(t *testing.T, c *Cluster) string {
	t.Helper()
	name := "harness-" + strings.ToLower(rand.Text()[:6])
	if _, err := c.Kubectl(t.Context(), "create", "namespace", name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := c.Kubectl(context.Background(), "delete", "namespace", name, "--wait=false"); err != nil {
			t.Error(err)
		}
	})
	return name
}

// get asks the ingress for a function's answer.
func get(ctx context.Context, c *Cluster, host string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.IngressURL, nil)
	if err != nil {
		return "", err
	}
	req.Host = host
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return string(body), err
}

func TestCluster(t *testing.T) {
	c := Get(t)
	ctx := t.Context()
	t.Run("is what is pinned", func(t *testing.T) {
		if out, err := c.Kubectl(ctx, "version"); err != nil || strings.Count(out, kubernetesVersion) != 2 {
			t.Errorf("kubectl version: got %q, %v; want client and server %s", out, err, kubernetesVersion)
		}
		if out, err := c.Kn(ctx, "version"); err != nil || !strings.Contains(out, knVersion) {
			t.Errorf("kn version: got %q, %v; want %s", out, err, knVersion)
		}
	})
	t.Run("runs a stock function", func(t *testing.T) {
		in := namespace(t, c)
		if _, err := c.Kn(ctx, "service", "create", "hello", "--wait-timeout", "60", "-n", in, "--image", HelloImage); err != nil {
			t.Fatal(err)
		}
		got, err := get(ctx, c, "hello."+in+"."+Domain)
		if err != nil || !strings.HasPrefix(got, "hello from hello-00001-deployment-") {
			t.Errorf("got %q, %v; want an answer of revision 1", got, err)
		}
	})
	t.Run("shows devices", func(t *testing.T) { // other tests may use them, and change how many there are
		out, err := c.Kubectl(ctx, "get", "node", NodeName, "-o", `jsonpath={.metadata.labels.nvidia\.com/gpu\.count} {.status.capacity.nvidia\.com/gpu}`)
		var devices, offered int
		if n, _ := fmt.Sscan(out, &devices, &offered); err != nil || n != 2 || devices < 1 || offered < devices {
			t.Errorf("devices by label and by capacity: got %q, %v", out, err)
		}
	})
	t.Run("runs commands inside the node", func(t *testing.T) {
		cmd := c.Exec(ctx, "ip", "-o", "addr", "show", "eth0")
		if out, err := output(cmd); err != nil || !strings.Contains(out, NodeIP) {
			t.Errorf("got %q, %v; want the node's address", out, err)
		}
	})
	t.Run("starts again what ends by itself", func(t *testing.T) { restarts(t, c) })
	t.Run("stops and starts the kubelet", func(t *testing.T) {
		if err := c.StopKubelet(ctx); err != nil {
			t.Fatal(err)
		}
		stopped := service(t, c, "kubelet")
		if err := c.StartKubelet(ctx); err != nil {
			t.Fatal(err)
		}
		started := service(t, c, "kubelet")
		if !stopped.Stopped || stopped.PID != 0 || started.Stopped || started.PID == 0 || started.Restarts != stopped.Restarts {
			t.Errorf("got %+v, then %+v", stopped, started)
		}
		if err := c.super.stop(ctx, "nobody"); err == nil || !strings.Contains(err.Error(), "there are etcd, containerd") {
			t.Errorf("an unknown service: got %v, want what there is", err)
		}
	})
	t.Run("collects logs", func(t *testing.T) {
		dir := t.TempDir()
		if err := c.Collect(ctx, dir); err != nil {
			t.Fatal(err)
		}
		for file, want := range map[string]string{
			"pods.txt": "activator-", "nodes.yaml": "nvidia.com/gpu", "events.txt": "LAST SEEN", "node/kubelet.log": "kubelet",
		} {
			if body, err := os.ReadFile(filepath.Join(dir, file)); err != nil || !strings.Contains(string(body), want) {
				t.Errorf("%s: got %.200q, %v; want %q in it", file, body, err, want)
			}
		}
		if logs, err := filepath.Glob(filepath.Join(dir, "node/pods/knative-serving_controller-*/controller/*.log")); err != nil || len(logs) == 0 {
			t.Errorf("the controller's log is missing: %v", err)
		}
	})
	t.Run("refuses an image that is none", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "image.tar")
		if err := os.WriteFile(file, []byte("no archive"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := c.Load(ctx, file); err == nil || !strings.Contains(err.Error(), "load "+file) {
			t.Errorf("got %v, want an error that names the file", err)
		}
	})
}

// restarts kills a service from inside the node and waits for it.
func restarts(t *testing.T, c *Cluster) {
	before := service(t, c, "fakegpu")
	cmd := c.Exec(t.Context(), "kill", "-9", fmt.Sprint(before.PID))
	if _, err := output(cmd); err != nil {
		t.Fatal(err)
	}
	if err := until(t.Context(), 10*time.Second, func() error {
		after := service(t, c, "fakegpu")
		if after.PID == 0 || after.PID == before.PID || after.Restarts != before.Restarts+1 || after.Last != "killed by killed" {
			return fmt.Errorf("got %+v after %+v", after, before)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func service(t *testing.T, c *Cluster, name string) ServiceStatus {
	t.Helper()
	all, err := c.Services(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no service %s in %+v", name, all)
	return ServiceStatus{}
}

// The programs in build/ are modules of their own, so that `go test ./...` does
// not reach their tests.
func TestOwnPrograms(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "./...")
	cmd.Dir = "build/knative"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
