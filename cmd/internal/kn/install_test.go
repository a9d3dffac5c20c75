package kn_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/cmd/internal/kn"
)

const activatorService = "/api/v1/namespaces/knative-serving/services/activator-service"

// stockKnative is what Knative Serving has that Rouse looks at.
const stockKnative = `apiVersion: apps/v1
kind: Deployment
metadata: {name: activator, namespace: knative-serving, labels: {app.kubernetes.io/version: 1.24.1}}
---
apiVersion: v1
kind: Pod
metadata: {name: activator-1, namespace: knative-serving, labels: {app: activator}}
status: {podIP: 10.0.0.1, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: v1
kind: Service
metadata: {name: activator-service, namespace: knative-serving}
spec: {selector: {app: activator}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: config-autoscaler, namespace: knative-serving}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: config-deployment, namespace: knative-serving}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: config-defaults, namespace: knative-serving}`

// run runs a command of the plugin.
func (c *fakeCluster) run(args ...string) (string, error) {
	var out bytes.Buffer
	err := kn.Execute(c.t.Context(), append(args, "--kubeconfig", c.kubeconfig), &out, &out)
	return out.String(), err
}

// fails runs a command that must fail with an error that has the words.
func (c *fakeCluster) fails(words []string, args ...string) {
	c.t.Helper()
	out, err := c.run(args...)
	if err == nil {
		c.t.Fatalf("kn rouse %s succeeded, want an error; it printed:\n%s", strings.Join(args, " "), out)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			c.t.Errorf("kn rouse %s: error %q, want %q in it", strings.Join(args, " "), err, w)
		}
	}
}

// works makes the cluster do what controllers and the autoscaler would do at once.
func (c *fakeCluster) works() {
	c.changed = func(verb, path string) {
		name := path[strings.LastIndex(path, "/")+1:]
		if !strings.Contains(path, "/deployments/rouse-") {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		pod := "/api/v1/namespaces/knative-serving/pods/" + name + "-1"
		if verb == "delete" {
			delete(c.objects, pod)
			return
		}
		if nested(c.objects[path], "metadata", "annotations", "rouse.dev/take-over") != "" {
			return
		}
		c.objects[path]["status"] = map[string]any{"replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}
		c.objects[pod] = map[string]any{"apiVersion": "v1", "kind": "Pod",
			"metadata": map[string]any{"name": name + "-1", "namespace": "knative-serving", "labels": map[string]any{"app": name}},
			"status":   map[string]any{"podIP": "10.0.0.2"}}
		c.objects[activatorService] = merge(c.objects[activatorService], map[string]any{
			"metadata": map[string]any{"annotations": map[string]any{"rouse.dev/before": `{"app":{"was":"activator","set":"rouse-activator"}}`}},
			"spec":     map[string]any{"selector": map[string]any{"app": "rouse-activator"}}})
	}
}

func TestInstallAndUninstall(t *testing.T) {
	c := newFakeCluster(t)
	c.put(stockKnative)
	c.put(`apiVersion: v1
kind: ConfigMap
metadata: {name: rouse-old, namespace: knative-serving, labels: {app.kubernetes.io/part-of: rouse}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: tiny-00001-deployment, namespace: default, labels: {app.kubernetes.io/part-of: rouse}, ownerReferences: [{name: tiny-00001}]}`)
	c.works()
	out, err := c.run("install", "--registry", "registry.example/me", "--tag", "v7")
	if err != nil {
		t.Fatalf("install: %v\n%s", err, out)
	}
	for _, want := range []string{
		"Knative Serving 1.24.1 is there", "applied Deployment knative-serving/rouse-activator",
		"deleted ConfigMap knative-serving/rouse-old: this version has none",
		"Deployment knative-serving/rouse-autoscaler: 2 of", "Service activator-service points at Rouse's activator", "Rouse is installed",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("install printed no %q:\n%s", want, out)
		}
	}
	log := c.changes()
	if at := func(s string) int { return slices.Index(log, s) }; at("patch serviceaccounts/rouse-activator") < 0 ||
		at("patch serviceaccounts/rouse-activator") > at("patch clusterrolebindings/rouse-activator") ||
		at("patch clusterrolebindings/rouse-activator") > at("patch deployments/rouse-activator") {
		t.Errorf("applied in the order\n%s\nwant accounts, then roles, then Deployments", strings.Join(log, "\n"))
	}
	pod := c.object("/apis/apps/v1/namespaces/knative-serving/deployments/rouse-activator")
	containers := pod["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)["containers"].([]any)
	if got, want := containers[0].(map[string]any)["image"], "registry.example/me/rouse-activator:v7"; got != want {
		t.Errorf("image %v, want %s", got, want)
	}

	c.put("apiVersion: v1\nkind: Secret\nmetadata: {name: rouse-control, namespace: knative-serving}")
	c.put(`apiVersion: v1
kind: Pod
metadata: {name: tiny-00001-provider-1, namespace: default, labels: {rouse.dev/provider: tiny-00001}, finalizers: [rouse.dev/dual-pods], annotations: {rouse.dev/bound-to: tiny-00001-x}}
---
apiVersion: v1
kind: Pod
metadata: {name: tiny-00001-x, namespace: default, labels: {serving.knative.dev/revision: tiny-00001}, finalizers: [other/one, rouse.dev/dual-pods], annotations: {rouse.dev/bound-to: tiny-00001-provider-1}}
---
apiVersion: v1
kind: Pod
metadata: {name: plain-00001-x, namespace: default, labels: {serving.knative.dev/revision: plain-00001}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: tiny-00001-rouse, namespace: default, labels: {app.kubernetes.io/part-of: rouse, app.kubernetes.io/managed-by: rouse-autoscaler}, ownerReferences: [{kind: Revision, name: tiny-00001}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: of-the-user, namespace: default, labels: {app.kubernetes.io/part-of: rouse}, ownerReferences: [{kind: Service, name: tiny}]}`)
	before := len(c.changes())
	if out, err = c.run("uninstall", "--grace", "0s", "--timeout", "5s"); err != nil {
		t.Fatalf("uninstall: %v\n%s", err, out)
	}
	if c.object("/api/v1/namespaces/default/pods/tiny-00001-provider-1") != nil {
		t.Error("a provider is left, which nobody ends any more")
	}
	if got := fmt.Sprint(c.object("/api/v1/namespaces/default/pods/tiny-00001-x")["metadata"].(map[string]any)["finalizers"]); got != "[other/one]" {
		t.Errorf("the requester has the finalizers %s, want another's only", got)
	}
	if c.object("/apis/networking.k8s.io/v1/namespaces/default/networkpolicies/tiny-00001-rouse") != nil {
		t.Error("a NetworkPolicy is left that keeps Knative from the pods of a function")
	}
	if c.object("/apis/networking.k8s.io/v1/namespaces/default/networkpolicies/of-the-user") == nil {
		t.Error("a NetworkPolicy of one's own was deleted")
	}
	if c.object("/api/v1/namespaces/default/pods/plain-00001-x") == nil {
		t.Error("a pod of one's own was deleted")
	}
	log = c.changes()[before:]
	wanted := []string{"patch deployments/rouse-autoscaler", "patch services/activator-service", "delete deployments/rouse-activator", "delete deployments/rouse-autoscaler"}
	if diff := cmp.Diff(wanted, log[:4]); diff != "" {
		t.Errorf("uninstall began otherwise (-want +got):\n%s", diff)
	}
	rest := strings.Join(log[4:], "\n")
	if !strings.Contains(rest, "delete secrets/rouse-control") || strings.Index(rest, "delete services/rouse") > strings.Index(rest, "delete clusterroles/rouse-autoscaler") {
		t.Errorf("uninstall went on with\n%s\nwant the token too, and rights after what needs them", rest)
	}
	if got := nested(c.object(activatorService), "spec", "selector", "app"); got != "activator" {
		t.Errorf("activator-service selects %s, want activator", got)
	}
	for path := range c.objects {
		if strings.Contains(path, "rouse") {
			t.Errorf("%s is left", path)
		}
	}
	if c.object("/apis/apps/v1/namespaces/default/deployments/tiny-00001-deployment") == nil {
		t.Error("a Deployment that Knative owns was deleted for its label")
	}
	if out, err = c.run("uninstall", "--timeout", "5s"); err != nil || !strings.Contains(out, "nothing to remove") {
		t.Errorf("uninstall again: %v, %q, want that there was nothing to remove", err, out)
	}
}

// TestUninstallAfterDelete is what `kubectl delete -k` leaves: the selector still points at pods that are gone.
func TestUninstallAfterDelete(t *testing.T) {
	c := newFakeCluster(t)
	c.put(stockKnative)
	c.works()
	if out, err := c.run("install"); err != nil {
		t.Fatalf("install: %v\n%s", err, out)
	}
	c.take("rouse")
	out, err := c.run("uninstall", "--timeout", "5s", "--grace", "0s")
	if err != nil || !strings.Contains(out, "the cluster is stock Knative again") {
		t.Fatalf("uninstall: %v\n%s", err, out)
	}
	if got := nested(c.object(activatorService), "spec", "selector", "app"); got != "activator" {
		t.Errorf("activator-service selects %s, want activator", got)
	}
}

func TestUninstallRefuses(t *testing.T) {
	c := newFakeCluster(t)
	c.put(stockKnative)
	c.works()
	if out, err := c.run("install"); err != nil {
		t.Fatalf("install: %v\n%s", err, out)
	}
	before := len(c.changes())
	c.take("pods/activator-1")
	c.fails([]string{"no pod of Knative's own activator is ready, so nothing was given back", "--timeout 5s"}, "uninstall", "--timeout", "5s", "--grace", "0s")
	if got := nested(c.object(activatorService), "spec", "selector", "app"); got != "rouse-activator" {
		t.Errorf("activator-service selects %s though nobody else can serve, want rouse-activator", got)
	}
	c.put(stockKnative)
	c.put(`apiVersion: v1
kind: Service
metadata: {name: activator-service, namespace: knative-serving}
spec: {selector: {app: rouse-activator}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: tiny-00001-x, namespace: default, labels: {kubernetes.io/service-name: tiny-00001}}
endpoints: [{addresses: [10.0.0.2]}]`)
	c.fails([]string{"Service default/tiny-00001 still sends requests to Rouse's activator"}, "uninstall", "--timeout", "5s")
	if slices.Contains(c.changes()[before:], "delete deployments/rouse-activator") {
		t.Error("the activator was deleted while requests went there")
	}
	c.take("endpointslices")
	c.put(tiny)
	c.fails([]string{"there are 1 functions:\n  default/tiny\n", "not woken", "--force"}, "uninstall")
	c.deny = func(verb, resource, _ string) bool { return verb == "delete" && resource == "clusterroles" }
	c.fails([]string{"you may not remove Rouse", "kubectl auth can-i delete clusterroles.rbac.authorization.k8s.io"}, "uninstall", "--force")
	c.deny = nil
	if out, err := c.run("uninstall", "--force", "--grace", "0s"); err != nil || !strings.Contains(out, "default/tiny") {
		t.Errorf("uninstall --force: %v\n%s", err, out)
	}
}

func TestInstallRefuses(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*fakeCluster)
		args   []string
		want   []string
	}{
		{"no Knative", func(c *fakeCluster) { c.without = []string{"serving.knative.dev"} }, nil,
			[]string{"no Knative Serving", "https://knative.dev/docs/install/"}},
		{"half a Knative", func(c *fakeCluster) { c.take("deployments/activator") }, nil,
			[]string{"no Deployment activator"}},
		{"another Knative", func(c *fakeCluster) { c.put(strings.Replace(stockKnative, "1.24.1", "v1.17.0", 1)) }, nil,
			[]string{"Knative Serving v1.17.0", "built for 1.24", "--any-knative"}},
		{"an old Knative", func(c *fakeCluster) { c.put(strings.Replace(stockKnative, "1.24.1", "0.44.0", 1)) }, nil,
			[]string{"Knative Serving 0.44.0"}},
		{"no rights", func(c *fakeCluster) {
			c.deny = func(verb, resource, _ string) bool { return verb == "create" && resource == "clusterroles" }
		}, nil, []string{"you may not install Rouse", "kubectl auth can-i create clusterroles.rbac.authorization.k8s.io"}},
		{"admission", func(c *fakeCluster) {
			c.refuse = func(kind, name string) string {
				if kind == "Deployment" {
					return "admission webhook \"policy.example\" denied the request: no latest tags"
				}
				return ""
			}
		}, nil, []string{"nothing was changed", "apply Deployment knative-serving/rouse-activator", "no latest tags"}},
		{"no such overlay", nil, []string{"--overlay", "defaults"}, []string{`no overlay "defaults"`, "default"}},
		{"a kind that is not there", nil, []string{"--component", "monitoring"}, []string{"no kind PodMonitor", "install what defines it"}},
		{"no images", func(c *fakeCluster) {
			c.changed = func(_, path string) {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.objects["/api/v1/namespaces/knative-serving/pods/a"] = map[string]any{"apiVersion": "v1", "kind": "Pod",
					"metadata": map[string]any{"name": "a", "namespace": "knative-serving", "labels": map[string]any{"app": "rouse-activator"}},
					"status": map[string]any{"containerStatuses": []any{map[string]any{"state": map[string]any{
						"waiting": map[string]any{"reason": "ImagePullBackOff", "message": "not found"}}}}}}
			}
		}, []string{"--timeout", "5s"}, []string{"not done within --timeout 5s", "a: ImagePullBackOff not found", "--registry"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newFakeCluster(t)
			c.put(stockKnative)
			if tt.change != nil {
				tt.change(c)
			}
			c.fails(tt.want, append([]string{"install"}, tt.args...)...)
			if got := c.changes(); len(got) > 0 && tt.name != "no images" {
				t.Errorf("changed %v, want nothing", got)
			}
		})
	}
}

// TestReleaseInstallsItself: the images of a release are those of its own version, unless the person says others.
func TestReleaseInstallsItself(t *testing.T) {
	kn.Registry, kn.Version = "ghcr.io/rouse-dev", "v9.8.7"
	defer func() { kn.Registry, kn.Version = "", "" }()
	c := newFakeCluster(t)
	for args, want := range map[string]string{"": "ghcr.io/rouse-dev/rouse-autoscaler:v9.8.7", "--registry registry.example": "registry.example/rouse-autoscaler:v9.8.7", "--tag v3": "ghcr.io/rouse-dev/rouse-autoscaler:v3"} {
		out, err := c.run(append([]string{"install", "--dry-run"}, strings.Fields(args)...)...)
		if err != nil || !strings.Contains(out, "image: "+want+"\n") || strings.Contains(out, "dev.local") {
			t.Errorf("install %s: %v; want the image %s, and none of dev.local, in\n%s", args, err, want, out)
		}
	}
}

func TestInstallPrintsOnly(t *testing.T) {
	c := newFakeCluster(t)
	out, err := c.run("install", "--dry-run", "--tag", "v3")
	if err != nil || !strings.Contains(out, "image: dev.local/rouse-autoscaler:v3") || len(c.changes()) > 0 {
		t.Errorf("dry run: %v, changes %v, printed\n%s", err, c.changes(), out)
	}
}
