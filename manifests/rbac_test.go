package manifests

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes/scheme"
	netcfg "knative.dev/networking/pkg/config"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler/settings"
)

// rule is a rule of a role as in its file.
type rule struct {
	file    string
	role    string
	comment string
	rbacv1.PolicyRule
}

// rules reads the roles with their comments.
func rules(t *testing.T) []rule {
	t.Helper()
	var all []rule
	for _, file := range []string{"base/activator-rbac.yaml", "base/autoscaler-rbac.yaml", "base/user-rbac.yaml", "components/any-image/rbac.yaml", "components/relay/rbac.yaml", "components/agent/rbac.yaml", "components/agent/accept.yaml", "overlays/dual-pods/rbac.yaml"} {
		for dec := yaml.NewDecoder(strings.NewReader(string(read(t, file)))); ; {
			var doc yaml.Node
			if dec.Decode(&doc) != nil {
				break
			}
			var head struct {
				Kind     string
				Metadata struct{ Name string }
				Rules    []yaml.Node
			}
			if err := doc.Decode(&head); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			for _, n := range head.Rules {
				r := rule{file: file, role: head.Kind + " " + head.Metadata.Name, comment: n.HeadComment}
				raw, err := yaml.Marshal(&n)
				if err != nil {
					t.Fatal(err)
				}
				if err := sigsyaml.UnmarshalStrict(raw, &r.PolicyRule); err != nil {
					t.Fatalf("%s: %v", file, err)
				}
				all = append(all, r)
			}
		}
	}
	if len(all) == 0 {
		t.Fatal("no rules")
	}
	return all
}

// TestEveryVerbHasItsReason checks that the comment above each rule gives a reason for each verb.
func TestEveryVerbHasItsReason(t *testing.T) {
	reason := regexp.MustCompile(`(?m)^# ((?:[a-z]+, )*[a-z]+): \S`)
	for _, r := range rules(t) {
		var explained []string
		for _, m := range reason.FindAllStringSubmatch(r.comment, -1) {
			explained = append(explained, strings.Split(m[1], ", ")...)
		}
		if !slices.Equal(slices.Sorted(slices.Values(explained)), slices.Sorted(slices.Values(r.Verbs))) {
			t.Errorf("%s, %s %v: the comment explains %v, the verbs are %v", r.role, r.APIGroups, r.Resources, explained, r.Verbs)
		}
		for _, list := range [][]string{r.Verbs, r.Resources, r.APIGroups} {
			if slices.Contains(list, "*") {
				t.Errorf("%s: a rule with a star is not minimal", r.role)
			}
		}
		if len(r.ResourceNames) > 0 && slices.Contains(r.Verbs, "create") && r.Resources[0] != "services/proxy" {
			t.Errorf("%s: a create can't be bound to names", r.role)
		}
	}
}

// resources returns the names of resources that Kubernetes and Knative have, as group/resource.
func resources(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	for kind := range scheme.Scheme.AllKnownTypes() {
		plural, _ := meta.UnsafeGuessKindToResource(kind)
		known[plural.Group+"/"+plural.Resource] = true
	}
	for _, folder := range []string{
		filepath.Join(module(t, "knative.dev/serving"), "config/core/300-resources"),
		filepath.Join(module(t, "knative.dev/networking"), "config"),
	} {
		files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%d files in %s, %v", len(files), folder, err)
		}
		for _, f := range files {
			raw, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			var crd apiextensions.CustomResourceDefinition
			if err := sigsyaml.Unmarshal(raw, &crd); err == nil && crd.Kind == "CustomResourceDefinition" {
				known[crd.Spec.Group+"/"+crd.Spec.Names.Plural] = true
			}
		}
	}
	return known
}

// TestRulesNameWhatIsThere finds mistyped groups, resources and names.
func TestRulesNameWhatIsThere(t *testing.T) {
	known := resources(t)
	names := map[string][]string{
		"mutatingwebhookconfigurations": {"rouse-injector"},
		"serviceaccounts":               {"rouse-injector"},

		"secrets":     {"rouse-injector", control.ControlSecret, control.KeysSecret, netcfg.ServingRoutingCertName},
		"services":    {control.AutoscalerName},
		"configmaps":  nil,
		"leases":      {control.AutoscalerName},
		"deployments": {control.ActivatorName},

		"services/proxy": {"http:" + control.AutoscalerName + ":http", "http:" + control.FrontDoorName + ":http"}, // as package kn calls it
	}
	names["configmaps"] = append(settings.ConfigMaps(), control.LearnedConfigMap)
	knative := knativeNames(t)
	knative["secrets/"+netcfg.ServingRoutingCertName] = true // made where system-internal-tls is on
	for _, r := range rules(t) {
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				plain, sub, _ := strings.Cut(resource, "/")
				if !known[group+"/"+plain] {
					t.Errorf("%s: no resource %s in the group %q", r.role, plain, group)
				}
				if !slices.Contains([]string{"", "status", "scale", "finalizers", "proxy", "resize", "restricted"}, sub) {
					t.Errorf("%s: no subresource %s", r.role, sub)
				}
			}
		}
		for _, n := range r.ResourceNames {
			if !slices.Contains(names[r.Resources[0]], n) {
				t.Errorf("%s: the name %s of %s is in no program", r.role, n, r.Resources[0])
			}
			if !strings.Contains(n, "rouse") && !knative[r.Resources[0]+"/"+n] {
				t.Errorf("%s: Knative has no %s/%s", r.role, r.Resources[0], n)
			}
		}
	}
	for resource, want := range names { // the programs' writes must be allowed
		for _, name := range want {
			if !slices.ContainsFunc(rules(t), func(r rule) bool {
				return slices.Contains(r.Resources, resource) && (len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, name))
			}) {
				t.Errorf("no rule allows anything with %s/%s", resource, name)
			}
		}
	}
}

// knativeNames returns the ConfigMaps and Services that Knative Serving installs, as resource/name.
func knativeNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, pattern := range []string{"config/core/configmaps/*.yaml", "config/core/deployments/activator.yaml"} {
		files, err := filepath.Glob(filepath.Join(module(t, "knative.dev/serving"), pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			raw, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			all := decode(t, raw)
			for _, c := range of[*corev1.ConfigMap](all) {
				names["configmaps/"+c.Name] = true
			}
			for _, s := range of[*corev1.Service](all) {
				names["services/"+s.Name] = true
			}
		}
	}
	return names
}

// TestBindings checks that each role is bound, to an account of a Deployment. Roles for people are bound by people.
func TestBindings(t *testing.T) {
	all := rendered(t, "default")
	accounts := map[string]bool{}
	for _, s := range of[*corev1.ServiceAccount](all) {
		accounts[s.Name] = true
	}
	for _, name := range []string{control.ActivatorName, control.AutoscalerName} {
		if got := deployment(t, all, name).Spec.Template.Spec.ServiceAccountName; got != name || !accounts[got] {
			t.Errorf("Deployment %s runs as %q, want its own account", name, got)
		}
	}
	bound := map[string]bool{"ClusterRole/rouse-user": true, "Role/rouse-operator": true, "Role/rouse-key-admin": true}
	check := func(ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
		if bound[ref.Kind+"/"+ref.Name] {
			t.Errorf("%s %s is bound twice, or to more than people", ref.Kind, ref.Name)
		}
		bound[ref.Kind+"/"+ref.Name] = true
		for _, s := range subjects {
			if !accounts[s.Name] || s.Namespace != control.SystemNamespace {
				t.Errorf("%s %s is bound to %s/%s, which is none of ours", ref.Kind, ref.Name, s.Namespace, s.Name)
			}
		}
	}
	for _, b := range of[*rbacv1.RoleBinding](all) {
		check(b.RoleRef, b.Subjects)
	}
	for _, b := range of[*rbacv1.ClusterRoleBinding](all) {
		check(b.RoleRef, b.Subjects)
	}
	for _, r := range of[*rbacv1.Role](all) {
		if !bound["Role/"+r.Name] {
			t.Errorf("the Role %s is bound to nobody", r.Name)
		}
	}
	for _, r := range of[*rbacv1.ClusterRole](all) {
		if !bound["ClusterRole/"+r.Name] {
			t.Errorf("the ClusterRole %s is bound to nobody", r.Name)
		}
	}
}
