package inject

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config"
)

type verdict struct {
	// plan is nil if the container is left unchanged.
	plan *plan
	// missing is why it is unchanged although it may lack a function; empty: it needs none.
	missing string
}

type plan struct {
	container int
	// words follow "--".
	flags, words []string
	// serves: the server keeps the container's port, and the function uses another one.
	serves bool
	// everything: the kubelet's probes ask the server itself, through the function.
	everything bool
}

// program is how a kind of model server is started by default.
type program struct {
	words [][]string        // possible command prefixes, before its options
	model []string          // its options for the model
	flags map[string]string // its options mapped to the function's; empty: the function chooses the value
}

var programs = map[string]program{
	api.RuntimeVLLM: {
		words: [][]string{{"vllm", "serve"}, {"python3", "-m", "vllm.entrypoints.openai.api_server"}, {"python", "-m", "vllm.entrypoints.openai.api_server"}},
		model: []string{"--model"}, flags: map[string]string{"--served-model-name": "served-model-name", "--host": "", "--port": "", "--uds": ""},
	},
	api.RuntimeSGLang: {
		words: [][]string{{"python3", "-m", "sglang.launch_server"}, {"python", "-m", "sglang.launch_server"}},
		model: []string{"--model-path", "--model"}, flags: map[string]string{"--served-model-name": "served-model-name", "--host": "", "--port": ""},
	},
	api.RuntimeOllama: {words: [][]string{{"ollama", "serve"}}},
	api.RuntimeLlamaCpp: {
		words: [][]string{{"llama-server"}},
		model: []string{"--model", "-m"}, flags: map[string]string{"--alias": "served-model-name", "-a": "served-model-name", "--host": "", "--port": ""},
	},
	api.RuntimeRayServe: {words: [][]string{{"serve", "run"}}},
}

var repositories = map[string]string{
	"vllm-openai": api.RuntimeVLLM, "vllm-openai-cpu": api.RuntimeVLLM, "sglang": api.RuntimeSGLang, "ollama": api.RuntimeOllama,
	"llama.cpp": api.RuntimeLlamaCpp, "ray": api.RuntimeRayServe, "ray-llm": api.RuntimeRayServe, "ray-ml": api.RuntimeRayServe,
}

type reader func(ctx context.Context, image string) (*v1.Config, error)

// decide decides about a pod of our class. The user can fix an error.
//
//  1. It is wrapped already, or its image is known to be a function: leave it.
//  2. Its container has a command: wrap that.
//  3. Its image is a model server's by its name: no need to read it.
//  4. The image's configuration tells what it starts.
func decide(ctx context.Context, pod *corev1.Pod, annotations map[string]string, read reader) (verdict, error) {
	index := servingContainer(pod)
	if index < 0 || annotations[config.AnnotationInject] == "false" || pod.Annotations[config.AnnotationInjected] != "" || annotations[config.AnnotationEndpoint] != "" {
		return verdict{}, nil
	}
	c := &pod.Spec.Containers[index]
	if isFunction(c.Command) || repository(c.Image) == "rouse-function" { // 1.
		return verdict{}, nil
	}
	w := wrapping{container: c, annotations: annotations, kind: cmp.Or(annotations[config.AnnotationRuntime], value(c.Env, config.EnvRuntime))}
	if w.kind == api.RuntimeEngine {
		return verdict{}, nil
	}
	known := repositories[repository(c.Image)]
	w.kind = cmp.Or(w.kind, known)
	if _, server := programs[w.kind]; len(c.Command) == 0 && (known == "" || !server || w.kind == api.RuntimeLlamaCpp) { // 4.
		image, err := read(ctx, c.Image)
		switch {
		case errors.Is(err, errBusy):
			return verdict{}, err
		case err != nil && (!server || known == "" && annotations[config.AnnotationInject] != "true"):
			return verdict{missing: err.Error()}, nil
		case err == nil && annotations[config.AnnotationInject] != "true" && (isFunction(image.Entrypoint) || image.Labels[labelFunction] == "true"):
			return verdict{}, nil
		case err == nil:
			w.image = image
		}
	}
	p, err := w.plan()
	if err != nil {
		return verdict{}, err
	}
	p.container = index
	return verdict{plan: p}, nil
}

// labelFunction marks an image whose own program is a function under another name.
const labelFunction = "dev.rouse.function"

func servingContainer(pod *corev1.Pod) int {
	return slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		return c.Name != queueProxy && portOf(&c) != 0
	})
}

const queueProxy = "queue-proxy"

func portOf(c *corev1.Container) int32 {
	for _, p := range c.Ports {
		if p.Name == servingv1.UserPortName {
			return p.ContainerPort
		}
	}
	return 0
}

func isFunction(command []string) bool {
	if len(command) == 0 {
		return false
	}
	name := path.Base(command[0])
	return name == "rouse-function" || name == "rouse" && len(command) > 1 && command[1] == "function"
}

// repository returns the last part of an image's name, without tag and digest.
func repository(image string) string {
	image, _, _ = strings.Cut(image, "@")
	name := path.Base(image)
	name, _, _ = strings.Cut(name, ":")
	return name
}

func value(env []corev1.EnvVar, name string) string {
	for _, e := range env {
		if e.Name == name {
			return e.Value
		}
	}
	return ""
}

type wrapping struct {
	container   *corev1.Container
	annotations map[string]string
	kind        string
	image       *v1.Config // nil: it was not read
}

func (w *wrapping) plan() (*plan, error) {
	line := w.line()
	if w.kind == "" {
		w.kind = kindOf(line)
	}
	model := w.annotations[config.AnnotationModel] != "" || value(w.container.Env, config.EnvModel) != ""
	if w.kind == "" && model {
		w.kind = api.RuntimeCommand
	}
	var p *plan
	var err error
	switch server, found := programs[w.kind]; {
	case w.kind == "":
		return nil, fmt.Errorf("nothing says what the image %s runs: set the annotation %s, to %s for a server that knows nothing of models", w.container.Image, config.AnnotationRuntime, api.RuntimeHTTP)
	case found:
		p, err = w.server(server, line, model)
	case w.kind == api.RuntimeCommand, w.kind == api.RuntimeHTTP:
		if len(line) == 0 {
			return nil, fmt.Errorf("the image %s has neither an entrypoint nor a command: set the container's command", w.container.Image)
		}
		p = &plan{words: line, serves: true, everything: w.kind == api.RuntimeHTTP}
	default:
		return nil, fmt.Errorf("annotation %s: the runtime %q: want one of %s", config.AnnotationRuntime, w.kind, strings.Join(api.RuntimeKinds, ", "))
	}
	if err != nil {
		return nil, err
	}
	flags := []string{"--runtime=" + w.kind}
	if w.image != nil && w.image.StopSignal != "" {
		flags = append(flags, "--stop-signal="+w.image.StopSignal)
	}
	p.flags = append(flags, p.flags...)
	return p, nil
}

func (w *wrapping) line() []string {
	c := w.container
	switch {
	case len(c.Command) > 0:
		return slices.Concat(c.Command, c.Args)
	case w.image == nil:
		return c.Args
	case len(c.Args) > 0:
		return slices.Concat(literal(w.image.Entrypoint), c.Args)
	}
	return slices.Concat(literal(w.image.Entrypoint), literal(w.image.Cmd))
}

// literal escapes an image's words: Kubernetes expands $(NAME) in a pod's args only.
func literal(words []string) []string {
	out := make([]string, len(words))
	for i, word := range words {
		out[i] = strings.ReplaceAll(word, "$(", "$$(")
	}
	return out
}

func kindOf(line []string) string {
	for kind, p := range programs {
		if _, _, begins := p.begins(line); begins {
			return kind
		}
	}
	return ""
}

// begins splits a command line that starts the program into command and options.
func (p program) begins(line []string) (own, options []string, begins bool) {
	for _, words := range p.words {
		if len(line) >= len(words) && path.Base(line[0]) == words[0] && slices.Equal(line[1:len(words)], words[1:]) {
			return line[:len(words)], line[len(words):], true
		}
	}
	return nil, nil, false
}

// server wraps a model server that the function starts with options of its own.
func (w *wrapping) server(s program, line []string, model bool) (*plan, error) {
	p := &plan{}
	own, options, begins := s.begins(line)
	switch {
	case begins && path.IsAbs(own[0]) && !slices.Contains(own, "-m"):
		p.words = own // it may be in no folder of PATH
	case begins:
	case len(w.container.Command) > 0:
		return nil, fmt.Errorf("the container's command is %s, which is no way to start %s that its function knows: leave the command out, write it as %s, or set the annotation %s to %s",
			path.Base(line[0]), w.kind, strings.Join(s.words[0], " "), config.AnnotationRuntime, api.RuntimeCommand)
	default: // the image's entrypoint is something else, or was not read
		options = w.container.Args
		if _, rest, begins := s.begins(slices.Concat(s.words[0][:1], options)); begins && len(s.words[0]) > 1 { // the options begin with "serve"
			options = rest
		}
	}
	var named string
	var err error
	if p.flags, options, named, err = s.told(w.kind, options); err != nil {
		return nil, err
	}
	if named != "" && !model {
		p.flags = append(p.flags, "--model="+named)
	}
	p.words = append(slices.Clone(p.words), options...)
	return p, nil
}

// told moves options from the server to its function.
func (p program) told(kind string, options []string) (flags, rest []string, model string, err error) {
	for i := 0; i < len(options); i++ {
		name, given, has := strings.Cut(options[i], "=")
		flag, known := p.flags[name]
		isModel := slices.Contains(p.model, name)
		switch {
		case i == 0 && kind == api.RuntimeVLLM && !strings.HasPrefix(name, "-"):
			model = options[i]
			continue
		case !known && !isModel:
			rest = append(rest, options[i])
			continue
		case !has && i+1 == len(options):
			return nil, nil, "", fmt.Errorf("the option %s has no value", name)
		case !has:
			i++
			given = options[i]
		}
		if isModel {
			model = given
		} else if flag != "" {
			flags = append(flags, "--"+flag+"="+given)
		}
	}
	return flags, rest, model, nil
}

var errNoDigest = errors.New("it has no digest: its registry is one that Knative does not ask either (registries-skipping-tag-resolving in the ConfigMap config-deployment)")
