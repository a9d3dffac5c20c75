package kn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/api/control"
)

// injectorName is the webhook that brings the function into other images.
const injectorName = "rouse-injector"

// wanted is the user's description of a function to create.
type wanted struct {
	name, model, runtime, image string
	servedName                  string
	gpus                        int
	gpuMemory, gpuResource      string
	memory, cpu                 string
	sleepAfter, unloadAfter     string
	minScale, maxScale          int
	env, args, annotations      []string
	envFrom, envValueFrom       []string
	volumes, mounts             []string
	serviceAccount, pullSecret  string
	noCheck, noWait, print, dry bool
	timeout                     time.Duration
}

func createCommand() *cobra.Command {
	var w wanted
	cmd := &cobra.Command{
		Use:   "create NAME --model REF",
		Short: "Make a function that serves a model",
		Long: `Make a function that serves a model: the short way to the ` + "`kn service create`" + ` that
it prints. What serves the model follows from the reference, unless --runtime says it:
GGUF files and the model that ships with Rouse are the engine's, ollama://NAME is
Ollama's, ORG/NAME of a hub is vLLM's. Secrets, ConfigMaps and volumes are named as kn
names them. Whatever kn can say besides (a node, a probe) is added to the printed command,
or to the Service by ` + "`kn service update`" + `.`,
		Example: `  kn rouse create tiny --model pico
  kn rouse create qwen --model hf.co/Qwen/Qwen2.5-0.5B-Instruct-GGUF:q8_0 --memory 2Gi
  # vLLM on a GPU that others use too
  kn rouse create chat --model Qwen/Qwen3-0.6B --gpu-memory 12Gi --memory 16Gi --sleep-after 5m
  # a gated model, with the token of a Secret, kept on a volume
  kn rouse create llama --model meta-llama/Llama-3.2-1B --env-value-from HF_TOKEN=secret:hub:token --mount /root/.cache/huggingface=pvc:models
  # only the command
  kn rouse create llama --model ollama://llama3.2:1b --print`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			w.name = args[0]
			if !cmd.Flags().Changed("gpus") {
				w.gpus = -1
			}
			c, err := connect(cmd)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), w.timeout, fmt.Errorf("not done within --timeout %s", w.timeout))
			defer cancel()
			return (&creator{c, cmd.OutOrStdout(), cmd.ErrOrStderr()}).create(ctx, w)
		},
	}
	namespaceFlags(cmd, false)
	f := cmd.Flags()
	f.StringVar(&w.model, "model", "", "the model's `reference` (required)")
	f.StringVar(&w.runtime, "runtime", "", "what serves it: `one` of "+strings.Join(api.RuntimeKinds, ", ")+" (default: what the reference says)")
	f.StringVar(&w.image, "image", "", "the container's `image` (default: the runtime's own)")
	f.StringVar(&w.servedName, "served-model-name", "", "the `name` that clients ask for (default: NAME)")
	f.IntVar(&w.gpus, "gpus", 0, "how `many` GPUs an instance has (default: 1 for vllm and sglang)")
	f.StringVar(&w.gpuMemory, "gpu-memory", "", "the `memory` that it needs of each, where several functions share them (default: all)")
	f.StringVar(&w.gpuResource, "gpu-resource", "nvidia.com/gpu", "the `resource` under which nodes offer GPUs")
	f.StringVar(&w.memory, "memory", "", "the host `memory` that an instance asks for; asleep, vLLM and SGLang keep their weights there")
	f.StringVar(&w.cpu, "cpu", "", "the `CPU` that an instance asks for")
	f.StringVar(&w.sleepAfter, "sleep-after", "", "asleep after so `long` without a request (default: never)")
	f.StringVar(&w.unloadAfter, "unload-after", "", "without a pod after so `long` asleep (default: never)")
	f.IntVar(&w.minScale, "scale-min", 0, "`instances` that stay awake")
	f.IntVar(&w.maxScale, "scale-max", 0, "`instances` at most (default: 1)")
	f.StringArrayVarP(&w.env, "env", "e", nil, "environment of the container: `NAME=VALUE` (repeatable)")
	f.StringArrayVar(&w.envFrom, "env-from", nil, "environment of all that a Secret or a ConfigMap has: `secret:NAME` or cm:NAME (repeatable)")
	f.StringArrayVar(&w.envValueFrom, "env-value-from", nil, "a variable of one key of a Secret or a ConfigMap: `NAME=secret:SECRET:KEY`, such as HF_TOKEN=secret:hub:token, or cm: (repeatable)")
	f.StringArrayVar(&w.volumes, "volume", nil, "a volume: `NAME=pvc:CLAIM`, or secret:, cm:, emptyDir:NAME:size=SIZE,type=Memory (repeatable)")
	f.StringArrayVar(&w.mounts, "mount", nil, "where a volume is in the container: `PATH=VOLUME`, or PATH=pvc:CLAIM, secret:, cm:, emptyDir: without --volume; /PATH behind it is a part of it (repeatable)")
	f.StringVar(&w.serviceAccount, "service-account", "", "the `account` that its pods run as")
	f.StringVar(&w.pullSecret, "pull-secret", "", "the `Secret` with which the image is pulled")
	f.StringArrayVar(&w.args, "arg", nil, "an `argument` of the container, in the words of its image (repeatable)")
	f.StringArrayVarP(&w.annotations, "annotation", "a", nil, "another annotation of the revision: `KEY=VALUE` (repeatable)")
	f.BoolVar(&w.noCheck, "no-check", false, "make it though the cluster has no such GPU or Secret, or no webhook for the image")
	f.BoolVar(&w.noWait, "no-wait", false, "do not wait until the Service is ready")
	f.BoolVar(&w.print, "print", false, "print the command of kn and change nothing")
	f.BoolVar(&w.dry, "dry-run", false, "print the command of kn, and let the cluster check the Service without making it")
	f.DurationVar(&w.timeout, "timeout", 2*time.Minute, "how `long` to wait until the Service is ready")
	return cmd
}

// creator creates functions, and prints its steps. Hints go to notes.
type creator struct {
	*cluster
	out, notes io.Writer
}

func (c *creator) say(format string, args ...any) { fmt.Fprintf(c.out, format+"\n", args...) }

func (c *creator) note(format string, args ...any) {
	fmt.Fprintf(c.notes, "note: "+format+"\n", args...)
}

// create creates a function:
//
//  1. Determine what it is. The cluster is asked only for the place of Rouse's own image.
//  2. Check whether the autoscaler would serve it, the image can be a function, there is a GPU of that size, and the container's
//     objects exist. Checks that the user has no permission for are skipped, with a message.
//  3. Print the kn command.
//  4. Create the Service. An existing one of that name is left unchanged.
//  5. Wait for it; a Service that can't become ready says why.
func (c *creator) create(ctx context.Context, w wanted) error {
	n, kind, err := c.creation(ctx, w) // 1.
	if err != nil {
		return err
	}
	f, err := n.function() // 2.
	if err != nil {
		return err
	}
	if !w.noCheck {
		if err := c.checkImage(ctx, kind, n.container().Image); err != nil {
			return err
		}
		if err := c.checkCluster(ctx, f); err != nil {
			return err
		}
		if err := c.checkParts(ctx, n); err != nil {
			return err
		}
	}
	c.say("%s", n.command()) // 3.
	if w.print {
		return nil
	}
	if err := c.make(ctx, n, w.dry); err != nil || w.dry { // 4.
		return err
	}
	if w.noWait {
		c.say("Service %s/%s is made", n.namespace, n.name)
		return nil
	}
	return c.ready(ctx, n) // 5.
}

// creation returns what the user wants, completed from the model reference.
func (c *creator) creation(ctx context.Context, w wanted) (*creation, string, error) {
	if err := api.CheckName(w.name); err != nil {
		return nil, "", err
	}
	if w.model == "" && w.runtime != api.RuntimeHTTP {
		return nil, "", errors.New("say which model: --model REF, such as pico, ORG/NAME, ollama://NAME or the URL of a GGUF file")
	}
	kind, model := w.runtime, ""
	var err error
	if w.model != "" {
		if kind, model, err = choose(w.model, w.runtime, w.image != ""); err != nil {
			return nil, "", err
		}
	}
	if w.gpus < 0 {
		w.gpus = 0
		if kind == api.RuntimeVLLM || kind == api.RuntimeSGLang {
			w.gpus = 1
		}
	}
	n := newCreation(c.namespace, w.name)
	if err := n.fill(w); err != nil {
		return nil, "", err
	}
	n.describe(kind, model)
	if w.gpus > 0 && (kind == api.RuntimeVLLM || kind == api.RuntimeSGLang) {
		if err := n.addSharedMemory(); err != nil {
			return nil, "", err
		}
	}
	for _, a := range [][2]string{{api.AnnotationServedName, w.servedName}, {api.AnnotationDeviceMemory, w.gpuMemory}, {api.AnnotationSleepAfter, w.sleepAfter}, {api.AnnotationUnloadAfter, w.unloadAfter}} {
		if a[1] != "" {
			n.annotate(a[0], a[1])
		}
	}
	for _, a := range w.annotations {
		key, value, found := strings.Cut(a, "=")
		if !found || key == "" {
			return nil, "", fmt.Errorf("--annotation %s: want KEY=VALUE", a)
		}
		n.annotate(key, value)
	}
	image, ours := w.image, ""
	if image == "" {
		if kind == api.RuntimeEngine {
			if ours, err = c.ownImage(ctx); err != nil {
				return nil, "", err
			}
		}
		if image, err = imageOf(kind, ours); err != nil {
			return nil, "", err
		}
	}
	n.setImage(image)
	return n, kind, nil
}

// fill adds what flags say of the container and its pods.
func (n *creation) fill(w wanted) error {
	n.setScale(w.minScale, w.maxScale)
	for _, r := range []struct{ name, amount string }{{"cpu", w.cpu}, {"memory", w.memory}} {
		if err := n.request(corev1.ResourceName(r.name), r.amount); err != nil {
			return err
		}
	}
	n.limit(w.gpuResource, w.gpus)
	for _, part := range []struct {
		values []string
		add    func(string) error
	}{{w.env, n.addEnv}, {w.envFrom, n.addEnvFrom}, {w.envValueFrom, n.addEnvValueFrom}, {w.volumes, n.addVolume}, {w.mounts, n.addMount}} {
		for _, v := range part.values {
			if err := part.add(v); err != nil {
				return err
			}
		}
	}
	n.container().Args, n.flags["arg"] = w.args, w.args
	return n.account(w.serviceAccount, w.pullSecret)
}

// ownImage returns the rouse-function image in the registry of the installed activator's image.
func (c *creator) ownImage(ctx context.Context) (string, error) {
	d, err := c.kube.AppsV1().Deployments(control.SystemNamespace).Get(ctx, control.ActivatorName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", errNotInstalled
	case err != nil:
		return "", fmt.Errorf("%w\nor say --image: it is rouse-function, where the images of Rouse are", refusal(err, "get", deployments, control.SystemNamespace, control.ActivatorName))
	}
	for _, container := range d.Spec.Template.Spec.Containers {
		image, _, _ := strings.Cut(container.Image, "@")
		if folder, last := path.Split(image); strings.HasPrefix(last, control.ActivatorName) && !strings.Contains(container.Image, "@") {
			return folder + functionImage + strings.TrimPrefix(last, control.ActivatorName), nil
		}
	}
	return "", fmt.Errorf("the Deployment %s has no image %s:TAG by which that of functions could be found: say --image", control.ActivatorName, control.ActivatorName)
}

// functionImage is the last part of the name of Rouse's own image for functions.
const functionImage = "rouse-function"

// checkImage says why an image can't be a function here.
func (c *creator) checkImage(ctx context.Context, kind, image string) error {
	if published := images[kind]; published == "" || published != image { // the engine's, or the user's own, which may contain a function
		return nil
	}
	_, err := c.kube.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, injectorName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("the image %s has no function in it, and this cluster does not bring one in: the component any-image does ("+componentsHelp+"), or say --image with an image that has one (docs/functions-cluster.md)", image)
	case err != nil:
		c.note("whether the component any-image is installed, which the image %s needs, was not seen: %v", image, err)
	}
	return nil
}

// checkCluster asks the autoscaler whether the GPUs exist, and which other function has the model's name.
func (c *creator) checkCluster(ctx context.Context, f api.Function) error {
	var devices []admin.Device
	var functions []admin.Function
	d, err := c.door(ctx)
	if err == nil {
		err = d.Call(ctx, http.MethodGet, admin.PathDevices, nil, &devices)
	}
	if err == nil {
		err = d.Call(ctx, http.MethodGet, admin.PathFunctions, nil, &functions)
	}
	switch {
	case errors.Is(err, errNotInstalled):
		return err
	case err != nil:
		c.note("GPUs and names were not checked: %v", err)
		return nil
	}
	if err := fits(devices, f.Memory); err != nil {
		return err
	}
	if others := sameModel(functions, f); len(others) > 0 {
		c.note("the model name %s is that of %s too: the front door sends it to the oldest; --served-model-name gives another", f.Model, strings.Join(others, ", "))
	}
	return nil
}

// make creates the Service.
func (c *creator) make(ctx context.Context, n *creation, dry bool) error {
	opts := metav1.CreateOptions{FieldManager: "kn-rouse"}
	if dry {
		opts.DryRun = []string{metav1.DryRunAll}
	}
	s, err := n.service()
	if err != nil {
		return err
	}
	_, err = c.dyn.Resource(services).Namespace(n.namespace).Create(ctx, s, opts)
	switch {
	case apierrors.IsAlreadyExists(err):
		return c.occupied(ctx, n)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("make the Service: %w: is Knative Serving installed, and is there a namespace %s?", err, n.namespace)
	case err != nil:
		return refusal(err, "create", services, n.namespace, n.name)
	case dry:
		c.say("the cluster would take it; nothing was made")
	}
	return nil
}

// occupied says what has the name.
func (c *creator) occupied(ctx context.Context, n *creation) error {
	s, err := get[knObject](ctx, c.cluster, services, n.namespace, n.name)
	what := ""
	if err == nil {
		what = " (which is no function)"
		if class, err := c.class(ctx, s); err == nil && class == api.Class {
			what = " (of the model " + cmp.Or(s.Spec.Template.Metadata.Annotations[api.AnnotationModel], "that its image has") + ")"
		}
	}
	return fmt.Errorf("there is a Service %s/%s already%s, and it was not changed: choose another name, change it with `kn service update %[2]s`, or delete it with `kn service delete %[2]s` first", n.namespace, n.name, what)
}

// window is how many consecutive polls must find that a Service can't become ready: while its parts are created it may seem so.
const window = 5

// ready waits until the Service is ready.
func (c *creator) ready(ctx context.Context, n *creation) error {
	c.say("Service %s/%s is made; waiting until it is ready", n.namespace, n.name)
	last, refused := "", 0
	return until(ctx, func(ctx context.Context) (bool, error) {
		s, err := get[knObject](ctx, c.cluster, services, n.namespace, n.name)
		if err != nil {
			return false, err
		}
		for _, cond := range s.Status.Conditions {
			if cond.Type != "Ready" {
				continue
			}
			last = cond.Message
			if cond.Status != "False" {
				refused = 0
			}
			switch cond.Status {
			case "True":
				c.say("Service %s/%s is ready: %s", n.namespace, n.name, s.Status.URL)
				return true, nil
			case "False":
				if refused++; refused < window {
					return false, nil
				}
				return false, fmt.Errorf("the Service %s/%s can't become ready: %s; mend it with `kn service update %[2]s`", n.namespace, n.name, cond.Message)
			}
		}
		return false, nil
	}, func() string { return last })
}

// until polls twice a second until done, a permanent error, or the end of ctx; then where describes the state. Errors of a busy
// cluster count as "not yet".
func until(ctx context.Context, done func(context.Context) (bool, error), where func() string) error {
	err := wait.PollUntilContextCancel(ctx, 500*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		found, err := done(ctx)
		if err != nil && (ctx.Err() != nil || passing(err)) {
			return false, nil //nolint:nilerr // it is tried again
		}
		return found, err
	})
	switch {
	case ctx.Err() == nil || err == nil:
		return err
	case where() != "":
		return fmt.Errorf("%w: %s", context.Cause(ctx), where())
	}
	return context.Cause(ctx)
}

// passing reports whether an error of the API server may be temporary.
func passing(err error) bool {
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsInternalError(err) || apierrors.IsConflict(err)
}
