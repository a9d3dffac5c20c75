package knative

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/rouse-dev/rouse/config"
)

// A function's owner may make Knative Services, and not pods with rights on their nodes.
func TestPatchesThatAreRefused(t *testing.T) {
	container := func(inside string) string {
		return `{"spec":{"containers":[{"name":"user-container",` + inside + `}]}}`
	}
	spec := func(inside string) string { return `{"spec":{` + inside + `}}` }
	meta := func(inside string) string { return `{"metadata":{` + inside + `}}` }
	for patch, want := range map[string]string{
		`{`:                     "not read",
		`{"spec":{}} {}`:        "not read",
		`{"kind":"Pod"}`:        `"kind"`,
		`{"status":{}}`:         `"status"`,
		`{"Spec":{}}`:           `"Spec"`,
		`{"spec":{},"spec":{}}`: "duplicate",
		`{"spec":null}`:         "null",
		// who it is
		meta(`"name":"x"`):                                            "metadata.name",
		meta(`"namespace":"kube-system"`):                             "metadata.namespace",
		meta(`"ownerReferences":[]`):                                  "ownerReferences",
		meta(`"finalizers":["x/y"]`):                                  "finalizers",
		meta(`"annotations":{"cdi.k8s.io/all":"nvidia.com/gpu=all"}`): "annotations",
		meta(`"labels":{"serving.knative.dev/revision":"b"}`):         "serving.knative.dev/revision",
		meta(`"labels":{"rouse.dev/provider":"b"}`):                   "rouse.dev/provider",
		meta(`"labels":{"rouse.dev/provider":null}`):                  "null",
		meta(`"labels":{"sidecar.istio.io/inject":"true"}`):           "sidecar.istio.io/inject",
		meta(`"labels":{"a b":"c"}`):                                  "a b",
		meta(`"labels":{"team":"red"},"labels":{"team":"blue"}`):      "duplicate",
		meta(`"$patch":"replace"`):                                    "$patch",
		spec(`"serviceAccountName":"admin"`):                          "serviceAccountName",
		spec(`"serviceAccount":"admin"`):                              "serviceAccount",
		spec(`"automountServiceAccountToken":true`):                   "automountServiceAccountToken",
		// where it runs, and before whom
		spec(`"nodeName":"n2"`):                            "nodeName",
		spec(`"nodeSelector":{"a":"b"}`):                   "nodeSelector",
		spec(`"affinity":{}`):                              "affinity",
		spec(`"tolerations":[{"operator":"Exists"}]`):      "tolerations",
		spec(`"schedulerName":"mine"`):                     "schedulerName",
		spec(`"schedulingGates":[{"name":"a/b"}]`):         "schedulingGates",
		spec(`"priorityClassName":"system-node-critical"`): "priorityClassName",
		spec(`"priority":2000000000`):                      "priority",
		spec(`"preemptionPolicy":"PreemptLowerPriority"`):  "preemptionPolicy",
		spec(`"runtimeClassName":"runc"`):                  "runtimeClassName",
		spec(`"overhead":{"cpu":"1"}`):                     "overhead",
		// its rights on the node
		spec(`"hostNetwork":true`):                                       "hostNetwork",
		spec(`"hostPID":true`):                                           "hostPID",
		spec(`"hostIPC":true`):                                           "hostIPC",
		spec(`"hostUsers":true`):                                         "hostUsers",
		spec(`"hostAliases":[{"ip":"1.2.3.4"}]`):                         "hostAliases",
		spec(`"hostname":"other"`):                                       "hostname",
		spec(`"dnsConfig":{}`):                                           "dnsConfig",
		spec(`"shareProcessNamespace":true`):                             "shareProcessNamespace",
		spec(`"securityContext":{"runAsUser":0}`):                        "securityContext",
		spec(`"restartPolicy":"Always"`):                                 "restartPolicy",
		spec(`"terminationGracePeriodSeconds":86400`):                    "terminationGracePeriodSeconds",
		spec(`"resourceClaims":[{"name":"g"}]`):                          "resourceClaims",
		spec(`"volumes":[{"name":"v","hostPath":{"path":"/"}}]`):         "volumes",
		spec(`"volumes":[{"name":"v","csi":{"driver":"x"}}]`):            "volumes",
		spec(`"volumes":[{"name":"v","nfs":{"server":"x","path":"/"}}]`): "volumes",
		spec(`"initContainers":[{"name":"i","image":"i"}]`):              "initContainers",
		spec(`"ephemeralContainers":[]`):                                 "ephemeralContainers",
		// its containers
		spec(`"containers":[{"name":"other","args":[]}]`):                                     `no container "other"`,
		spec(`"containers":[{"name":"queue-proxy","args":[]}]`):                               `no container "queue-proxy"`,
		spec(`"containers":[{"args":["x"]}]`):                                                 "without a name",
		spec(`"containers":[{"name":"user-container"},{"name":"user-container"}]`):            "twice",
		spec(`"$setElementOrder/containers":[]`):                                              "$setElementOrder",
		container(`"$patch":"delete"`):                                                        "$patch",
		container(`"image":"mine"`):                                                           "image",
		container(`"command":["sh"]`):                                                         "command",
		container(`"securityContext":{"privileged":true}`):                                    "securityContext",
		container(`"ports":[{"containerPort":1,"hostPort":1}]`):                               "ports",
		container(`"volumeMounts":[]`):                                                        "volumeMounts",
		container(`"volumeDevices":[]`):                                                       "volumeDevices",
		container(`"lifecycle":{}`):                                                           "lifecycle",
		container(`"readinessProbe":{}`):                                                      "readinessProbe",
		container(`"envFrom":[{"secretRef":{"name":"s"}}]`):                                   "envFrom",
		container(`"resources":{"limits":{"nvidia.com/gpu":"1"}}`):                            "nvidia.com/gpu",
		container(`"resources":{"requests":{"hugepages-2Mi":"1Gi"}}`):                         "hugepages-2Mi",
		container(`"resources":{"requests":{"memory":"-1"}}`):                                 "less than nothing",
		container(`"resources":{"requests":{"memory":"much"}}`):                               "not read",
		container(`"resources":{"claims":[{"name":"g"}]}`):                                    "claims",
		container(`"env":[{"name":"A","valueFrom":{"secretKeyRef":{"name":"s","key":"k"}}}]`): "valueFrom",
		container(`"env":[{"name":"A"}]`):                                                     "a name and a value",
		container(`"env":[{"name":"A","value":"1"},{"name":"A","value":"2"}]`):                "twice",
		container(`"env":[{"name":"NVIDIA_VISIBLE_DEVICES","value":"all"}]`):                  "NVIDIA_VISIBLE_DEVICES",
		container(`"env":[{"name":"nvidia_visible_devices","value":"all"}]`):                  "nvidia_visible_devices",
		container(`"env":[{"name":"NVIDIA_IMEX_CHANNELS","value":"0"}]`):                      "NVIDIA_IMEX_CHANNELS",
		container(`"env":[{"name":"AMD_VISIBLE_DEVICES","value":"all"}]`):                     "AMD_VISIBLE_DEVICES",
		container(`"env":[{"name":"ROUSE_ROLE","value":"instance"}]`):                         "ROUSE_ROLE",
		container(`"env":[{"name":"K_REVISION","value":"b"}]`):                                "K_REVISION",
		container(`"env":[{"name":"POD_NAMESPACE","value":"b"}]`):                             "POD_NAMESPACE",
	} {
		p := place
		p.Patch = patch
		if _, err := Derive(requesterPod(), p); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), config.AnnotationProviderPatch) {
			t.Errorf("%s: got %v, want an error that names %s and the annotation", patch, err, want)
		}
	}
}

// TestPatchesThatAreTaken: what a patch may change is all that it changes.
func TestPatchesThatAreTaken(t *testing.T) {
	derive := func(patch string) *corev1.Pod {
		t.Helper()
		p := place
		p.Patch = patch
		if err := CheckPatch(patch); err != nil {
			t.Fatalf("%s: %v", patch, err)
		}
		o, err := Derive(requesterPod(), p)
		if err != nil {
			t.Fatalf("%s: %v", patch, err)
		}
		return o
	}
	plain := derive("")
	if !reflect.DeepEqual(plain, derive(`{}`)) {
		t.Error("an empty patch changes the pod")
	}
	got := derive(`{"metadata":{"labels":{"team":"red"}},"spec":{"containers":[{"name":"user-container","args":["--x"],
		"env":[{"name":"MORE","value":""},{"name":"K","value":"1"}],
		"resources":{"requests":{"cpu":"2","memory":"16Gi"},"limits":{"memory":"24Gi","ephemeral-storage":"1Gi"}}}]}}`)
	c := &got.Spec.Containers[0]
	if got.Labels["team"] != "red" || !slices.Equal(c.Args, []string{"--x"}) || value(c.Env, "K") != "1" ||
		!slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "MORE" }) ||
		c.Resources.Requests.Memory().String() != "16Gi" || c.Resources.Limits.Memory().String() != "24Gi" || c.Resources.Requests.Cpu().String() != "2" {
		t.Errorf("labels %v, container %+v", got.Labels, c)
	}
	delete(got.Labels, "team")
	had := plain.Spec.Containers[0]
	c.Args, c.Env, c.Resources = had.Args, had.Env, had.Resources
	if !reflect.DeepEqual(plain, got) {
		t.Errorf("it changes more than it says:\n%+v\n%+v", plain, got)
	}
}

// FuzzPatch: whatever a patch says, nothing of the pod changes but what may.
func FuzzPatch(f *testing.F) {
	f.Add(`{"spec":{"containers":[{"name":"user-container","args":["--x"],"env":[{"name":"MORE","value":"1"}]}]}}`)
	f.Add(`{"spec":{"hostNetwork":true}}`)
	plain, err := Derive(requesterPod(), place)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, patch string) {
		p := place
		p.Patch = patch
		got, err := Derive(requesterPod(), p)
		if err != nil {
			return
		}
		for key := range got.Labels {
			if strings.Contains(key, "/") && got.Labels[key] != plain.Labels[key] {
				t.Errorf("%s: the label %s", patch, key)
			}
		}
		c, had := &got.Spec.Containers[0], plain.Spec.Containers[0]
		if _, claims := c.Resources.Limits["nvidia.com/gpu"]; claims || value(c.Env, EnvDevices) != value(had.Env, EnvDevices) || value(c.Env, EnvRole) != value(had.Env, EnvRole) {
			t.Errorf("%s: container %+v", patch, c)
		}
		got.Labels, c.Args, c.Env, c.Resources = plain.Labels, had.Args, had.Env, had.Resources
		if !reflect.DeepEqual(plain, got) {
			t.Errorf("%s: it is %+v", patch, got)
		}
	})
}
