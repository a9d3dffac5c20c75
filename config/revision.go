package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/rouse-dev/rouse/api"
)

// RevisionSource is a Knative revision.
type RevisionSource struct {
	Namespace, Name string
	Service         string
	Annotations     map[string]string
	// Adapters are from the Service's own [AnnotationAdapters], which override the revision's; nil: none.
	Adapters *[]api.Adapter
	Spec     []byte
	// Besides those of [GPUMakers].
	GPUs []string
}

type revisionSpec struct {
	timeouts
	ContainerConcurrency int                 `json:"containerConcurrency"`
	Containers           []revisionContainer `json:"containers"`
}

type revisionContainer struct {
	Command []string `json:"command"`
	Args    []string `json:"args"`
	Ports   []struct {
		ContainerPort int `json:"containerPort"`
	} `json:"ports"`
	Env []struct {
		Name  string `json:"name"`
		Value string `json:"value"` // empty with valueFrom
	} `json:"env"`
	Resources resources `json:"resources"`
}

type resources struct {
	Requests map[string]quantity `json:"requests" yaml:"requests"`
	Limits   map[string]quantity `json:"limits" yaml:"limits"`
}

// As a JSON string or number.
type quantity string

// UnmarshalJSON implements [json.Unmarshaler].
func (q *quantity) UnmarshalJSON(raw []byte) error {
	var n json.Number
	if err := json.Unmarshal(raw, &n); err == nil {
		*q = quantity(n)
		return nil
	}
	return json.Unmarshal(raw, (*string)(q))
}

// defaultPort is Knative's.
const defaultPort = 8080

// Revision converts a Knative revision to a function named namespace/revision. It returns all errors in one line,
// and the function without the invalid parts. Unlike in a manifest:
//
//   - The container's args are the function program's command line: Command, Args and Env are empty.
//   - The memory and GPUs of all containers count: a sidecar may be the runtime.
//   - The image may set what is empty in Runtime: a missing model is no error. Paths are the container's.
//   - timeoutSeconds and responseStartTimeoutSeconds of 300 count as not set: Knative writes them into every
//     revision.
//   - Any class is accepted.
func Revision(r RevisionSource) (api.Function, error) {
	f := api.Function{
		Name:        api.NewFunctionName(r.Namespace, r.Name),
		SleepAfter:  DefaultSleepAfter,
		UnloadAfter: DefaultUnloadAfter,
		Origin:      "revision " + r.Namespace + "/" + r.Name,
	}
	if r.Service != "" {
		f.Service = api.NewFunctionName(r.Namespace, r.Service)
	}
	var wrong problems
	spec, own, err := revisionParts(r)
	wrong.add(err)
	f.Concurrency = max(0, spec.ContainerConcurrency)
	spec.chosen().bound(&f)
	own.describe(&f)
	for _, c := range spec.Containers {
		wrong.add(c.Resources.add(&f.Memory, slices.Concat(GPUResources(), r.GPUs)))
	}
	has := func(key string) bool { _, found := r.Annotations[key]; return found }
	set := settingsOf(&f)
	for _, key := range slices.Sorted(maps.Keys(r.Annotations)) {
		if key == AnnotationClass {
			continue
		}
		good := f
		if err := set.annotate(key, r.Annotations[key], has); err != nil {
			f = good
			wrong.add(err)
		}
	}
	wrong.add(fromKnative(&f, func(key string) (string, bool) { v, found := r.Annotations[key]; return v, found }))
	wrong.add(checkKind(&f, has(AnnotationRuntime)))
	passing(&f, has)
	if r.Adapters != nil {
		f.Runtime.Adapters = *r.Adapters
	}
	wrong.add(checkTogether(&f))
	for _, err := range boundScales(&f) {
		wrong.add(err)
	}
	if f.Concurrency == 0 {
		server := f.Runtime
		server.Command, server.Args = own.Command, own.Args // the function program's own flags differ
		for _, e := range own.Env {
			server.Env = append(server.Env, e.Name+"="+e.Value)
		}
		f.Concurrency, f.ConcurrencyBy = server.Concurrency()
	}
	kind := f.Runtime.Kind
	f = f.WithDefaults()
	f.Runtime.Kind = kind
	return f, wrong.of(f.Origin)
}

// RevisionPort returns the revision's own port.
func RevisionPort(r RevisionSource) int {
	_, own, err := revisionParts(r)
	if err != nil || len(own.Ports) == 0 {
		return defaultPort
	}
	return cmp.Or(own.Ports[0].ContainerPort, defaultPort)
}

func revisionParts(r RevisionSource) (spec revisionSpec, own revisionContainer, err error) {
	if err := json.Unmarshal(r.Spec, &spec); err != nil {
		return revisionSpec{}, own, fmt.Errorf("read the spec: %w", api.Explain(err))
	}
	own, err = ownContainer(spec.Containers, func(c revisionContainer) int { return len(c.Ports) })
	return spec, own, err
}

// Annotations override what describe reads.
func (c revisionContainer) describe(f *api.Function) {
	env := map[string]string{}
	for _, e := range c.Env {
		env[e.Name] = e.Value
	}
	said := func(flag string) string {
		return cmp.Or(flagValue(c.Args, flag), env["ROUSE_"+strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))])
	}
	f.Runtime.Kind, f.Runtime.Model = said("runtime"), said("model")
	f.Model = api.ModelName(said("served-model-name"))
	if n, err := strconv.Atoi(said("concurrency")); err == nil && n > 0 { // else the function program rejects it
		f.Concurrency = n
	}
}

// The error covers all invalid ones.
func (r resources) add(need *api.Memory, gpus []string) error {
	var wrong problems
	if memory := cmp.Or(r.Requests["memory"], r.Limits["memory"]); memory != "" {
		b, err := api.ParseBytes(string(memory))
		if err != nil {
			wrong.add(fmt.Errorf("the container's resources: %w", err))
		}
		need.Host += b
	}
	for _, name := range gpus {
		limit := cmp.Or(r.Limits[name], r.Requests[name])
		if limit == "" {
			continue
		}
		n, err := strconv.Atoi(string(limit))
		if err != nil || n < 0 {
			wrong.add(fmt.Errorf("the container's limit %s is %q: want a number of GPUs", name, limit))
			continue
		}
		need.Devices += n
	}
	return wrong.join()
}

// The last value counts. After "--" come the runtime's arguments.
func flagValue(args []string, flag string) (value string) {
	for i, a := range args {
		if a == "--" {
			break
		}
		if v, found := strings.CutPrefix(a, "--"+flag+"="); found {
			value = v
		} else if a == "--"+flag && i+1 < len(args) {
			value = args[i+1]
		}
	}
	return value
}

// checkKind clears an invalid kind.
func checkKind(f *api.Function, annotated bool) error {
	kind, place := f.Runtime.Kind, "the container's argument --runtime or environment variable "+EnvRuntime
	if annotated {
		place = "annotation " + AnnotationRuntime
	}
	switch {
	case kind != "" && !slices.Contains(api.RuntimeKinds, kind):
		f.Runtime.Kind = ""
		return fmt.Errorf("%s: the runtime %q: want one of %s", place, kind, strings.Join(api.RuntimeKinds, ", "))
	case kind == api.RuntimeEngine && f.Runtime.Endpoint != "":
		f.Runtime.Endpoint = ""
		return fmt.Errorf("annotation %s: the runtime %q is one that an instance starts itself: name the runtime that listens there with the annotation %s", AnnotationEndpoint, kind, AnnotationRuntime)
	}
	return nil
}

type problems []error

func (p *problems) add(err error) {
	if err != nil {
		*p = append(*p, err)
	}
}

// One line.
func (p problems) join() error {
	if len(p) < 2 {
		return errors.Join(p...)
	}
	texts := make([]string, len(p))
	for i, err := range p {
		texts[i] = err.Error()
	}
	return errors.New(strings.Join(texts, "; "))
}

func (p problems) of(object string) error {
	if len(p) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w", object, p.join())
}
