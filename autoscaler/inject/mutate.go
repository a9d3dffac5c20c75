package inject

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/config"
)

const (
	volume    = "rouse-function"
	folder    = "/.rouse"
	installed = folder + "/rouse-function"
	// firstPort is the function's, or the next free one, if the server keeps the container's port.
	firstPort = 8014
)

// operation is one operation of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

type patch struct{ all []operation }

func (p *patch) set(value any, path string) {
	p.all = append(p.all, operation{"add", path, value}) // replaces an existing field
}

// push appends to a list, which may not exist.
func (p *patch) push(empty bool, value any, path string) {
	if empty {
		p.set([]any{value}, path)
		return
	}
	p.set(value, path+"/-")
}

// proofVolume holds the token by which a pod proves to the autoscaler which it is.
const proofVolume = "rouse-proof"

// addProof changes the pod too: later changes find the lists.
func (p *patch) addProof(pod *corev1.Pod) {
	k := servingContainer(pod)
	if k < 0 || slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == proofVolume }) {
		return
	}
	c := &pod.Spec.Containers[k]
	token := corev1.ServiceAccountTokenProjection{Audience: control.ProofAudience, ExpirationSeconds: new(int64(600)), Path: path.Base(control.ProofFile)}
	v := corev1.Volume{Name: proofVolume, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ServiceAccountToken: &token}}}}}
	m := corev1.VolumeMount{Name: proofVolume, MountPath: path.Dir(control.ProofFile), ReadOnly: true}
	p.push(len(pod.Spec.Volumes) == 0, v, "/spec/volumes")
	p.push(len(c.VolumeMounts) == 0, m, fmt.Sprintf("/spec/containers/%d/volumeMounts", k))
	pod.Spec.Volumes, c.VolumeMounts = append(pod.Spec.Volumes, v), append(c.VolumeMounts, m)
}

type image struct {
	name   string
	policy corev1.PullPolicy
}

// mutate returns the patch that wraps a pod's container:
//
//  1. A volume, an init container that copies the program there, and the volume's mount.
//  2. The command.
//  3. If the server keeps its port, the function, Knative's container and the kubelet's probes get another one.
//  4. Probes ask the function: a sleeping server does not count as dead.
func mutate(pod *corev1.Pod, p *plan, from image) ([]operation, error) {
	var out patch
	c := &pod.Spec.Containers[p.container]
	at := "/spec/containers/" + strconv.Itoa(p.container)
	out.push(len(pod.Spec.Volumes) == 0, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: quantity("128Mi")}}}, "/spec/volumes") // 1.
	if len(pod.Spec.InitContainers) == 0 {
		out.set([]any{initContainer(from)}, "/spec/initContainers")
	} else {
		out.set(initContainer(from), "/spec/initContainers/0")
	}
	out.push(len(c.VolumeMounts) == 0, corev1.VolumeMount{Name: volume, MountPath: folder, ReadOnly: true}, at+"/volumeMounts")
	port, server := portOf(c), portOf(c)
	flags := slices.Clone(p.flags)
	if p.serves { // 3.
		port = freePort(pod)
		flags = append(flags, "--listen=:"+strconv.Itoa(int(port)), "--runtime-port="+strconv.Itoa(int(server)))
		k := slices.IndexFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.ContainerPort == server })
		out.set(port, fmt.Sprintf("%s/ports/%d/containerPort", at, k))
	}
	asked, err := out.tellQueueProxy(pod, p, server, port)
	if err != nil {
		return nil, err
	}
	if exec := c.ReadinessProbe; p.everything && exec != nil && exec.Exec != nil {
		for _, word := range literal(exec.Exec.Command) {
			flags = append(flags, "--runtime-probe-command="+word)
		}
		flags = probeEvery(flags, float64(exec.PeriodSeconds))
	} else if p.everything && asked.path != "" {
		flags = probeEvery(append(flags, "--runtime-probe="+asked.path), asked.seconds)
	}
	for _, probe := range []struct {
		name string
		*corev1.Probe
	}{{"livenessProbe", c.LivenessProbe}, {"readinessProbe", c.ReadinessProbe}, {"startupProbe", c.StartupProbe}} {
		out.probe(probe.Probe, p, server, port, at+"/"+probe.name) // 4.
	}
	if len(p.words) > 0 {
		flags = append(append(flags, "--"), p.words...)
	}
	out.set([]string{installed}, at+"/command") // 2.
	out.set(flags, at+"/args")
	out.mark(pod, config.AnnotationInjected, strconv.Itoa(int(port)))
	if pod.Labels[labelProvider] != "" { // the admission policy of such pods requires it
		out.set("true", "/metadata/labels/"+strings.ReplaceAll(config.AnnotationInjected, "/", "~1"))
	}
	return out.all, nil
}

// probed is the HTTP readiness probe of Knative's container.
type probed struct {
	path    string
	seconds float64
}

func probeEvery(flags []string, seconds float64) []string {
	if seconds > 0 {
		flags = append(flags, fmt.Sprintf("--probe-interval=%gs", seconds))
	}
	return flags
}

// labelProvider is the one of autoscaler/knative, which we need only for this.
const labelProvider = "rouse.dev/provider"

// renew gives the present image, as the policy demands, to a provider's pod that was made after a pod with an older one.
func (p *patch) renew(pod *corev1.Pod, from image) {
	for k, c := range pod.Spec.InitContainers {
		if pod.Labels[labelProvider] != "" && c.Name == volume && c.Image != from.name {
			p.set(from.name, fmt.Sprintf("/spec/initContainers/%d/image", k))
		}
	}
}

func (p *patch) mark(pod *corev1.Pod, key, text string) {
	if pod.Annotations == nil {
		p.set(map[string]string{key: text}, "/metadata/annotations")
		return
	}
	p.set(text, "/metadata/annotations/"+strings.ReplaceAll(key, "/", "~1"))
}

func initContainer(from image) corev1.Container {
	yes, no, user := true, false, int64(65532)
	return corev1.Container{
		Name: volume, Image: from.name, ImagePullPolicy: from.policy, Command: []string{"/rouse-function"}, Args: []string{"install", folder},
		VolumeMounts: []corev1.VolumeMount{{Name: volume, MountPath: folder}},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("64Mi")},
		},
		SecurityContext: &corev1.SecurityContext{
			RunAsNonRoot: &yes, RunAsUser: &user, ReadOnlyRootFilesystem: &yes, AllowPrivilegeEscalation: &no,
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
}

func quantity(text string) *resource.Quantity {
	q := resource.MustParse(text)
	return &q
}

func freePort(pod *corev1.Pod) int32 {
	for port := int32(firstPort); ; port++ {
		if !slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
			return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.ContainerPort == port })
		}) {
			return port
		}
	}
}

// tellQueueProxy returns how Knative's container probed the server.
func (p *patch) tellQueueProxy(pod *corev1.Pod, how *plan, server, port int32) (asked probed, err error) {
	q := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == queueProxy })
	if q < 0 {
		return probed{}, nil
	}
	for k, e := range pod.Spec.Containers[q].Env {
		switch {
		case e.Name == "USER_PORT" && port != server:
			p.set(strconv.Itoa(int(port)), fmt.Sprintf("/spec/containers/%d/env/%d/value", q, k))
		case e.Name == "SERVING_READINESS_PROBE" && e.Value != "":
			var text string
			if text, asked, err = readiness(e.Value, how, server, port); err != nil {
				return probed{}, fmt.Errorf("read Knative's readiness probe: %w", err)
			}
			if text != e.Value {
				p.set(text, fmt.Sprintf("/spec/containers/%d/env/%d/value", q, k))
			}
		}
	}
	return asked, nil
}

// readiness returns the probe of Knative's container with the function's port. Of a list the first is the serving
// container's. Unknown fields are kept.
func readiness(text string, how *plan, server, port int32) (changed string, asked probed, err error) {
	var one map[string]any
	list := []map[string]any{}
	several := json.Unmarshal([]byte(text), &list) == nil
	if several && len(list) > 0 {
		one = list[0]
	} else if err := json.Unmarshal([]byte(text), &one); err != nil {
		return "", probed{}, err
	}
	of := func(kind string) map[string]any {
		probe, _ := one[kind].(map[string]any)
		return probe
	}
	get, tcp, grpc := of("httpGet"), of("tcpSocket"), of("grpc")
	if get != nil {
		path, _ := get["path"].(string)
		asked.path = "/" + strings.TrimPrefix(path, "/")
		asked.seconds, _ = one["periodSeconds"].(float64)
	}
	switch {
	case get != nil && samePort(get["port"], server) && (port != server || !how.everything):
		get["port"] = port
		if !how.everything {
			get["path"] = "/healthz"
		}
	case tcp != nil && samePort(tcp["port"], server) && port != server:
		tcp["port"] = port
	case grpc != nil && samePort(grpc["port"], server) && port != server:
		grpc["port"] = port
	default:
		return text, asked, nil
	}
	var all any = one
	if several {
		all = list
	}
	raw, err := json.Marshal(all)
	return string(raw), asked, err
}

func samePort(port any, want int32) bool {
	n, is := port.(float64)
	return is && int32(n) == want
}

// probe points a kubelet's probe at the function.
func (p *patch) probe(probe *corev1.Probe, how *plan, server, port int32, at string) {
	switch {
	case probe == nil:
	case probe.Exec != nil:
		p.set(append([]string{installed, "probe", "--port=" + strconv.Itoa(int(port)), "--"}, probe.Exec.Command...), at+"/exec/command")
	case probe.HTTPGet != nil && (probe.HTTPGet.Port.IntVal == server || probe.HTTPGet.Port.StrVal != ""):
		if probe.HTTPGet.Port.StrVal == "" {
			p.set(port, at+"/httpGet/port")
		}
		if !how.everything {
			p.set("/healthz", at+"/httpGet/path")
		}
	case probe.TCPSocket != nil && probe.TCPSocket.Port.IntVal == server:
		p.set(port, at+"/tcpSocket/port")
	case probe.GRPC != nil && probe.GRPC.Port == server:
		p.set(port, at+"/grpc/port")
	}
}
