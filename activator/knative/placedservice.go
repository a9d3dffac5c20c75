package knative

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "knative.dev/serving/pkg/apis/serving/v1"
	"sigs.k8s.io/yaml"

	"github.com/rouse-dev/rouse/activator/federation/protocol"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config"
)

var dropped = []string{config.AnnotationClusters, config.AnnotationRemoveAfter, config.AnnotationRegions}

// service refuses what is not accepted.
func (a *applier) service(m protocol.Manifest, front string) (*v1.Service, error) {
	f, annotations, err := config.Accept{Models: a.cfg.Models}.Read(m.Name, m.YAML, front)
	if err != nil {
		return nil, err
	}
	var said v1.Service
	if err := yaml.Unmarshal([]byte(m.YAML), &said); err != nil {
		return nil, fmt.Errorf("the manifest can't be read here: %w", err)
	}
	kind, containers := f.Runtime.Kind, said.Spec.Template.Spec.Containers
	image := a.cfg.Images[kind]
	switch {
	case f.Name.Namespace() != a.cfg.Namespace:
		return nil, fmt.Errorf("this cluster accepts functions of the namespace %s only", a.cfg.Namespace)
	case image == "":
		return nil, fmt.Errorf("this cluster has no image for the runtime %s (--accept-images has %s)", kind, strings.Join(slices.Sorted(maps.Keys(a.cfg.Images)), ", "))
	case len(containers) != 1 || len(containers[0].EnvFrom) > 0:
		return nil, errors.New("this cluster accepts no function with an environment of its own")
	}
	for _, key := range dropped {
		delete(annotations, key)
	}
	annotations[config.AnnotationClass], annotations["autoscaling.knative.dev/initial-scale"] = config.Class, "0"
	annotations[config.AnnotationRuntime], annotations[config.AnnotationModel] = kind, f.Runtime.Model
	own := map[string]string{annotationManifest: fmt.Sprintf("%x", sha256.Sum256([]byte(m.YAML)))}
	if len(f.Runtime.Adapters) > 0 {
		own[config.AnnotationAdapters] = config.AdapterList(f.Runtime.Adapters)
	}
	return &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.cfg.Namespace, Name: f.Name.Name(), Labels: map[string]string{labelPlaced: "true"}, Annotations: own},
		Spec: v1.ServiceSpec{ConfigurationSpec: v1.ConfigurationSpec{Template: v1.RevisionTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Annotations: annotations},
			Spec: v1.RevisionSpec{
				ContainerConcurrency: said.Spec.Template.Spec.ContainerConcurrency, TimeoutSeconds: said.Spec.Template.Spec.TimeoutSeconds,
				PodSpec: placedPod(f, kind, image, containers[0].Resources),
			},
		}}},
	}, nil
}

// placedPod has no rights in the cluster.
func placedPod(f api.Function, kind, image string, asked corev1.ResourceRequirements) corev1.PodSpec {
	needs := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: asked.Limits}
	maps.Copy(needs.Requests, asked.Requests)
	_, requested := needs.Requests[corev1.ResourceMemory]
	if _, limited := needs.Limits[corev1.ResourceMemory]; !requested && !limited && f.Memory.Host > 0 {
		needs.Requests[corev1.ResourceMemory] = resource.MustParse(strconv.FormatInt(int64(f.Memory.Host), 10))
	}
	no, yes := false, true
	confined := &corev1.SecurityContext{AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
	if kind == api.RuntimeEngine { // other images may need more
		confined.RunAsNonRoot, confined.ReadOnlyRootFilesystem = &yes, &yes
	}
	c := corev1.Container{Image: image, Ports: []corev1.ContainerPort{{ContainerPort: 8080}}, Resources: needs, SecurityContext: confined,
		VolumeMounts: []corev1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}}}
	if len(f.Runtime.Args) > 0 { // before "--" are the function program's own
		c.Args = append([]string{"--"}, f.Runtime.Args...)
	}
	return corev1.PodSpec{AutomountServiceAccountToken: &no, Containers: []corev1.Container{c},
		Volumes: []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}}
}
