package knative

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/config"
)

// Marks on the pods of a pair.
const (
	// LabelProvider has the revision of a provider's pod. Knative ignores the pod, which has none of its labels.
	LabelProvider = "rouse.dev/provider"
	// LabelInjected is on a provider's pod that the injector changes.
	LabelInjected = config.AnnotationInjected
	// AnnotationDevices has GPUs, separated by commas.
	AnnotationDevices = "rouse.dev/devices"
	// AnnotationBound has the name of the other pod of a pair.
	AnnotationBound = "rouse.dev/bound-to"
	// Finalizer keeps both pods of a pair until they are separated.
	Finalizer = "rouse.dev/dual-pods"
)

// Environment variables of a provider's containers.
const (
	EnvRole    = "ROUSE_ROLE"
	EnvDevices = "NVIDIA_VISIBLE_DEVICES"
)

const (
	sidecar  = "queue-proxy"
	injected = "rouse-function"
)

// ProviderPod has the parameters of a provider's pod.
type ProviderPod struct {
	Name        string
	Revision    string
	RevisionUID types.UID
	Node        string
	Devices     []api.DeviceID
	Requester   string
	// Patch is the user's, see [CheckPatch].
	Patch string
}

// Name returns the name of a revision's provider, as long as a host's name may be.
func Name(revision, suffix string) string {
	const part = "-provider-"
	return strings.TrimRight(revision[:min(len(revision), 63-len(part)-len(suffix))], "-.") + part + suffix
}

// Derive makes a provider's pod from a pod of its revision's Deployment: without Knative's containers and claims of
// GPUs, pinned to the node, and with the patch applied. An error says what is wrong with the patch.
func Derive(from *corev1.Pod, p ProviderPod) (*corev1.Pod, error) {
	out := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: p.Name, Namespace: from.Namespace,
			Labels: map[string]string{LabelProvider: p.Revision, "app.kubernetes.io/managed-by": control.AutoscalerName},
			Annotations: map[string]string{
				AnnotationDevices:                         JoinDevices(p.Devices),
				"kubectl.kubernetes.io/default-container": "user-container",
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "serving.knative.dev/v1", Kind: "Revision", Name: p.Revision, UID: p.RevisionUID, Controller: new(true),
			}},
		},
		Spec: *from.Spec.DeepCopy(),
	}
	if port := from.Annotations[config.AnnotationInjected]; port != "" {
		out.Annotations[config.AnnotationInjected] = port
		out.Labels[LabelInjected] = "true"
	}
	if p.Requester != "" {
		out.Annotations[AnnotationBound] = p.Requester
		out.Finalizers = []string{Finalizer}
	}
	provide(&out.Spec, p)
	if err := patch(out, p.Patch); err != nil {
		return nil, err
	}
	return out, nil
}

func provide(s *corev1.PodSpec, p ProviderPod) {
	s.Containers = slices.DeleteFunc(s.Containers, func(c corev1.Container) bool { return c.Name == sidecar })
	for _, list := range [][]corev1.Container{s.InitContainers, s.Containers} {
		for k := range list {
			c := &list[k]
			if c.Name == injected { // the admission policy allows no change to it
				continue
			}
			c.Lifecycle = nil // it asks Knative's container whether it may end
			for _, resources := range []corev1.ResourceList{c.Resources.Limits, c.Resources.Requests} {
				for name := range resources {
					if claims(name) {
						delete(resources, name)
					}
				}
			}
			c.Resources.Claims = nil
			c.Env = set(c.Env, EnvRole, string(control.RoleProvider))
			c.Env = set(c.Env, EnvDevices, JoinDevices(p.Devices))
		}
	}
	s.ResourceClaims, s.EphemeralContainers = nil, nil
	s.Hostname, s.Subdomain, s.NodeName = "", "", ""
	s.Priority, s.PreemptionPolicy = nil, nil // set from its class
	s.TopologySpreadConstraints = nil         // the node is given
	// A restarted process has lost the model, and might run beside another that is awake.
	s.RestartPolicy = corev1.RestartPolicyNever
	// The scheduler places it: memory and taints count.
	s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{p.Node}}},
		}}},
	}}
}

// JoinDevices returns the value of [AnnotationDevices].
func JoinDevices(ids []api.DeviceID) string { return join(ids, ",") }

func claims(name corev1.ResourceName) bool {
	domain, _, extended := strings.Cut(string(name), "/")
	return extended && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io")
}

func set(env []corev1.EnvVar, name, value string) []corev1.EnvVar {
	env = slices.DeleteFunc(env, func(e corev1.EnvVar) bool { return e.Name == name })
	return append(env, corev1.EnvVar{Name: name, Value: value})
}

// Devices parses [AnnotationDevices].
func Devices(o *corev1.Pod) []api.DeviceID {
	var ids []api.DeviceID
	for word := range strings.SplitSeq(o.Annotations[AnnotationDevices], ",") {
		if word != "" {
			ids = append(ids, api.DeviceID(word))
		}
	}
	return ids
}

// NodeOf returns the node of a provider's pod, also before it is scheduled.
func NodeOf(o *corev1.Pod) string {
	if o.Spec.NodeName != "" {
		return o.Spec.NodeName
	}
	if a := o.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		for _, t := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, m := range t.MatchFields {
				if m.Key == "metadata.name" && len(m.Values) == 1 {
					return m.Values[0]
				}
			}
		}
	}
	return ""
}
