package kn

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// What a container may get from a cluster, in kn's words.
const (
	ofConfigMap = "config-map"
	ofSecret    = "secret"
	ofEmptyDir  = "emptyDir"
	ofClaim     = "persistentVolumeClaim"
)

var partWords = map[string]string{
	"cm": ofConfigMap, ofConfigMap: ofConfigMap, "sc": ofSecret, ofSecret: ofSecret, "ed": ofEmptyDir, ofEmptyDir: ofEmptyDir, "pvc": ofClaim, ofClaim: ofClaim,
}

type part struct{ kind, name string }

func (p part) String() string { return p.kind + ":" + p.name }

// parsePart parses KIND:NAME, and returns what follows a further colon.
func (n *creation) parsePart(text string, kinds ...string) (p part, rest string, err error) {
	word, name, found := strings.Cut(text, ":")
	name, rest, _ = strings.Cut(name, ":")
	p = part{partWords[word], name}
	switch {
	case !found || !slices.Contains(kinds, p.kind):
		return p, "", fmt.Errorf("%q: want KIND:NAME, where KIND is one of %s", text, strings.Join(kinds, ", "))
	case p.kind != ofEmptyDir && len(validation.IsDNS1123Subdomain(name)) > 0:
		return p, "", fmt.Errorf("%q: %q is no name of an object", text, name)
	}
	n.parts = append(n.parts, p)
	return p, rest, nil
}

func (n *creation) addEnv(text string) error {
	name, value, found := strings.Cut(text, "=")
	if !found || name == "" {
		return fmt.Errorf("--env %s: want NAME=VALUE", text)
	}
	n.add("env", text)
	n.container().Env = append(n.container().Env, corev1.EnvVar{Name: name, Value: value})
	return nil
}

// addEnvValueFrom adds NAME=KIND:NAME:KEY.
func (n *creation) addEnvValueFrom(text string) error {
	name, from, found := strings.Cut(text, "=")
	if !found || len(validation.IsEnvVarName(name)) > 0 {
		return fmt.Errorf("--env-value-from %q: want NAME=secret:SECRET:KEY, or cm: for a ConfigMap", text)
	}
	p, key, err := n.parsePart(from, ofConfigMap, ofSecret)
	switch {
	case err != nil:
		return fmt.Errorf("--env-value-from %s=%w", name, err)
	case len(validation.IsConfigMapKey(key)) > 0:
		return fmt.Errorf("--env-value-from %q: want a key of %s behind another colon", text, p.name)
	}
	n.add("env-value-from", fmt.Sprintf("%s=%s:%s", name, p, key))
	object, source := corev1.LocalObjectReference{Name: p.name}, &corev1.EnvVarSource{}
	if p.kind == ofSecret {
		source.SecretKeyRef = &corev1.SecretKeySelector{LocalObjectReference: object, Key: key}
	} else {
		source.ConfigMapKeyRef = &corev1.ConfigMapKeySelector{LocalObjectReference: object, Key: key}
	}
	n.container().Env = append(n.container().Env, corev1.EnvVar{Name: name, ValueFrom: source})
	return nil
}

// addEnvFrom adds KIND:NAME.
func (n *creation) addEnvFrom(text string) error {
	p, rest, err := n.parsePart(text, ofConfigMap, ofSecret)
	if err != nil || rest != "" {
		return fmt.Errorf("--env-from %q: want secret:NAME or cm:NAME", text)
	}
	n.add("env-from", p.String())
	object, source := corev1.LocalObjectReference{Name: p.name}, corev1.EnvFromSource{}
	if p.kind == ofSecret {
		source.SecretRef = &corev1.SecretEnvSource{LocalObjectReference: object}
	} else {
		source.ConfigMapRef = &corev1.ConfigMapEnvSource{LocalObjectReference: object}
	}
	n.container().EnvFrom = append(n.container().EnvFrom, source)
	return nil
}

// addVolume adds NAME=KIND:NAME, for an emptyDir with [:size=SIZE,type=Memory].
func (n *creation) addVolume(text string) error {
	name, from, found := strings.Cut(text, "=")
	if !found || len(validation.IsDNS1123Label(name)) > 0 {
		return fmt.Errorf("--volume %q: want NAME=KIND:NAME, such as models=pvc:models", text)
	}
	p, options, err := n.parsePart(from, ofConfigMap, ofSecret, ofEmptyDir, ofClaim)
	switch {
	case err != nil:
		return fmt.Errorf("--volume %s=%w", name, err)
	case n.volume(name) != nil:
		return fmt.Errorf("--volume %s: it is given twice", name)
	}
	v := corev1.Volume{Name: name}
	switch p.kind {
	case ofConfigMap:
		v.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: p.name}}
	case ofSecret:
		v.Secret = &corev1.SecretVolumeSource{SecretName: p.name}
	case ofClaim:
		v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: p.name}
	default:
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	for option := range strings.SplitSeq(options, ",") {
		key, value, _ := strings.Cut(option, "=")
		switch {
		case option == "":
		case v.EmptyDir != nil && key == "size":
			size, err := resource.ParseQuantity(value)
			if err != nil {
				return fmt.Errorf("--volume %q: the size %q: %w", text, value, err)
			}
			v.EmptyDir.SizeLimit = &size
		case v.EmptyDir != nil && option == "type=Memory":
			v.EmptyDir.Medium = corev1.StorageMediumMemory
		default:
			return fmt.Errorf("--volume %q: %q: an emptyDir has size=SIZE and type=Memory, others have nothing", text, option)
		}
	}
	spelled := name + "=" + p.String()
	if options != "" {
		spelled += ":" + options
	}
	n.add("volume", spelled)
	n.pod.Volumes = append(n.pod.Volumes, v)
	return nil
}

func (n *creation) volume(name string) *corev1.Volume {
	if k := slices.IndexFunc(n.pod.Volumes, func(v corev1.Volume) bool { return v.Name == name }); k >= 0 {
		return &n.pod.Volumes[k]
	}
	return nil
}

func (n *creation) mounted(at string) bool {
	return slices.ContainsFunc(n.container().VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == at })
}

// addMount adds PATH=VOLUME[/PATH], or PATH=KIND:NAME[/PATH], which creates the volume.
func (n *creation) addMount(text string) error {
	at, from, found := strings.Cut(text, "=")
	if !found || !path.IsAbs(at) || path.Clean(at) != at || at == "/" || strings.Contains(at, ":") {
		return fmt.Errorf("--mount %q: want PATH=VOLUME or PATH=KIND:NAME, such as /models=pvc:models", text)
	}
	if n.mounted(at) {
		return fmt.Errorf("--mount %s: it is given twice", at)
	}
	what, within, _ := strings.Cut(from, "/")
	if strings.Contains(what, ":") {
		if strings.Count(what, ":") > 1 {
			return fmt.Errorf("--mount %q: options are for --volume", text)
		}
		name := n.volumeFor(at)
		if err := n.addVolume(name + "=" + what); err != nil {
			return fmt.Errorf("--mount %s: %w", at, err)
		}
		what = name
	}
	v := n.volume(what)
	if v == nil {
		return fmt.Errorf("--mount %q: there is no volume %q: --volume %s=KIND:NAME makes one", text, what, what)
	}
	spelled := at + "=" + what
	if within != "" {
		spelled += "/" + within
	}
	n.add("mount", spelled)
	// Read-only as with kn.
	n.container().VolumeMounts = append(n.container().VolumeMounts, corev1.VolumeMount{Name: what, MountPath: at, SubPath: within, ReadOnly: v.ConfigMap != nil || v.Secret != nil})
	return nil
}

func (n *creation) volumeFor(at string) string {
	letter := func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}
	base := strings.Trim(strings.Map(letter, strings.ToLower(at)), "-")
	base = cmp.Or(strings.Trim(base[:min(len(base), 50)], "-"), "volume")
	name := base
	for k := 2; n.volume(name) != nil; k++ {
		name = fmt.Sprintf("%s-%d", base, k)
	}
	return name
}

// shmSize is for tensor parallelism and sleeping weights.
const shmSize = "8Gi"

// addSharedMemory gives the container a /dev/shm of more than 64 MiB.
func (n *creation) addSharedMemory() error {
	if n.mounted("/dev/shm") {
		return nil
	}
	name := "shm"
	if n.volume(name) != nil {
		name = n.volumeFor("/dev/shm")
	}
	if err := n.addVolume(name + "=emptyDir:shm:size=" + shmSize + ",type=Memory"); err != nil {
		return err
	}
	return n.addMount("/dev/shm=" + name)
}

// checkParts says which object of the container is missing: its pod would wait silently. Secrets are looked up, and not
// read.
func (c *creator) checkParts(ctx context.Context, n *creation) error {
	seen := map[part]bool{}
	for _, p := range n.parts {
		if seen[p] || p.kind == ofEmptyDir {
			continue
		}
		seen[p] = true
		resource := map[string]string{ofSecret: "secrets", ofConfigMap: "configmaps", ofClaim: "persistentvolumeclaims", "serviceAccount": "serviceaccounts"}[p.kind]
		err := c.kube.CoreV1().RESTClient().Get().Namespace(n.namespace).Resource(resource).Name(p.name).
			SetHeader("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").Do(ctx).Into(&metav1.PartialObjectMetadata{})
		switch {
		case apierrors.IsNotFound(err):
			return fmt.Errorf("there is no %s %s/%s, which the container is given: its pods would wait for it; make it first, or say --no-check", p.kind, n.namespace, p.name)
		case err != nil:
			c.note("whether there is the %s %s/%s was not seen: %v", p.kind, n.namespace, p.name, err)
		}
	}
	return nil
}
