package manifests

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	admission "k8s.io/api/admissionregistration/v1"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler/settings"
)

// TestPolicies checks that each policy is bound, denies, and uses existing names. Its decisions are tested in a
// cluster (e2e/knative).
func TestPolicies(t *testing.T) {
	all := rendered(t, "dual-pods", Components()...)
	bindings := of[*admission.ValidatingAdmissionPolicyBinding](all)
	for _, p := range of[*admission.ValidatingAdmissionPolicy](all) {
		k := slices.IndexFunc(bindings, func(b *admission.ValidatingAdmissionPolicyBinding) bool { return b.Spec.PolicyName == p.Name })
		if k < 0 || !slices.Equal(bindings[k].Spec.ValidationActions, []admission.ValidationAction{admission.Deny}) {
			t.Errorf("%s is not bound to deny", p.Name)
		}
		if p.Spec.FailurePolicy == nil || *p.Spec.FailurePolicy != admission.Fail {
			t.Errorf("%s lets pass what it can't judge", p.Name)
		}
		if (p.Spec.ParamKind != nil) != (k >= 0 && bindings[k].Spec.ParamRef != nil) {
			t.Errorf("%s and its binding disagree on parameters", p.Name)
		}
		for _, c := range p.Spec.MatchConditions {
			user := "system:serviceaccount:" + control.SystemNamespace + ":"
			if c.Expression != "request.userInfo.username == '"+user+control.AutoscalerName+"'" && c.Expression != "request.userInfo.username == '"+user+"rouse-relay'" {
				t.Errorf("%s: the condition %q names no account of ours", p.Name, c.Expression)
			}
		}
		if strings.HasPrefix(p.Name, control.AutoscalerName) && len(p.Spec.MatchConditions) != 1 {
			t.Errorf("%s is asked about everybody's requests", p.Name)
		}
	}
	k := slices.IndexFunc(bindings, func(b *admission.ValidatingAdmissionPolicyBinding) bool { return b.Name == "rouse-autoscaler-settings" })
	if k < 0 {
		t.Fatal("nothing holds the autoscaler to the settings that it makes")
	}
	for _, p := range of[*admission.ValidatingAdmissionPolicy](all) {
		if p.Name != bindings[k].Spec.PolicyName {
			continue
		}
		sets, removes := p.Spec.Variables[0].Expression, p.Spec.Variables[1].Expression
		for _, s := range settings.Settings {
			if !strings.Contains(sets, fmt.Sprintf("'%s': {'%s': '%s'}", s.ConfigMap, s.Key, s.Value)) || !strings.Contains(removes, fmt.Sprintf("'%s': ['%s']", s.ConfigMap, s.Key)) {
				t.Errorf("%s does not let the autoscaler set %s of %s to %s, and remove it", p.Name, s.Key, s.ConfigMap, s.Value)
			}
		}
		if n := strings.Count(sets, "': '"); n != len(settings.Settings) {
			t.Errorf("%s lets the autoscaler set %d keys, want %d", p.Name, n, len(settings.Settings))
		}
		for _, name := range settings.ConfigMaps() {
			if !strings.Contains(removes, "'"+name+"': [") {
				t.Errorf("%s does not let the autoscaler give %s back", p.Name, name)
			}
		}
	}
	limits := string(read(t, "base/limits.yaml"))
	for _, key := range []string{"rouse.dev/priority", "autoscaling.knative.dev/min-scale", "autoscaling.knative.dev/activation-scale", "autoscaling.knative.dev/class", "gpu.autoscaling.rouse.dev"} {
		if !strings.Contains(limits, "'"+key+"'") {
			t.Errorf("the limits say nothing of %s", key)
		}
	}
}
