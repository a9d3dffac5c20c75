package knative

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/json"

	"github.com/rouse-dev/rouse/config"
)

// providerPatch is all that a user may change in a provider's pod. Knative's checks don't see it: so it has no field for
// the pod's identity, node or permissions. Fields merge as in a strategic merge patch.
type providerPatch struct {
	Metadata struct {
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		Containers []containerPatch `json:"containers"`
	} `json:"spec"`
}

type containerPatch struct {
	Name string `json:"name"`
	// Args replace the container's; absent: they stay.
	Args      []string   `json:"args"`
	Env       []variable `json:"env"`
	Resources struct {
		Requests map[corev1.ResourceName]quantity `json:"requests"`
		Limits   map[corev1.ResourceName]quantity `json:"limits"`
	} `json:"resources"`
}

type variable struct {
	Name  string  `json:"name"`
	Value *string `json:"value"`
}

type quantity struct{ resource.Quantity }

// UnmarshalJSON accepts a quantity that is not negative.
func (q *quantity) UnmarshalJSON(raw []byte) error {
	if err := q.Quantity.UnmarshalJSON(raw); err != nil {
		return fmt.Errorf("%s is no quantity: %w", raw, err)
	}
	if q.Sign() < 0 {
		return fmt.Errorf("%s is less than nothing", raw)
	}
	return nil
}

var patchable = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}

// CheckPatch checks a patch without knowing the pod's containers.
func CheckPatch(raw string) error {
	_, err := parsePatch(raw)
	return wrongPatch(err)
}

func patch(pod *corev1.Pod, raw string) error {
	p, err := parsePatch(raw)
	if err != nil {
		return wrongPatch(err)
	}
	for key, value := range p.Metadata.Labels {
		pod.Labels[key] = value
	}
	for _, c := range p.Spec.Containers {
		k := slices.IndexFunc(pod.Spec.Containers, func(have corev1.Container) bool { return have.Name == c.Name })
		if k < 0 {
			return wrongPatch(fmt.Errorf("the function has no container %q", c.Name))
		}
		c.apply(&pod.Spec.Containers[k])
	}
	return nil
}

func (p *containerPatch) apply(c *corev1.Container) {
	if p.Args != nil {
		c.Args = p.Args
	}
	for _, v := range p.Env {
		c.Env = set(c.Env, v.Name, *v.Value)
	}
	merge := func(list *corev1.ResourceList, with map[corev1.ResourceName]quantity) {
		for name, q := range with {
			if *list == nil {
				*list = corev1.ResourceList{}
			}
			(*list)[name] = q.Quantity
		}
	}
	merge(&c.Resources.Requests, p.Resources.Requests)
	merge(&c.Resources.Limits, p.Resources.Limits)
}

func wrongPatch(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("annotation %s: %w", config.AnnotationProviderPatch, err)
}

// parsePatch is strict: exact case, no duplicate and no unknown names.
func parsePatch(raw string) (*providerPatch, error) {
	p := &providerPatch{}
	if raw == "" {
		return p, nil
	}
	strict, err := json.UnmarshalStrict([]byte(raw), p)
	if err != nil {
		return nil, fmt.Errorf("it is not read: %w", err)
	}
	if len(strict) > 0 {
		return nil, fmt.Errorf("%w: it may set metadata.labels, and of spec.containers args, env (name and value) and resources (requests and limits of %s); all else is the revision's to declare",
			errors.Join(strict...), join(patchable, ", "))
	}
	var all any
	if err := json.UnmarshalCaseSensitivePreserveInts([]byte(raw), &all); err != nil {
		return nil, fmt.Errorf("it is not read: %w", err)
	}
	if null(all) {
		return nil, errors.New("it has a null: it takes nothing away, leave the field out")
	}
	return p, p.check()
}

func null(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return slices.ContainsFunc(slices.Collect(maps.Values(v)), null)
	case []any:
		return slices.ContainsFunc(v, null)
	}
	return v == nil
}

func (p *providerPatch) check() error {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(p.Metadata.Labels)) {
		// Labels with a domain mean something to programs.
		if strings.Contains(key, "/") {
			errs = append(errs, fmt.Errorf("it sets the label %s: it may set those without a domain", key))
			continue
		}
		for _, wrong := range append(validation.IsQualifiedName(key), validation.IsValidLabelValue(p.Metadata.Labels[key])...) {
			errs = append(errs, fmt.Errorf("the label %q: %s", key, wrong))
		}
	}
	seen := map[string]bool{}
	for k := range p.Spec.Containers {
		c := &p.Spec.Containers[k]
		if c.Name == "" || seen[c.Name] {
			errs = append(errs, fmt.Errorf("it names the container %q twice, or has one without a name", c.Name))
		}
		seen[c.Name] = true
		errs = append(errs, c.check()...)
	}
	return errors.Join(errs...)
}

func (p *containerPatch) check() (errs []error) {
	seen := map[string]bool{}
	for _, v := range p.Env {
		switch {
		case v.Name == "" || v.Value == nil:
			errs = append(errs, fmt.Errorf("the variable %q of the container %s wants a name and a value", v.Name, p.Name))
		case seen[v.Name]:
			errs = append(errs, fmt.Errorf("it sets the variable %s of the container %s twice", v.Name, p.Name))
		case reserved(v.Name):
			errs = append(errs, fmt.Errorf("it sets the variable %s of the container %s: which GPUs it has and who it is, is Rouse's and Knative's to say", v.Name, p.Name))
		}
		seen[v.Name] = true
	}
	for _, list := range []map[corev1.ResourceName]quantity{p.Resources.Requests, p.Resources.Limits} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			if !slices.Contains(patchable, name) {
				errs = append(errs, fmt.Errorf("it sets %s of the container %s: it may set %s; the requester claims GPUs", name, p.Name, join(patchable, ", ")))
			}
		}
	}
	return errs
}

func reserved(name string) bool {
	upper := strings.ToUpper(name)
	for _, prefix := range []string{"ROUSE_", "K_", "NVIDIA_", "KUBERNETES_"} {
		if strings.HasPrefix(upper, prefix) {
			return true
		}
	}
	return strings.HasSuffix(upper, "_VISIBLE_DEVICES") || slices.Contains([]string{"PORT", "HOSTNAME", "POD_NAME", "POD_NAMESPACE"}, upper)
}

func join[S ~string](words []S, between string) string {
	plain := make([]string, len(words))
	for k, w := range words {
		plain[k] = string(w)
	}
	return strings.Join(plain, between)
}
