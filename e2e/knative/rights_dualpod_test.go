package knative

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
)

// podsThatTheAutoscalerMayMake makes a provider's pod again as rouse-autoscaler, and then what
// somebody who has stolen its token would.
func podsThatTheAutoscalerMayMake(t *testing.T) {
	f := dualPods(t, 2, "dual-rights")[0]
	c := f.c
	var from string
	eventually(t, "a requester and its provider", func() string {
		f.mustComplete("a request, for a requester to be there") // it goes when the function sleeps
		n, requester := networkOf(t, c), "serving.knative.dev/service="+f.name
		if !n.has("default", requester) {
			return "there is no requester"
		}
		from = f.providers()[0]
		provider := n.pod("default", "rouse.dev/provider")
		n.fencedOff(provider)
		if !n.reaches(n.pod("default", requester), provider, 8080) {
			t.Error("a requester does not reach its provider")
		}
		return ""
	})
	for _, name := range []string{"rights-strong", "rights-meant"} {
		if out, err := c.Kubectl(t.Context(), "create", "serviceaccount", name); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		t.Cleanup(func() { _, _ = c.Kubectl(context.Background(), "delete", "serviceaccount", name) })
	}
	if out, err := c.Kubectl(t.Context(), "label", "serviceaccount", "rights-meant", "rouse.dev/functions=allowed"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	raw, err := c.Kubectl(t.Context(), "get", "pod", from, "-o", "json")
	if err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	// made is the provider's pod as it was made, changed.
	made := func(change func(pod, meta, spec, container map[string]any)) map[string]any {
		var have struct {
			Metadata map[string]any `json:"metadata"`
			Spec     map[string]any `json:"spec"`
		}
		if err := json.Unmarshal([]byte(raw), &have); err != nil {
			t.Fatal(err)
		}
		meta, spec := map[string]any{"name": "rights-provider"}, have.Spec
		for _, key := range []string{"namespace", "labels", "annotations", "ownerReferences"} {
			meta[key] = have.Metadata[key]
		}
		delete(spec, "nodeName")
		delete(spec, "priority")
		pod := map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
		change(pod, meta, spec, spec["containers"].([]any)[0].(map[string]any))
		return pod
	}
	if out, err := asAutoscaler(t, c, "create", "--dry-run=server", "-f", object(t, made(func(_, _, _, _ map[string]any) {}))); err != nil {
		t.Fatalf("the same pod again: %v: %s", err, out)
	}
	type at = map[string]any
	for why, change := range map[string]func(pod, meta, spec, container map[string]any){
		"denied request":              func(_, meta, _, _ at) { meta["namespace"] = "kube-system" },
		"of Knative revisions only":   func(_, meta, _, _ at) { delete(meta, "ownerReferences") },
		"labelled rouse.dev/provider": func(_, meta, _, _ at) { meta["labels"] = at{"rouse.dev/provider": "other"} },
		"no label of Knative's":       func(_, meta, _, _ at) { meta["labels"].(at)["serving.knative.dev/revision"] = "other" },
		"owner is another":            func(_, meta, _, _ at) { meta["ownerReferences"].([]any)[0].(at)["uid"] = "other" },
		"node's network":              func(_, _, spec, _ at) { spec["hostNetwork"] = true },
		"and processes":               func(_, _, spec, _ at) { spec["hostPID"] = true },
		"no rights on their node":     func(_, _, _, container at) { container["securityContext"] = at{"privileged": true} },
		"provider's volumes": func(_, _, spec, _ at) {
			spec["volumes"] = append(spec["volumes"].([]any), at{"name": "v", "hostPath": at{"path": "/"}})
		},
		"own priority classes":    func(_, _, spec, _ at) { spec["priorityClassName"] = "system-node-critical" },
		"placed by the scheduler": func(_, _, spec, _ at) { spec["nodeName"] = "other" },
		"claims no device":        func(_, _, _, container at) { container["resources"] = at{"limits": at{"nvidia.com/gpu": "1"}} },
		"containers are those":    func(_, _, _, container at) { container["image"] = "dev.local/other:v1" },
		"the service account of its": func(_, _, spec, _ at) {
			spec["serviceAccountName"], spec["serviceAccount"] = "rights-meant", "rights-meant"
		},
		"is not meant for functions of dual": func(_, meta, spec, _ at) {
			meta["ownerReferences"].([]any)[0].(at)["name"] = "no-such"
			meta["labels"].(at)["rouse.dev/provider"] = "no-such"
			spec["serviceAccountName"], spec["serviceAccount"] = "rights-strong", "rights-strong"
		},
	} {
		refusedTo(t, c, why, "create", "--dry-run=server", "-f", object(t, made(change)))
	}
	refusedTo(t, c, "and no others", "-n", "knative-serving", "delete", "pod", "-l", "app=rouse-activator", "--dry-run=server")
	if out, err := asAutoscaler(t, c, "delete", "pod", from, "--dry-run=server"); err != nil {
		t.Errorf("a provider: %v: %s", err, strings.TrimSpace(out))
	}
	f.rests()
}
