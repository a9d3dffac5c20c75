package kn

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

// What a container may get from a cluster, in kn's words, short and long.
const (
	ofConfigMap = "config-map"
	ofSecret    = "secret"
	ofEmptyDir  = "emptyDir"
	ofClaim     = "persistentVolumeClaim"
)

var sourceWords = map[string]string{
	"cm": ofConfigMap, ofConfigMap: ofConfigMap, "sc": ofSecret, ofSecret: ofSecret, "ed": ofEmptyDir, ofEmptyDir: ofEmptyDir, "pvc": ofClaim, ofClaim: ofClaim,
}

// source is an object of the cluster: a kind of sourceWords and a name.
type source struct{ kind, name string }

// parseSource parses KIND:NAME, and returns what follows a further colon.
func parseSource(text string, kinds ...string) (s source, rest string, err error) {
	word, name, found := strings.Cut(text, ":")
	name, rest, _ = strings.Cut(name, ":")
	s = source{sourceWords[word], name}
	switch {
	case !found || !slices.Contains(kinds, s.kind):
		return s, "", fmt.Errorf("%q: want KIND:NAME, where KIND is one of %s", text, strings.Join(kinds, ", "))
	case s.kind != ofEmptyDir && len(validation.IsDNS1123Subdomain(name)) > 0:
		return s, "", fmt.Errorf("%q: %q is no name of an object", text, name)
	}
	return s, rest, nil
}

// variable is an environment variable with a value from a key of a ConfigMap or a Secret.
type variable struct {
	name, key string
	source
}

// parseVariable parses NAME=KIND:NAME:KEY.
func parseVariable(text string) (v variable, err error) {
	name, from, found := strings.Cut(text, "=")
	if !found || len(validation.IsEnvVarName(name)) > 0 {
		return v, fmt.Errorf("--env-value-from %q: want NAME=secret:SECRET:KEY, or cm: for a ConfigMap", text)
	}
	v.name = name
	if v.source, v.key, err = parseSource(from, ofConfigMap, ofSecret); err != nil {
		return v, fmt.Errorf("--env-value-from %s=%w", name, err)
	}
	if len(validation.IsConfigMapKey(v.key)) > 0 {
		return v, fmt.Errorf("--env-value-from %q: want a key of %s behind another colon", text, v.source.name)
	}
	return v, nil
}

// volume is a volume of the pod.
type volume struct {
	name string
	source
	size, medium string // of an emptyDir
}

// parseVolume parses NAME=KIND:NAME, for an emptyDir with [:size=SIZE,type=Memory].
func parseVolume(text string) (v volume, err error) {
	name, from, found := strings.Cut(text, "=")
	if !found || len(validation.IsDNS1123Label(name)) > 0 {
		return v, fmt.Errorf("--volume %q: want NAME=KIND:NAME, such as models=pvc:models", text)
	}
	v.name = name
	var rest string
	if v.source, rest, err = parseSource(from, ofConfigMap, ofSecret, ofEmptyDir, ofClaim); err != nil {
		return v, fmt.Errorf("--volume %s=%w", name, err)
	}
	for option := range strings.SplitSeq(rest, ",") {
		key, value, _ := strings.Cut(option, "=")
		switch {
		case option == "":
		case v.kind == ofEmptyDir && key == "size":
			if _, err := resource.ParseQuantity(value); err != nil {
				return v, fmt.Errorf("--volume %q: the size %q: %w", text, value, err)
			}
			v.size = value
		case v.kind == ofEmptyDir && key == "type" && value == "Memory":
			v.medium = value
		default:
			return v, fmt.Errorf("--volume %q: %q: an emptyDir has size=SIZE and type=Memory, others have nothing", text, option)
		}
	}
	return v, nil
}

// spell returns the volume in kn's form.
func (v volume) spell() string {
	text := v.name + "=" + v.kind + ":" + v.source.name
	if v.kind != ofEmptyDir {
		return text
	}
	var options []string
	if v.size != "" {
		options = append(options, "size="+v.size)
	}
	if v.medium != "" {
		options = append(options, "type="+v.medium)
	}
	if len(options) > 0 {
		text += ":" + strings.Join(options, ",")
	}
	return text
}

// object returns the volume in a pod's form.
func (v volume) object() map[string]any {
	o := map[string]any{"name": v.name}
	switch v.kind {
	case ofConfigMap:
		o["configMap"] = map[string]any{"name": v.source.name}
	case ofSecret:
		o["secret"] = map[string]any{"secretName": v.source.name}
	case ofClaim:
		o["persistentVolumeClaim"] = map[string]any{"claimName": v.source.name}
	default:
		dir := map[string]any{}
		if v.medium != "" {
			dir["medium"] = v.medium
		}
		if v.size != "" {
			dir["sizeLimit"] = v.size
		}
		o["emptyDir"] = dir
	}
	return o
}

// mount is a mount of a volume in the container.
type mount struct{ path, volume, within string }

// mount adds PATH=VOLUME[/PATH] or PATH=KIND:NAME[/PATH], which creates the volume.
func (n *creation) mount(text string) error {
	at, from, found := strings.Cut(text, "=")
	if !found || !path.IsAbs(at) || path.Clean(at) != at || at == "/" || strings.Contains(at, ":") {
		return fmt.Errorf("--mount %q: want PATH=VOLUME or PATH=KIND:NAME, such as /models=pvc:models", text)
	}
	if slices.ContainsFunc(n.mounts, func(m mount) bool { return m.path == at }) {
		return fmt.Errorf("--mount %s: it is given twice", at)
	}
	what, within, _ := strings.Cut(from, "/")
	if strings.Contains(what, ":") {
		s, rest, err := parseSource(what, ofConfigMap, ofSecret, ofEmptyDir, ofClaim)
		switch {
		case err != nil:
			return fmt.Errorf("--mount %s=%w", at, err)
		case rest != "":
			return fmt.Errorf("--mount %q: %q: options are for --volume", text, rest)
		}
		what = n.volumeFor(at)
		n.volumes = append(n.volumes, volume{name: what, source: s})
	}
	if !slices.ContainsFunc(n.volumes, func(v volume) bool { return v.name == what }) {
		return fmt.Errorf("--mount %q: there is no volume %q: --volume %s=KIND:NAME makes one", text, what, what)
	}
	n.mounts = append(n.mounts, mount{at, what, within})
	return nil
}

// volumeFor returns an unused name of a volume for a path.
func (n *creation) volumeFor(at string) string {
	letter := func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}
	base := strings.Trim(strings.Map(letter, strings.ToLower(at)), "-")
	base = strings.Trim(base[:min(len(base), 50)], "-")
	if base == "" {
		base = "volume"
	}
	name := base
	for k := 2; slices.ContainsFunc(n.volumes, func(v volume) bool { return v.name == name }); k++ {
		name = fmt.Sprintf("%s-%d", base, k)
	}
	return name
}

// spell returns the mount in kn's form.
func (m mount) spell() string {
	if m.within != "" {
		return m.path + "=" + m.volume + "/" + m.within
	}
	return m.path + "=" + m.volume
}

// mountObject returns a mount in a container's form. Mounts of a ConfigMap or a Secret are read-only, as with kn.
func (n *creation) mountObject(m mount) map[string]any {
	o := map[string]any{"name": m.volume, "mountPath": m.path}
	if m.within != "" {
		o["subPath"] = m.within
	}
	if slices.ContainsFunc(n.volumes, func(v volume) bool {
		return v.name == m.volume && (v.kind == ofConfigMap || v.kind == ofSecret)
	}) {
		o["readOnly"] = true
	}
	return o
}

// parts parses the user's Secrets, ConfigMaps and volumes.
func (n *creation) parts(w wanted) error {
	for _, text := range w.envFrom {
		s, rest, err := parseSource(text, ofConfigMap, ofSecret)
		if err != nil || rest != "" {
			return fmt.Errorf("--env-from %q: want secret:NAME or cm:NAME", text)
		}
		n.envFrom = append(n.envFrom, s)
	}
	for _, text := range w.envValueFrom {
		v, err := parseVariable(text)
		if err != nil {
			return err
		}
		n.envValueFrom = append(n.envValueFrom, v)
	}
	for _, text := range w.volumes {
		v, err := parseVolume(text)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(n.volumes, func(other volume) bool { return other.name == v.name }) {
			return fmt.Errorf("--volume %s: it is given twice", v.name)
		}
		n.volumes = append(n.volumes, v)
	}
	for _, text := range w.mounts {
		if err := n.mount(text); err != nil {
			return err
		}
	}
	for flag, name := range map[string]string{"--service-account": w.serviceAccount, "--pull-secret": w.pullSecret} {
		if name != "" && len(validation.IsDNS1123Subdomain(name)) > 0 {
			return fmt.Errorf("%s %q: it is no name of an object", flag, name)
		}
	}
	n.serviceAccount, n.pullSecret = w.serviceAccount, w.pullSecret
	return nil
}

// sharedMemory gives the container a /dev/shm of more than the default 64 MiB, unless there is a volume already.
func (n *creation) sharedMemory() {
	if slices.ContainsFunc(n.mounts, func(m mount) bool { return m.path == "/dev/shm" }) {
		return
	}
	v := volume{name: "shm", source: source{ofEmptyDir, "shm"}, size: shmSize, medium: "Memory"}
	if slices.ContainsFunc(n.volumes, func(other volume) bool { return other.name == v.name }) {
		v.name = n.volumeFor("/dev/shm")
	}
	n.volumes = append(n.volumes, v)
	n.mounts = append(n.mounts, mount{path: "/dev/shm", volume: v.name})
}

// environment returns the container's variables: values first, in the order of kn's flags.
func (n *creation) environment() (env, from []any) {
	for _, e := range n.env {
		name, value, _ := strings.Cut(e, "=")
		env = append(env, map[string]any{"name": name, "value": value})
	}
	for _, v := range n.envValueFrom {
		ref := "secretKeyRef"
		if v.kind == ofConfigMap {
			ref = "configMapKeyRef"
		}
		env = append(env, map[string]any{"name": v.name, "valueFrom": map[string]any{ref: map[string]any{"name": v.source.name, "key": v.key}}})
	}
	for _, s := range n.envFrom {
		ref := "secretRef"
		if s.kind == ofConfigMap {
			ref = "configMapRef"
		}
		from = append(from, map[string]any{ref: map[string]any{"name": s.name}})
	}
	return env, from
}
