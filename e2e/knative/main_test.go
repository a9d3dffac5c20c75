package knative

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rouse-dev/rouse/e2e/cluster"
)

// root is the project's folder.
const root = "../.."

// TestMain leaves it to [parallel] how many tests run at once.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "1000"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// rouse is the cluster with Rouse in it. A test that asks for it is skipped, with
// the reason, where this machine has no cluster.
func rouse(t *testing.T) *cluster.Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: no cluster")
	}
	c := cluster.Get(t) // skips
	once.Do(func() { installed = setUp(context.Background(), c) })
	if installed != nil {
		t.Fatalf("install Rouse: %v", installed)
	}
	return c
}

// once guards installed, which says how the installation went.
var (
	once      sync.Once
	installed error
)

// envInstalled says that the cluster has this checkout's images, and Rouse, already.
const envInstalled = "ROUSE_E2E_INSTALLED"

// setUp loads the images, installs Rouse, gives the front door a host, and the namespace of the
// tests the right to ask for more than others.
func setUp(ctx context.Context, c *cluster.Cluster) error {
	if out, err := c.Kubectl(ctx, "annotate", "namespace", "default", "rouse.dev/max-priority=10", "rouse.dev/max-min-scale=10", "--overwrite"); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	if os.Getenv(envInstalled) != "" {
		return addPlugin(ctx, c)
	}
	if err := loadImages(ctx, c); err != nil {
		return err
	}
	if err := addPlugin(ctx, c); err != nil {
		return err
	}
	if err := install(ctx, c); err != nil {
		return err
	}
	for _, step := range [][]string{
		{"apply", "-f", filepath.Join(root, "manifests/examples/routes/domain-mapping.yaml")},
		{"-n", "knative-serving", "wait", "domainmapping/" + frontHost, "--for=condition=Ready", "--timeout=180s"},
	} {
		if out, err := c.Kubectl(ctx, step...); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	return nil
}

// install is the README's command, but for what [hurried] changes. Where Rouse is installed already its pods are
// replaced, for the images may be others by the same name.
func install(ctx context.Context, c *cluster.Cluster) error {
	if out, err := c.Kubectl(ctx, "-n", "knative-serving", "get", "deployments", "-l", "app.kubernetes.io/part-of=rouse", "-o", "name"); err == nil && strings.TrimSpace(out) != "" {
		if out, err := c.Kubectl(ctx, "-n", "knative-serving", "rollout", "restart", "deployment", "-l", "app.kubernetes.io/part-of=rouse"); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	if err := apply(ctx, c, "default"); err != nil {
		return err
	}
	for _, step := range [][]string{
		{"scale", "deployment/rouse-activator", "--replicas=2"}, // as the HorizontalPodAutoscaler does, which looks every 15 s
		{"wait", "deployment/rouse-activator", "--for=jsonpath={.status.readyReplicas}=2"},
		{"rollout", "status", "deployment/rouse-activator"}, {"rollout", "status", "deployment/rouse-autoscaler"},
	} {
		if out, err := c.Kubectl(ctx, append(step, "-n", "knative-serving", "--timeout=180s")...); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	return letIn(ctx, c)
}

// letIn allows clients without a key, as most tests use none: a cluster is closed until there is a key.
func letIn(ctx context.Context, c *cluster.Cluster) error {
	if out, err := c.Kn(ctx, "rouse", "keys", "create", "anonymous"); err != nil && !strings.Contains(err.Error()+out, "there is a key anonymous already") {
		return fmt.Errorf("let clients in that show no key: %w: %s", err, out)
	}
	return nil
}

// hurried is an overlay for a small node. Its activators end sooner than elsewhere, since the ingress here learns of it
// at once. Its pods are seen to be ready at once and request little CPU, so that most of it is left to the tests.
const hurried = `resources: [%s]
images:
  - {name: dev.local/rouse-activator, newTag: %[2]s}
  - {name: dev.local/rouse-autoscaler, newTag: %[2]s}
patches:
  - target: {kind: Deployment}
    patch: |
      - {op: replace, path: /spec/template/spec/containers/0/resources/requests/cpu, value: 10m}
      - {op: replace, path: /spec/template/spec/containers/0/readinessProbe/periodSeconds, value: 1}
  - target: {kind: Deployment, name: rouse-activator}
    patch: |
      - {op: add, path: /spec/template/spec/containers/0/env/-, value: {name: ROUSE_PROPAGATION, value: 10s}}
`

// overlays is held by who applies an overlay, for as long as no other may take its place.
var overlays sync.Mutex

// apply applies one of the overlays.
func apply(ctx context.Context, c *cluster.Cluster, overlay string) error {
	return kustomized(ctx, c, "apply", root, overlay, "v1")
}

// kustomized applies or deletes an overlay of a checkout, with images of a tag.
func kustomized(ctx context.Context, c *cluster.Cluster, verb, checkout, overlay, tag string) error {
	dir, err := os.MkdirTemp("", "overlay-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path, err := filepath.Abs(filepath.Join(checkout, "manifests/overlays", overlay))
	if err != nil {
		return err
	}
	if path, err = filepath.Rel(dir, path); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), fmt.Appendf(nil, hurried, path, tag), 0o600); err != nil {
		return err
	}
	if out, err := c.Kubectl(ctx, append(strings.Fields(verb), "-k", dir)...); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// addPlugin builds kn-rouse beside kn.
func addPlugin(ctx context.Context, c *cluster.Cluster) error {
	out, err := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(c.Bin, "kn-rouse"), root+"/cmd/kn-rouse").CombinedOutput()
	if err != nil {
		return fmt.Errorf("build kn-rouse: %w: %s", err, out)
	}
	return nil
}

// frontDoor asks through the Service of the front door.
func frontDoor(t *testing.T, c *cluster.Cluster, path string, body any) (answer, error) {
	t.Helper()
	return call(t.Context(), c, frontHost, path, body)
}

// frontHost is the host that the DomainMapping of the tests gives to the front door.
const frontHost = "models." + domain

// TestPluginIsFound looks for the plugin the way that users see it.
func TestPluginIsFound(t *testing.T) {
	parallel(t)
	c := rouse(t)
	out, err := c.Kn(t.Context(), "plugin", "list")
	if err != nil || !strings.Contains(out, "kn-rouse") {
		t.Errorf("kn plugin list: %v: %s", err, out)
	}
}

// envHelm names Helm's program.
const envHelm = "ROUSE_HELM"

// TestInstallAndUninstallDisturbNobody takes Rouse away and installs it again under
// a load on stock functions, by kubectl alone and by Helm alone: none of their requests fails, nothing stays, and stock functions are started from zero.
func TestInstallAndUninstallDisturbNobody(t *testing.T) {
	c := rouse(t)
	t.Cleanup(func() {
		if err := install(context.Background(), c); err != nil {
			t.Error(err)
		}
	})
	// An earlier test may have applied this overlay, which has all of the default one.
	remove := func() error { return kustomized(t.Context(), c, "delete --ignore-not-found", root, "dual-pods", "v1") }
	t.Run("kubectl", func(t *testing.T) {
		disturbsNobody(t, "kubectl", remove, func() error { return install(t.Context(), c) })
	})
	t.Run("helm", func(t *testing.T) {
		program := os.Getenv(envHelm)
		if program == "" {
			t.Skip(envHelm + " does not name Helm's program")
		}
		chart := filepath.Join(t.TempDir(), "rouse")
		if out, err := exec.CommandContext(t.Context(), "go", "run", root+"/cmd/internal/chart", "-o", chart).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		helm := func(args ...string) error {
			cmd := exec.CommandContext(t.Context(), program, append(args, "-n", "knative-serving")...)
			cmd.Env = c.Env()
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("helm %s: %w: %s", strings.Join(args, " "), err, out)
			}
			return nil
		}
		put := func() error {
			if err := helm("install", "rouse", chart, "--wait", "--timeout", "180s", "--set", "registry=dev.local,tag=v1,overlay=dev"); err != nil {
				return err
			}
			return letIn(t.Context(), c)
		}
		if err := remove(); err != nil {
			t.Fatal(err)
		}
		if err := put(); err != nil {
			t.Fatal(err)
		}
		disturbsNobody(t, "helm", func() error { return helm("uninstall", "rouse") }, put)
		if err := helm("uninstall", "rouse"); err != nil {
			t.Fatal(err)
		}
	})
}

// disturbsNobody removes an installed Rouse and installs it again, under load.
func disturbsNobody(t *testing.T, by string, remove, put func() error) {
	t.Helper()
	c := rouse(t)
	hello := create(t, "undisturbed-"+by, helloImage, []string{"autoscaling.knative.dev/target-burst-capacity=-1"})
	zero := create(t, "stock-at-zero-"+by, helloImage, []string{"autoscaling.knative.dev/window=6s"})
	answers := func(ctx context.Context, f *function) error {
		a, err := call(ctx, c, f.host(), "/", nil)
		if err == nil && a.status != http.StatusOK {
			err = fmt.Errorf("%s: status %d: %s", f.name, a.status, a.body)
		}
		return err
	}
	l := underLoad(t, 4, func(ctx context.Context, _ int64) error { return answers(ctx, hello) })
	l.goOn(t, 100)
	zero.hasPods(0)
	if err := remove(); err != nil {
		t.Fatal(err)
	}
	if err := answers(t.Context(), zero); err != nil {
		t.Errorf("Rouse was deleted, and a stock function at zero does not answer: %v", err)
	}
	l.goOn(t, 100)
	eventually(t, "what is left of Rouse", func() string { // pods end, and Kubernetes deletes what hangs on what was deleted
		left, err := c.Kubectl(t.Context(), "get", "deployment,replicaset,service,hpa,configmap,secret,sa,role,rolebinding,clusterrole,clusterrolebinding,validatingadmissionpolicy,validatingadmissionpolicybinding,networkpolicy,pdb", "-A", "-l", "app.kubernetes.io/part-of=rouse", "-o", "name")
		if err != nil {
			return err.Error()
		}
		lease, err := c.Kubectl(t.Context(), "-n", "knative-serving", "get", "lease/rouse-autoscaler", "-o", "name", "--ignore-not-found")
		if err != nil {
			return err.Error()
		}
		return strings.TrimSpace(left + lease)
	})
	if selected, err := c.Kubectl(t.Context(), "-n", "knative-serving", "get", "service/activator-service", "-o", "jsonpath={.spec.selector}"); err != nil || strings.Contains(selected, "rouse") {
		t.Errorf("activator-service selects %s (%v)", selected, err)
	}
	zero.hasPods(0)
	if err := answers(t.Context(), zero); err != nil {
		t.Errorf("without Rouse a stock function at zero does not answer: %v", err)
	}
	if err := put(); err != nil {
		t.Fatal(err)
	}
	l.goOn(t, 100)
	for _, failure := range l.end() {
		t.Error(failure)
	}
	f := create(t, "after-install-"+by, functionImage, lasting)
	f.ask("red blue")
	closed(t, f)
}
