package manifests

import (
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
)

// TestStore checks that with the component store there is one activator, which has the volume, ends in time for the
// next one, and uses no more than the volume's size. Components do not change each other's parts, in any order.
func TestStore(t *testing.T) {
	for _, components := range [][]string{{"store"}, {"front", "picker", "store", "traces"}, {"traces", "store", "picker", "front"}} {
		all := rendered(t, "default", components...)
		claims := of[*corev1.PersistentVolumeClaim](all)
		if len(claims) != 1 || claims[0].Name != "rouse-store" || claims[0].Namespace != "knative-serving" {
			t.Fatalf("%v: the claims are %v", components, claims)
		}
		for _, h := range of[*autoscalingv2.HorizontalPodAutoscaler](all) {
			if h.Name == "rouse-activator" && (*h.Spec.MinReplicas != 1 || h.Spec.MaxReplicas != 1) {
				t.Errorf("%v: %d to %d activators, want 1", components, *h.Spec.MinReplicas, h.Spec.MaxReplicas)
			}
		}
		for _, d := range of[*appsv1.Deployment](all) {
			if d.Name == "rouse-activator" {
				storesAlone(t, d, claims[0], strings.Join(components, " "))
			}
		}
	}
}

// storesAlone looks at the activator of such a choice.
func storesAlone(t *testing.T, d *appsv1.Deployment, claim *corev1.PersistentVolumeClaim, with string) {
	t.Helper()
	if d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType || d.Spec.Strategy.RollingUpdate != nil {
		t.Errorf("%s: the strategy is %v: two pods can't have the store", with, d.Spec.Strategy)
	}
	pod := d.Spec.Template.Spec
	c := pod.Containers[0]
	env, seen := map[string]string{}, map[string]int{}
	for _, e := range c.Env {
		env[e.Name] = e.Value
		seen[e.Name]++
	}
	mounted := map[string]string{}
	for _, m := range c.VolumeMounts {
		mounted[m.Name] = m.MountPath
	}
	volumes := map[string]corev1.Volume{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = v
	}
	if v := volumes["store"].PersistentVolumeClaim; v == nil || v.ClaimName != claim.Name || mounted["store"] == "" || mounted["store"] != env["ROUSE_STORE"] {
		t.Errorf("%s: ROUSE_STORE is %q, mounted are %v of %v", with, env["ROUSE_STORE"], mounted, volumes)
	}
	if strings.Contains(with, "front") && (volumes["clusters"].Secret == nil || mounted["clusters"] == "") {
		t.Errorf("%s: the front door's volume is not there: %v", with, mounted)
	}
	if strings.Contains(with, "traces") && c.Env[0].Name != "OTEL_EXPORTER_OTLP_ENDPOINT" {
		t.Errorf("%s: the first variable is %s, want that of traces, which overlays change", with, c.Env[0].Name)
	}
	if strings.Contains(with, "picker") && !strings.Contains(strings.Join(c.Args, " "), "--picker-address") {
		t.Errorf("%s: the arguments are %v", with, c.Args)
	}
	for name, n := range seen {
		if n > 1 {
			t.Errorf("%s: %s is there %d times", with, name, n)
		}
	}
	propagation, err1 := time.ParseDuration(env["ROUSE_PROPAGATION"])
	drain, err2 := time.ParseDuration(env["ROUSE_DRAIN"])
	if grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second; err1 != nil || err2 != nil || propagation+drain > grace || grace > 2*time.Minute {
		t.Errorf("%s: it ends within %s, and drains for %s and %s", with, grace, propagation, drain)
	}
	size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	most, err := strconv.ParseInt(strings.TrimSuffix(env["ROUSE_STORE_SIZE"], "Gi"), 10, 64)
	if err != nil || most<<30 >= size.Value() {
		t.Errorf("%s: bodies may take %s of %s: records want room too", with, env["ROUSE_STORE_SIZE"], size.String())
	}
}

// TestBucketStore checks that without the component there are several activators, and the Secret rouse-store, if it
// exists, names the bucket that they share. With the component, the volume is the store, and the Secret has no
// effect.
func TestBucketStore(t *testing.T) {
	for _, components := range [][]string{nil, {"store"}} {
		all := rendered(t, "default", components...)
		for _, d := range of[*appsv1.Deployment](all) {
			c := d.Spec.Template.Spec.Containers[0]
			if d.Name != "rouse-activator" {
				if len(c.EnvFrom) != 0 {
					t.Errorf("%s has the store's credentials", d.Name)
				}
				continue
			}
			if len(c.EnvFrom) != 1 || c.EnvFrom[0].SecretRef == nil || c.EnvFrom[0].SecretRef.Name != "rouse-store" || !*c.EnvFrom[0].SecretRef.Optional {
				t.Errorf("the activator's environment is from %+v", c.EnvFrom)
			}
			own := false
			for _, e := range c.Env {
				own = own || e.Name == "ROUSE_STORE"
			}
			if folder := len(components) > 0; own != folder || (d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType) != folder {
				t.Errorf("with %v: ROUSE_STORE is its own: %v, and the strategy %v", components, own, d.Spec.Strategy)
			}
		}
		for _, h := range of[*autoscalingv2.HorizontalPodAutoscaler](all) {
			if h.Name == "rouse-activator" && (h.Spec.MaxReplicas > 1) != (len(components) == 0) {
				t.Errorf("with %v there are up to %d activators", components, h.Spec.MaxReplicas)
			}
		}
	}
}
