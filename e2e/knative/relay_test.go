package knative

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/e2e/cluster"
)

// brain is another vendor's autoscaler, on this machine. It publishes replica counts as the Workload Variant Autoscaler
// does.
type brain struct {
	url string

	mu   sync.Mutex // guards what follows
	says map[string]string
}

// newBrain listens where the pods of the cluster reach this machine.
func newBrain(t *testing.T, c *cluster.Cluster) *brain {
	t.Helper()
	b := &brain{says: map[string]string{}}
	address, _ := serveNode(t, c, b)
	b.url = "http://" + address + "/metrics"
	return b
}

func (b *brain) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fmt.Fprintln(w, "# TYPE wva_desired_replicas gauge")
	for name, value := range b.says {
		fmt.Fprintf(w, "wva_desired_replicas{variant_name=%q,exported_namespace=%q,accelerator_type=\"A100\"} %s\n", name, relayed, value)
	}
}

// say changes what a variant should have; "": nothing is said of it.
func (b *brain) say(variant, replicas string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.says[variant] = replicas; replicas == "" {
		delete(b.says, variant)
	}
}

// relayed is the namespace of what the relay scales here.
const relayed = "rouse-relayed"

// relayOverlay is an overlay as users write it, to have the relay with targets of their own.
const relayOverlay = `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
components: [%s]
patches: [{path: targets.yaml}]
`

const relayTargets = `apiVersion: v1
kind: ConfigMap
metadata: {name: rouse-relay, namespace: knative-serving}
data:
  relay.yaml: |
    metric: wva_desired_replicas
    sources: [%q]
    lifetime: 10s
    targets:
      - {labels: {variant_name: pods-*}, kind: deployment}
      - {labels: {variant_name: set-*}, kind: statefulset, max: 2}
      - {labels: {variant_name: fn-*}, kind: service}
      - {labels: {variant_name: stock-*}, kind: service}
`

// runRelay applies the component with targets that a brain knows, and takes it away at the end.
func runRelay(t *testing.T, c *cluster.Cluster, b *brain) {
	t.Helper()
	dir := t.TempDir()
	component, err := filepath.Abs(filepath.Join(root, "manifests/components/relay"))
	if err != nil {
		t.Fatal(err)
	}
	if component, err = filepath.Rel(dir, component); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"kustomization.yaml": fmt.Sprintf(relayOverlay, component), "targets.yaml": fmt.Sprintf(relayTargets, b.url)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kubectl(t, c, "apply", "-k", dir)
	t.Cleanup(func() { kubectl(t, c, "delete", "-k", dir, "--ignore-not-found", "--wait=false") })
	kubectl(t, c, "-n", "knative-serving", "rollout", "status", "deployment/rouse-relay", "--timeout=180s")
}

// kubectl runs kubectl and wants it to work, at the end of a test too.
func kubectl(t *testing.T, c *cluster.Cluster, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), within+time.Minute)
	defer cancel()
	out, err := c.Kubectl(ctx, args...)
	if err != nil {
		t.Errorf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

// TestRelay has a brain scale a Deployment, a StatefulSet, a function of Rouse and a stock revision, by nothing but its
// metric.
func TestRelay(t *testing.T) {
	parallel(t)
	c := rouse(t)
	if out, err := c.Kubectl(t.Context(), "create", "namespace", relayed); err != nil && !strings.Contains(err.Error()+out, "AlreadyExists") {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { kubectl(t, c, "delete", "namespace", relayed, "--wait=false", "--ignore-not-found") })
	for kind, name := range map[string]string{"Deployment": "pods-a", "StatefulSet": "set-a"} {
		workload(t, c, kind, name)
	}
	f := createIn(t, relayed, "fn-a", functionImage, quick, "--scale-max", "3")
	stock := createIn(t, relayed, "stock-a", helloImage, []string{"autoscaling.knative.dev/window=6s"})
	b := newBrain(t, c)
	runRelay(t, c, b)
	if out, err := c.Kubectl(t.Context(), "--as", "system:serviceaccount:knative-serving:rouse-relay", "-n", "knative-serving",
		"patch", "deployment", "controller", "--subresource=scale", "--type=merge", "-p", `{"spec":{"replicas":1}}`); err == nil || !strings.Contains(out+err.Error(), "rouse-relay scales nothing") {
		t.Errorf("the relay's account scales what is Knative's own: %v: %s", err, out)
	}

	replicas := func(kind, name string) string {
		return kubectl(t, c, "-n", relayed, "get", kind, name, "-o", "jsonpath={.spec.replicas}")
	}
	scaled := func(kind, name, want string) {
		t.Helper()
		eventually(t, kind+" "+name, func() string {
			if got := replicas(kind, name); got != want {
				return fmt.Sprintf("%s replicas, want %s", got, want)
			}
			return ""
		})
	}
	awake := func(n int) {
		t.Helper()
		eventually(t, f.name, func() string {
			got := len(slices.DeleteFunc(f.states(), func(s string) bool { return s != "awake" }))
			if got != n {
				return fmt.Sprintf("%d awake, want %d", got, n)
			}
			return ""
		})
	}

	// 1. Each kind gets its number; the StatefulSet no more than its rule allows.
	b.say("pods-a", "3")
	b.say("set-a", "5")
	b.say("fn-a", "2")
	b.say("stock-a", "2")
	began := time.Now()
	scaled("deployment", "pods-a", "3")
	t.Logf("the Deployment followed within %v", time.Since(began).Round(10*time.Millisecond))
	scaled("statefulset", "set-a", "2")
	scaled("deployment", "stock-a-00001-deployment", "2")
	awake(2)
	stock.hasPods(2)

	//  2. Other writers are overruled; an invalid number changes nothing.
	kubectl(t, c, "-n", relayed, "scale", "deployment/pods-a", "--replicas", "1")
	scaled("deployment", "pods-a", "3")
	b.say("pods-a", "NaN")
	b.say("set-a", "0")
	scaled("statefulset", "set-a", "0")
	if got := replicas("deployment", "pods-a"); got != "3" {
		t.Errorf("NaN made %s replicas of 3", got)
	}

	// 3. The function says why; its own idle time of 4 s did not put it to sleep.
	time.Sleep(8 * time.Second)
	awake(2)
	why, err := c.Kn(t.Context(), "rouse", "why", f.name, "-n", relayed)
	if err != nil || !strings.Contains(why, "the relay wants 2 until") {
		t.Errorf("kn rouse why: %v: %s", err, why)
	}

	// 4. A brain that is silent leaves nothing behind in Rouse, and all else as it is.
	b.say("fn-a", "")
	b.say("pods-a", "")
	awake(0)
	if got := replicas("deployment", "pods-a"); got != "3" {
		t.Errorf("a silent brain made %s replicas of 3", got)
	}
	f.ask("red blue")
}

// workload makes a Deployment or StatefulSet with one pod that does nothing.
func workload(t *testing.T, c *cluster.Cluster, kind, name string) {
	t.Helper()
	labels := map[string]string{"app": name}
	raw, err := json.Marshal(map[string]any{
		"apiVersion": "apps/v1", "kind": kind, "metadata": map[string]string{"name": name, "namespace": relayed},
		"spec": map[string]any{"replicas": 1, "serviceName": name, "selector": map[string]any{"matchLabels": labels}, "template": map[string]any{
			"metadata": map[string]any{"labels": labels},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": helloImage, "imagePullPolicy": "IfNotPresent"}}, "terminationGracePeriodSeconds": 1},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if kind == "Deployment" {
		raw = []byte(strings.Replace(string(raw), fmt.Sprintf(`"serviceName":%q,`, name), "", 1))
	}
	path := filepath.Join(t.TempDir(), "workload.json")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl(t, c, "apply", "-f", path)
}
