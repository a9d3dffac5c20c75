package kn_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// aNode is a node with labels and what its kubelet offers, as YAML's inline maps.
func aNode(name, labels, allocatable string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: %s, labels: {%s}}\nstatus: {allocatable: {%s}}", name, labels, allocatable)
}

// checkable is a cluster in which all is there, but Rouse.
func checkable(t *testing.T) *fakeCluster {
	c := newFakeCluster(t)
	c.put(strings.Join([]string{
		stockKnative,
		aNode("a", `nvidia.com/gpu.memory: "24564"`, `nvidia.com/gpu: "2"`),
		aNode("b", "", `memory: 8Gi`),
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: config-network, namespace: knative-serving}\ndata: {ingress-class: kourier.ingress.networking.knative.dev}",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: config-features, namespace: knative-serving}\ndata: {kubernetes.podspec-persistent-volume-claim: enabled, kubernetes.podspec-runtimeclassname: enabled}",
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: net-kourier-controller, namespace: knative-serving}\nstatus: {availableReplicas: 1}",
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: 3scale-kourier-gateway, namespace: kourier-system}\nstatus: {availableReplicas: 2}",
		"apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: fast, annotations: {storageclass.kubernetes.io/is-default-class: \"true\"}}",
		"apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: nvidia}\nhandler: nvidia",
	}, "\n---\n"))
	return c
}

// checked runs the checks and returns the findings, and the command's error.
func (c *fakeCluster) checked(args ...string) (map[string][3]string, error) {
	c.t.Helper()
	out, err := c.run(append([]string{"check", "-o", "json"}, args...)...)
	var all []struct{ Check, Result, Found, Mend string }
	if wrong := json.Unmarshal([]byte(out), &all); wrong != nil {
		c.t.Fatalf("%v (%v) in\n%s", wrong, err, out)
	}
	found := map[string][3]string{}
	for _, f := range all {
		found[f.Check] = [3]string{f.Result, f.Found, f.Mend}
	}
	return found, err
}

func TestCheck(t *testing.T) {
	c := checkable(t)
	out, err := c.run("check")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := `CHECK           RESULT   FOUND
kubernetes      ok       v1.36.1
knative         ok       Serving 1.24.1
kinds           ok       all of those of N objects
rights          ok       you may install
admission       ok       the cluster would take all N objects
ingress         ok       kourier
features        ok       volumes of memory and persistent ones
gpus            ok       NVIDIA: 2 on a
runtime class   ok       nvidia
storage         ok       the default class is fast
webhook         ok       any-image is not installed: images need the function in them
rouse           ok       not installed; kubectl apply -k manifests/overlays/default, or helm install rouse CHART -n knative-serving
`
	if out = regexp.MustCompile(`\d+ objects`).ReplaceAllString(out, "N objects"); out != want {
		t.Errorf("printed\n%s\nwant\n%s", out, want)
	}
	if got := c.changes(); len(got) > 0 {
		t.Errorf("changed %v", got)
	}
}

// TestCheckInstalled looks at a Rouse that is there, whole and then in parts.
func TestCheckInstalled(t *testing.T) {
	c := checkable(t)
	for _, name := range []string{"rouse-activator", "rouse-autoscaler"} {
		c.put("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: " + name + ", namespace: knative-serving}\nstatus: {availableReplicas: 2}")
	}
	c.put("apiVersion: v1\nkind: Secret\nmetadata: {name: rouse-keys, namespace: knative-serving}\n---\napiVersion: v1\nkind: Service\nmetadata: {name: rouse-autoscaler, namespace: knative-serving}")
	c.put("apiVersion: v1\nkind: Secret\nmetadata: {name: rouse-control, namespace: knative-serving}\ndata: {token: eA==}")
	p, _ := populated(t)
	c.admin = p.admin
	c.put("apiVersion: v1\nkind: Secret\nmetadata: {name: rouse-control, namespace: knative-serving}\ndata: {token: c2VjcmV0LW9mLXRoZS1jbHVzdGVy}")
	found, err := c.checked()
	if err != nil {
		t.Fatalf("%v: %v", err, found)
	}
	for check, words := range map[string]string{"rouse-activator": "2 available", "rouse-autoscaler": "2 available", "leader": "it has 0 GPUs", "keys": "no client has one"} {
		if f := found[check]; !strings.Contains(f[1], words) {
			t.Errorf("%s: found %q, want %q", check, f, words)
		}
	}
	c.admin = nil
	c.take("pods/rouse-autoscaler")
	for _, name := range []string{"rouse-activator", "rouse-autoscaler"} {
		c.put("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: " + name + ", namespace: knative-serving}")
	}
	c.put("apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: knative-serving, labels: {app: rouse-autoscaler}}\nstatus: {containerStatuses: [{state: {waiting: {reason: ImagePullBackOff, message: not found}}}]}")
	found, err = c.checked()
	for check, words := range map[string]string{"rouse-autoscaler": "no pod of it is available; a: ImagePullBackOff not found", "leader": "no autoscaler leads"} {
		if f := found[check]; f[0] != "missing" || !strings.Contains(f[1], words) {
			t.Errorf("%s: found %q, want that %q is missing", check, f, words)
		}
	}
	if f := found["rouse-activator"]; f[1] != "no pod of it is available" { // it has no pod that could say why
		t.Errorf("rouse-activator: found %q", f)
	}
	if err == nil || !strings.Contains(err.Error(), "3 of ") {
		t.Errorf("error %v, want one that counts three", err)
	}
}

func TestCheckFinds(t *testing.T) {
	config := func(name, data string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + ", namespace: knative-serving}\ndata: {" + data + "}"
	}
	for _, tt := range []struct {
		name, check, result, found, mend string
		change                           func(*fakeCluster)
		args                             []string
	}{
		{name: "an old Kubernetes", check: "kubernetes", result: "missing", found: "v1.29.4", mend: "1.30", change: func(c *fakeCluster) { c.version = "v1.29.4" }},
		{name: "one without resizing", check: "kubernetes", result: "warning", found: "v1.31.4-gke.100", mend: "1.33", change: func(c *fakeCluster) { c.version = "v1.31.4-gke.100" }},
		{name: "no Knative", check: "knative", result: "missing", found: "no Knative Serving", mend: "https://knative.dev", change: func(c *fakeCluster) { c.without = []string{"serving.knative.dev"} }},
		{name: "another Knative", check: "knative", result: "missing", found: "0.44.0", mend: "1.24", change: func(c *fakeCluster) { c.put(strings.Replace(stockKnative, "1.24.1", "0.44.0", 1)) }},
		{name: "a near Knative", check: "knative", result: "warning", found: "1.23.0", change: func(c *fakeCluster) { c.put(strings.Replace(stockKnative, "1.24.1", "1.23.0", 1)) }},
		{name: "half a Knative", check: "knative", result: "missing", found: "activator-service", mend: "1.24", change: func(c *fakeCluster) { c.take("services/activator-service") }},
		{name: "no PodMonitor", check: "kinds", result: "missing", found: "PodMonitor (monitoring.coreos.com/v1)", mend: "leave their component out", args: []string{"--component", "monitoring"}},
		{name: "no rights", check: "rights", result: "missing", found: "2 that installing needs", mend: "kubectl auth can-i create clusterroles",
			change: func(c *fakeCluster) {
				c.deny = func(verb, resource, _ string) bool {
					return verb == "create" && strings.HasPrefix(resource, "clusterrole")
				}
			}},
		{name: "admission", check: "admission", result: "missing", found: "objects would be refused", mend: "no latest tags",
			change: func(c *fakeCluster) {
				c.refuse = func(kind, _ string) string {
					if kind == "Deployment" {
						return "no latest tags"
					}
					return ""
				}
			}},
		{name: "no ingress", check: "ingress", result: "missing", found: "kourier, and there is no Deployment kourier-system/3scale-kourier-gateway", mend: "install it", change: func(c *fakeCluster) { c.take("kourier-gateway") }},
		{name: "an ingress that is down", check: "ingress", result: "missing", found: "no pod that is available", mend: "kubectl describe deployment",
			change: func(c *fakeCluster) {
				c.put("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: net-kourier-controller, namespace: knative-serving}")
			}},
		{name: "Knative's usual ingress", check: "ingress", result: "missing", found: "istio", mend: "install it", change: func(c *fakeCluster) { c.put(config("config-network", "")) }},
		{name: "an ingress of somebody's", check: "ingress", result: "ok", found: "mini.ingress.networking.knative.dev", change: func(c *fakeCluster) {
			c.put(config("config-network", "ingress-class: mini.ingress.networking.knative.dev"))
		}},
		{name: "switches", check: "features", result: "warning", found: "/dev/shm", mend: "config-features", change: func(c *fakeCluster) {
			c.put(config("config-features", "kubernetes.podspec-volumes-emptydir: disabled"))
		}},
		{name: "no GPU", check: "gpus", result: "warning", found: "no node of 1", mend: "CPUs", change: func(c *fakeCluster) { c.take("nodes/a") }},
		{name: "a GPU without a plugin", check: "device plugin", result: "missing", found: "b has a GPU of NVIDIA", mend: "nvidia-device-plugin",
			change: func(c *fakeCluster) { c.put(aNode("b", `feature.node.kubernetes.io/pci-10de.present: "true"`, "")) }},
		{name: "AMD's without a plugin", check: "device plugin", result: "missing", found: "b has a GPU of AMD", mend: "rocm",
			change: func(c *fakeCluster) { c.put(aNode("b", `feature.node.kubernetes.io/pci-1002.present: "true"`, "")) }},
		{name: "Intel's", check: "gpus", result: "ok", found: "Intel: 3 on b", change: func(c *fakeCluster) { c.put(aNode("b", "", `gpu.intel.com/xe: "3"`)) }},
		{name: "no memory known", check: "gpu memory", result: "warning", found: "unknown for b", mend: "rouse.dev/gpu-memory=24Gi", change: func(c *fakeCluster) { c.put(aNode("b", "", `nvidia.com/gpu: "1"`)) }},
		{name: "no sharing", check: "time slicing", result: "warning", found: "more than once", mend: "rouse-time-slicing", args: []string{"--overlay", "time-slicing"}},
		{name: "sharing", check: "time slicing", result: "ok", found: "a offers each GPU 8 times", args: []string{"--overlay", "time-slicing"},
			change: func(c *fakeCluster) {
				c.put(aNode("a", `nvidia.com/gpu.memory: "24564", nvidia.com/gpu.replicas: "8"`, `nvidia.com/gpu: "16"`))
			}},
		{name: "no runtime class", check: "runtime class", result: "ok", found: "their default", change: func(c *fakeCluster) { c.take("runtimeclasses") }},
		{name: "a runtime class that nobody may name", check: "runtime class", result: "warning", found: "lets no Service name it", mend: "podspec-runtimeclassname", change: func(c *fakeCluster) { c.take("config-features") }},
		{name: "no storage", check: "storage", result: "warning", found: "no StorageClass", mend: "fetched anew", change: func(c *fakeCluster) { c.take("storageclasses") }},
		{name: "no right to look", check: "gpus", result: "unknown", found: "you may not list nodes", mend: "kubectl auth can-i list nodes", change: func(c *fakeCluster) {
			c.deny = func(verb, resource, _ string) bool { return verb == "list" && resource == "nodes" }
		}},
		{name: "a webhook without a server", check: "webhook", result: "missing", found: "no injector is available", mend: "kubectl delete mutatingwebhookconfiguration",
			change: func(c *fakeCluster) {
				c.put("apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration\nmetadata: {name: rouse-injector}\nwebhooks: [{name: x, rules: [{operations: [CREATE]}]}]")
			}},
		{name: "a webhook without rules", check: "webhook", result: "missing", found: "no rules", mend: "kubectl logs",
			change: func(c *fakeCluster) {
				c.put("apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration\nmetadata: {name: rouse-injector}\nwebhooks: [{name: x}]")
				c.put("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: rouse-injector, namespace: knative-serving}\nstatus: {availableReplicas: 1}")
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := checkable(t)
			if tt.change != nil {
				tt.change(c)
			}
			found, err := c.checked(tt.args...)
			f := found[tt.check]
			if f[0] != tt.result || !strings.Contains(f[1], tt.found) || !strings.Contains(f[2], tt.mend) || (tt.mend == "") != (f[2] == "") {
				t.Errorf("%s: found %q, want %s, %q and to mend it %q", tt.check, f, tt.result, tt.found, tt.mend)
			}
			if (err != nil) != (tt.result == "missing") {
				t.Errorf("error %v with the result %s", err, tt.result)
			}
			if got := c.changes(); len(got) > 0 {
				t.Errorf("changed %v", got)
			}
		})
	}
	c := checkable(t)
	c.kubeconfigOf("http://127.0.0.1:1")
	c.fails([]string{"ask the cluster for its version"}, "check")
	checkable(t).fails([]string{`no overlay "x"`}, "check", "--overlay", "x")
}
