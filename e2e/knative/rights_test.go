package knative

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/e2e/cluster"
)

// asAutoscaler is kubectl with the rights of rouse-autoscaler.
func asAutoscaler(t *testing.T, c *cluster.Cluster, args ...string) (string, error) {
	t.Helper()
	return c.Kubectl(t.Context(), append([]string{"--as", "system:serviceaccount:knative-serving:rouse-autoscaler"}, args...)...)
}

// refusedTo checks that the API server refuses kubectl's command, and says why.
func refusedTo(t *testing.T, c *cluster.Cluster, why string, args ...string) {
	t.Helper()
	out, err := asAutoscaler(t, c, args...)
	if err == nil || !strings.Contains(out+err.Error(), why) {
		t.Errorf("kubectl %s: got %v: %s; want a refusal with %q", strings.Join(args, " "), err, out, why)
	}
}

// rightsOfTheAutoscaler does with its service account what it has to do, and then what
// somebody who has stolen its token would.
func rightsOfTheAutoscaler(t *testing.T) {
	c := rouse(t)
	ours := create(t, "rights-ours", functionImage, lasting)
	ours.ask("red blue") // it has a pod now
	pod := "pod/" + ours.pods()[0].Metadata.Name
	deployment := "deployment/" + ours.name + "-00001-deployment"
	if out, err := c.Kubectl(t.Context(), "create", "deployment", "rights-other", "--image", helloImage, "--replicas=1"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { _, _ = c.Kubectl(context.Background(), "delete", "deployment", "rights-other") })
	eventually(t, "a pod that is no function", func() string {
		if len(pods(t, c, "app=rights-other", "default")) == 0 {
			return "there is none"
		}
		return ""
	})
	activator := "pod/" + pods(t, c, "app=rouse-activator", "knative-serving")[0].Metadata.Name
	for _, args := range [][]string{
		{"annotate", pod, "controller.kubernetes.io/pod-deletion-cost=-1"},
		{"annotate", pod, "controller.kubernetes.io/pod-deletion-cost-"},
		{"scale", deployment, "--replicas=1"},
		{"patch", pod, "--subresource=resize", "-p", resizeTo("queue-proxy", "requests", "cpu", "24m")},
		{"delete", pod, "--dry-run=server"},
		{"-n", "knative-serving", "label", "pod", "-l", "app=rouse-autoscaler,rouse.dev/leader=true", "rouse.dev/leader=true", "--overwrite"},
	} {
		if out, err := asAutoscaler(t, c, args...); err != nil {
			t.Errorf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	refusedTo(t, c, "is no function", "annotate", "pod", "-l", "app=rights-other", "controller.kubernetes.io/pod-deletion-cost=-1")
	refusedTo(t, c, "is no function", "-n", "knative-serving", "annotate", "pod", "-l", "app=rouse-activator", "controller.kubernetes.io/pod-deletion-cost=-1")
	refusedTo(t, c, "is no function", "-n", "knative-serving", "patch", activator, "--subresource=resize", "-p", resizeTo("activator", "requests", "cpu", "1m"))
	refusedTo(t, c, "and no limit", "patch", pod, "--subresource=resize", "-p", resizeTo("user-container", "limits", "memory", "8Gi"))
	refusedTo(t, c, "deletes pods of revisions", "delete", "pod", "-l", "app=rights-other")
	refusedTo(t, c, "deletes pods of revisions", "-n", "knative-serving", "delete", activator)
	refusedTo(t, c, "may change no label", "-n", "knative-serving", "label", "pod", "-l", "app=rouse-autoscaler", "app=x", "--overwrite")
	refusedTo(t, c, "may change no annotation", "annotate", pod, "sidecar.istio.io/inject=true")
	refusedTo(t, c, "may change no label", "label", pod, "serving.knative.dev/revision-", "app=x", "--overwrite")
	refusedTo(t, c, "may not change what a pod is", "patch", pod, "--type=json", "-p", `[{"op":"replace","path":"/spec/containers/0/image","value":"evil"}]`)
	refusedTo(t, c, "may not change whose", "patch", pod, "--type=json", "-p", `[{"op":"remove","path":"/metadata/ownerReferences"}]`)
	refusedTo(t, c, "may change no finalizer", "patch", pod, "--type=merge", "-p", `{"metadata":{"finalizers":["a/b"]}}`)
	for _, name := range []string{"rouse-activator", "activator", "controller"} {
		refusedTo(t, c, "is no Knative revision", "-n", "knative-serving", "scale", "deployment/"+name, "--replicas=0")
	}
	refusedTo(t, c, "is no Knative revision", "scale", "deployment/rights-other", "--replicas=1")
	refusedTo(t, c, "and no other", "-n", "knative-serving", "create", "secret", "generic", "stolen")
	refusedTo(t, c, "and no other", "-n", "knative-serving", "create", "-f", object(t, map[string]any{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": map[string]any{"name": "of-others", "namespace": "knative-serving"}}))
	rightsOverKnative(t, c, ours)
	for who, refused := range map[string][][]string{
		"rouse-autoscaler": {{"get", "secrets"}, {"create", "secrets"}, {"get", "secrets", "-n", "knative-serving"}, {"list", "secrets", "-n", "knative-serving"},
			{"update", "secret/routing-serving-certs", "-n", "knative-serving"}, {"get", "secret/other", "-n", "knative-serving"}, {"patch", "deployments"}, {"create", "rolebindings"}},
		"rouse-activator": {{"get", "secrets"}, {"list", "secrets", "-n", "knative-serving"}, {"get", "secret/other", "-n", "knative-serving"}, {"patch", "pods"}, {"patch", "deployments/scale"}},
	} {
		for _, args := range refused {
			// It exits with 1 where the answer is no.
			if out, _ := c.Kubectl(t.Context(), append([]string{"auth", "can-i", "--as", "system:serviceaccount:knative-serving:" + who}, args...)...); strings.TrimSpace(lastLine(out)) != "no" {
				t.Errorf("may %s %s? %s, want no", who, strings.Join(args, " "), out)
			}
		}
	}
	ours.ask("red blue")
}

// rightsOverKnative does what the autoscaler does to Knative's own objects, and what would change others.
func rightsOverKnative(t *testing.T, c *cluster.Cluster, ours *function) {
	t.Helper()
	for name, annotations := range map[string]map[string]any{"rights-stock": {}, "rights-bare": {"rouse.dev/inject": "false"}} {
		if out, err := c.Kubectl(t.Context(), "apply", "-f", object(t, map[string]any{
			"apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": map[string]any{"name": name},
			"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{"annotations": annotations},
				"spec": map[string]any{"containers": []any{map[string]any{"image": helloImage}}}}}})); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		t.Cleanup(func() { _, _ = c.Kubectl(context.Background(), "delete", "ksvc", name, "--wait=false") })
	}
	eventually(t, "the Service of a stock function's revision", func() string {
		if out, err := c.Kubectl(t.Context(), "get", "service/rights-stock-00001", "endpoints/rights-stock-00001", "service/rights-bare-00001", "-o", "name"); err != nil {
			return fmt.Sprintf("%v: %s", err, out)
		}
		return ""
	})
	const serving = "knative-serving"
	system := func(name, part, key string, value any) string { // an object of Knative's with another value
		return changed(t, c, name, func(o map[string]any) {
			if o[part] == nil {
				o[part] = map[string]any{}
			}
			o[part].(map[string]any)[key] = value
		}, "-n", serving)
	}
	revision, own := "revision/"+ours.name+"-00001", "service/"+ours.name+"-00001"
	// A revision of the cluster's default class, if that is ours, names none.
	bare := []string{"patch", "revision/rights-bare-00001", "--subresource=status", "--type=json", "-p", `[{"op":"add","path":"/status/conditions/-","value":{"type":"ModelNames","status":"False","severity":"Info","lastTransitionTime":"2026-01-01T00:00:00Z"}}]`}
	for _, args := range [][]string{
		bare,
		{"replace", "-f", system("cm/config-defaults", "data", "max-revision-timeout-seconds", "3600")},
		{"replace", "-f", changed(t, c, own, func(map[string]any) {})},
		{"replace", "-f", changed(t, c, "endpoints/"+ours.name+"-00001", func(map[string]any) {})},
		{"replace", "-f", system("service/activator-service", "metadata", "annotations", map[string]any{})},
		{"patch", revision, "--subresource=status", "--type=json", "-p", `[{"op":"add","path":"/status/conditions/-","value":{"type":"ModelNames","status":"False","severity":"Info","lastTransitionTime":"2026-01-01T00:00:00Z"}}]`},
	} {
		if out, err := asAutoscaler(t, c, args...); err != nil {
			t.Errorf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	refusedTo(t, c, "may not change that of the ConfigMap", "replace", "-f", system("cm/config-deployment", "data", "queue-sidecar-image", "evil"))
	refusedTo(t, c, "may not change that of the ConfigMap", "replace", "-f", system("cm/config-defaults", "data", "max-revision-timeout-seconds", "1"))
	refusedTo(t, c, "may not change that of the ConfigMap", "replace", "-f", system("cm/config-autoscaler", "data", "enable-scale-to-zero", "false"))
	refusedTo(t, c, "may change no metadata", "replace", "-f", system("cm/config-defaults", "metadata", "labels", map[string]any{"a": "b"}))
	for _, kind := range []string{"service", "endpoints"} {
		refusedTo(t, c, "is no function", "replace", "-f", changed(t, c, kind+"/rights-stock-00001", func(o map[string]any) { o["metadata"].(map[string]any)["labels"] = map[string]any{"a": "b"} }))
		refusedTo(t, c, "that a PodAutoscaler of the same name owns", "replace", "-f", changed(t, c, kind+"/"+ours.name+"-00001", func(o map[string]any) { delete(o["metadata"].(map[string]any), "ownerReferences") }))
	}
	refusedTo(t, c, "without a selector", "replace", "-f", changed(t, c, own, func(o map[string]any) { o["spec"].(map[string]any)["selector"] = map[string]any{"app": "other"} }))
	refusedTo(t, c, "deletes no Service", "delete", own)
	refusedTo(t, c, "is no function", "delete", "service/rights-stock-00001-private")
	refusedTo(t, c, "is no function", "delete", "sks/rights-stock-00001")
	refusedTo(t, c, "leads activator-service back", "replace", "-f", system("service/activator-service", "spec", "selector", map[string]any{"app": "rouse-activator"}))
	refusedTo(t, c, "leads activator-service back", "replace", "-f", system("service/activator-service", "spec", "externalIPs", []any{"10.0.0.1"}))
	refusedTo(t, c, "changes no status", "patch", revision, "--subresource=status", "--type=merge", "-p", `{"status":{"logUrl":"http://evil"}}`)
	refusedTo(t, c, "is no function", "patch", "revision/rights-stock-00001", "--subresource=status", "--type=merge", "-p", `{"status":{"conditions":[]}}`)
	refusedTo(t, c, "changes no status", "patch", "ksvc/"+ours.name, "--subresource=status", "--type=merge", "-p", `{"status":{"url":"http://evil"}}`)
	if out, err := c.Kubectl(t.Context(), "-n", serving, "get", "cm/config-deployment", "-o", "jsonpath={.data.queue-sidecar-image}"); err != nil || strings.Contains(out, "evil") {
		t.Errorf("the sidecar's image is %s, %v", out, err)
	}
}

// changed is a file with an object of the cluster as change leaves it.
func changed(t *testing.T, c *cluster.Cluster, name string, change func(map[string]any), in ...string) string {
	t.Helper()
	out, err := c.Kubectl(t.Context(), append([]string{"get", name, "-o", "json"}, in...)...)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var o map[string]any
	if err := json.Unmarshal([]byte(out), &o); err != nil {
		t.Fatal(err)
	}
	change(o)
	return object(t, o)
}

// resizeTo is a patch of a container's resources.
func resizeTo(container, what, name, amount string) string {
	return fmt.Sprintf(`{"spec":{"containers":[{"name":%q,"resources":{%q:{%q:%q}}}]}}`, container, what, name, amount)
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

// object writes an object to a file for kubectl.
func object(t *testing.T, o map[string]any) string {
	t.Helper()
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "object.json")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestLimitsOfANamespace declares functions that ask for more than their namespace may, before and
// after who runs the cluster allows it.
func TestLimitsOfANamespace(t *testing.T) {
	parallel(t)
	c := rouse(t)
	const namespace = "rights-limits"
	if out, err := c.Kubectl(t.Context(), "create", "namespace", namespace); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { _, _ = c.Kubectl(context.Background(), "delete", "namespace", namespace, "--wait=false") })
	declare := func(name string, annotations map[string]string) (string, error) {
		annotations["autoscaling.knative.dev/class"] = cmp.Or(annotations["autoscaling.knative.dev/class"], "gpu.autoscaling.rouse.dev")
		return c.Kubectl(t.Context(), "apply", "-f", object(t, map[string]any{
			"apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": map[string]any{"name": name, "namespace": namespace},
			"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{"annotations": annotations},
				"spec": map[string]any{"containers": []any{map[string]any{"image": functionImage}}}}}}))
	}
	with := func(more ...string) map[string]string {
		m := map[string]string{"autoscaling.knative.dev/initial-scale": "0"}
		for k := 0; k+1 < len(more); k += 2 {
			m[more[k]] = more[k+1]
		}
		return m
	}
	for _, bad := range [][]string{
		{"rouse.dev/priority", "1"}, {"rouse.dev/priority", "+1"}, {"rouse.dev/priority", "99999999999999999999"}, {"rouse.dev/priority", "much"},
		{"autoscaling.knative.dev/min-scale", "11"}, {"autoscaling.knative.dev/minScale", "11"}, {"autoscaling.knative.dev/initial-scale", "11"}, {"autoscaling.knative.dev/activation-scale", "11"},
	} {
		if out, err := declare("greedy", with(bad...)); err == nil || !strings.Contains(out+err.Error(), "annotation "+bad[0]+": want") || !strings.Contains(out+err.Error(), "kubectl annotate namespace "+namespace) {
			t.Errorf("%v: got %v: %s; want a refusal that says who may allow it", bad, err, out)
		}
	}
	for k, good := range [][]string{
		{"rouse.dev/priority", "-5"}, {"autoscaling.knative.dev/min-scale", "0"},
		{"autoscaling.knative.dev/class", "kpa.autoscaling.knative.dev", "autoscaling.knative.dev/max-scale", "3"}, // a stock function is nobody's business
	} {
		if out, err := declare(fmt.Sprint("modest-", k), with(good...)); err != nil {
			t.Errorf("%v: %v: %s", good, err, out)
		}
	}
	if out, err := c.Kubectl(t.Context(), "annotate", "namespace", namespace, "rouse.dev/max-priority=7", "rouse.dev/max-min-scale=0"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := declare("allowed", with("rouse.dev/priority", "7")); err != nil {
		t.Errorf("priority 7: %v: %s", err, out)
	}
	if out, err := declare("greedy", with("rouse.dev/priority", "8")); err == nil {
		t.Errorf("priority 8 of 7 is taken: %s", out)
	}
	if out, err := declare("greedy", with("autoscaling.knative.dev/min-scale", "1")); err == nil {
		t.Errorf("min-scale 1 of 0 is taken: %s", out)
	}
}
