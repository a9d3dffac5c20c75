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
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/config"
	"github.com/rouse-dev/rouse/internal/flagset"
)

const injectorName = "rouse-injector"

type wanted struct {
	Model          string        `flag:"model" help:"the model's <reference> (required)"`
	Image          string        `flag:"image" help:"the container's <image> (default: the runtime's own)"`
	ServedName     string        `flag:"served-model-name" help:"the <name> that clients ask for (default: NAME)"`
	GPUs           int           `flag:"gpus" help:"how <many> GPUs an instance has (default: 1 for vllm and sglang)"`
	GPUMemory      string        `flag:"gpu-memory" help:"the <memory> that it needs of each, where several functions share them (default: all)"`
	GPUResource    string        `flag:"gpu-resource" help:"the <resource> under which nodes offer GPUs"`
	Memory         string        `flag:"memory" help:"the host <memory> that an instance asks for; asleep, vLLM and SGLang keep their weights there"`
	CPU            string        `flag:"cpu" help:"the <CPU> that an instance asks for"`
	SleepAfter     string        `flag:"sleep-after" help:"asleep after so <long> without a request (default: never)"`
	UnloadAfter    string        `flag:"unload-after" help:"without a pod after so <long> asleep (default: never)"`
	MinScale       int           `flag:"scale-min" help:"<instances> that stay awake"`
	MaxScale       int           `flag:"scale-max" help:"<instances> at most (default: 1)"`
	Env            []string      `flag:"env,e" help:"environment of the container: <NAME=VALUE> (repeatable)"`
	EnvFrom        []string      `flag:"env-from" help:"environment of all that a Secret or a ConfigMap has: <secret:NAME> or cm:NAME (repeatable)"`
	EnvValueFrom   []string      `flag:"env-value-from" help:"a variable of one key of a Secret or a ConfigMap: <NAME=secret:SECRET:KEY>, such as HF_TOKEN=secret:hub:token, or cm: (repeatable)"`
	Volumes        []string      `flag:"volume" help:"a volume: <NAME=pvc:CLAIM>, or secret:, cm:, emptyDir:NAME:size=SIZE,type=Memory (repeatable)"`
	Mounts         []string      `flag:"mount" help:"where a volume is in the container: <PATH=VOLUME>, or PATH=pvc:CLAIM, secret:, cm:, emptyDir: without --volume; /PATH behind it is a part of it (repeatable)"`
	ServiceAccount string        `flag:"service-account" help:"the <account> that its pods run as"`
	PullSecret     string        `flag:"pull-secret" help:"the <Secret> with which the image is pulled"`
	Args           []string      `flag:"arg" help:"an <argument> of the container, in the words of its image (repeatable)"`
	Annotations    []string      `flag:"annotation,a" help:"another annotation of the revision: <KEY=VALUE> (repeatable)"`
	NoCheck        bool          `flag:"no-check" help:"make it though the cluster has no such GPU or Secret, or no webhook for the image"`
	NoWait         bool          `flag:"no-wait" help:"do not wait until the Service is ready"`
	Print          bool          `flag:"print" help:"print the command of kn and change nothing"`
	Dry            bool          `flag:"dry-run" help:"print the command of kn, and let the cluster check the Service without making it"`
	Timeout        time.Duration `flag:"timeout" help:"how <long> to wait until the Service is ready"`
	name, runtime  string
}

func createCommand() *cobra.Command {
	w := wanted{GPUResource: "nvidia.com/gpu", Timeout: 2 * time.Minute}
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
				w.GPUs = -1
			}
			c, err := connect(cmd)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), w.Timeout, fmt.Errorf("not done within --timeout %s", w.Timeout))
			defer cancel()
			return (&creator{c, cmd.OutOrStdout(), cmd.ErrOrStderr()}).create(ctx, w)
		},
	}
	namespaceFlags(cmd, false)
	flagset.Add(cmd.Flags(), &w)
	cmd.Flags().StringVar(&w.runtime, "runtime", "", "what serves it: `one` of "+strings.Join(api.RuntimeKinds, ", ")+" (default: what the reference says)")
	return cmd
}

type creator struct {
	*cluster
	out, notes io.Writer // steps, and hints
}

func (c *creator) say(format string, args ...any) { fmt.Fprintf(c.out, format+"\n", args...) }

func (c *creator) note(format string, args ...any) {
	fmt.Fprintf(c.notes, "note: "+format+"\n", args...)
}

// create creates a function:
//
//  1. Determine what it is. The cluster is asked only for Rouse's own image.
//  2. Check that the autoscaler would serve it, the image can be a function, and GPU and the container's objects exist.
//     Checks without permission are skipped.
//  3. Print the kn command.
//  4. Create the Service. An existing one is left unchanged.
//  5. Wait for it.
func (c *creator) create(ctx context.Context, w wanted) error {
	n, kind, err := c.creation(ctx, w) // 1.
	if err != nil {
		return err
	}
	f, err := n.function() // 2.
	if err != nil {
		return err
	}
	if !w.NoCheck {
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
	if w.Print {
		return nil
	}
	if err := c.make(ctx, n, w.Dry); err != nil || w.Dry { // 4.
		return err
	}
	if w.NoWait {
		c.say("Service %s/%s is made", n.namespace, n.name)
		return nil
	}
	return c.ready(ctx, n) // 5.
}

// creation completes what the user wants from the model reference.
func (c *creator) creation(ctx context.Context, w wanted) (*creation, string, error) {
	if err := api.CheckName(w.name); err != nil {
		return nil, "", err
	}
	if w.Model == "" && w.runtime != api.RuntimeHTTP {
		return nil, "", errors.New("say which model: --model REF, such as pico, ORG/NAME, ollama://NAME or the URL of a GGUF file")
	}
	kind, model := w.runtime, ""
	var err error
	if w.Model != "" {
		if kind, model, err = choose(w.Model, w.runtime, w.Image != ""); err != nil {
			return nil, "", err
		}
	}
	onGPU := kind == api.RuntimeVLLM || kind == api.RuntimeSGLang
	switch {
	case w.GPUs < 0 && onGPU:
		w.GPUs = 1
	case w.GPUs < 0:
		w.GPUs = 0
	}
	n := newCreation(c.namespace, w.name)
	if err := n.fill(w); err != nil {
		return nil, "", err
	}
	n.describe(kind, model)
	if w.GPUs > 0 && onGPU {
		if err := n.addSharedMemory(); err != nil {
			return nil, "", err
		}
	}
	for _, a := range [][2]string{{config.AnnotationServedName, w.ServedName}, {config.AnnotationDeviceMemory, w.GPUMemory}, {config.AnnotationSleepAfter, w.SleepAfter}, {config.AnnotationUnloadAfter, w.UnloadAfter}} {
		if a[1] != "" {
			n.annotate(a[0], a[1])
		}
	}
	for _, a := range w.Annotations {
		key, value, found := strings.Cut(a, "=")
		if !found || key == "" {
			return nil, "", fmt.Errorf("--annotation %s: want KEY=VALUE", a)
		}
		n.annotate(key, value)
	}
	image := w.Image
	if image == "" {
		if image, err = c.imageOf(ctx, kind); err != nil {
			return nil, "", err
		}
	}
	n.add("image", image)
	n.container().Image = image
	return n, kind, nil
}

func (n *creation) fill(w wanted) error {
	for flag, value := range map[string]int{"scale-min": w.MinScale, "scale-max": w.MaxScale} {
		if value > 0 {
			n.add(flag, fmt.Sprint(value))
		}
	}
	for _, r := range []struct{ name, amount string }{{"cpu", w.CPU}, {"memory", w.Memory}} {
		if err := n.request(corev1.ResourceName(r.name), r.amount); err != nil {
			return err
		}
	}
	if w.GPUs > 0 {
		n.add("limit", fmt.Sprintf("%s=%d", w.GPUResource, w.GPUs))
		n.container().Resources.Limits = corev1.ResourceList{corev1.ResourceName(w.GPUResource): *resource.NewQuantity(int64(w.GPUs), resource.DecimalSI)}
	}
	for _, part := range []struct {
		values []string
		add    func(string) error
	}{{w.Env, n.addEnv}, {w.EnvFrom, n.addEnvFrom}, {w.EnvValueFrom, n.addEnvValueFrom}, {w.Volumes, n.addVolume}, {w.Mounts, n.addMount}} {
		for _, v := range part.values {
			if err := part.add(v); err != nil {
				return err
			}
		}
	}
	n.container().Args, n.flags["arg"] = w.Args, w.Args
	return n.account(w.ServiceAccount, w.PullSecret)
}

// ownImage returns the rouse-function image beside the installed activator's.
func (c *creator) ownImage(ctx context.Context) (string, error) {
	d, err := get[appsv1.Deployment](ctx, c.cluster, deployments, control.SystemNamespace, control.ActivatorName)
	switch {
	case apierrors.IsNotFound(err):
		return "", errNotInstalled
	case err != nil:
		return "", fmt.Errorf("%w\nor say --image: it is rouse-function, where the images of Rouse are", err)
	}
	for _, container := range d.Spec.Template.Spec.Containers {
		image, _, _ := strings.Cut(container.Image, "@")
		if folder, last := path.Split(image); strings.HasPrefix(last, control.ActivatorName) && !strings.Contains(container.Image, "@") {
			return folder + functionImage + strings.TrimPrefix(last, control.ActivatorName), nil
		}
	}
	return "", fmt.Errorf("the Deployment %s has no image %s:TAG by which that of functions could be found: say --image", control.ActivatorName, control.ActivatorName)
}

const functionImage = "rouse-function"

func (c *creator) checkImage(ctx context.Context, kind, image string) error {
	if images[kind] != image { // the engine's, or the user's own, which may contain a function
		return nil
	}
	_, err := get[metav1.PartialObjectMetadata](ctx, c.cluster, mutatingWebhooks, "", injectorName)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("the image %s has no function in it, and this cluster does not bring one in: the component any-image does ("+componentsHelp+"), or say --image with an image that has one (docs/functions-cluster.md)", image)
	case err != nil:
		c.note("whether the component any-image is installed, which the image %s needs, was not seen: %v", image, err)
	}
	return nil
}

// checkCluster asks the autoscaler for GPUs, and for others with the model's name.
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

func (c *creator) occupied(ctx context.Context, n *creation) error {
	s, err := get[knObject](ctx, c.cluster, services, n.namespace, n.name)
	what := ""
	if err == nil {
		what = " (which is no function)"
		if class, err := c.class(ctx, s); err == nil && class == config.Class {
			what = " (of the model " + cmp.Or(s.Spec.Template.Metadata.Annotations[config.AnnotationModel], "that its image has") + ")"
		}
	}
	return fmt.Errorf("there is a Service %s/%s already%s, and it was not changed: choose another name, change it with `kn service update %[2]s`, or delete it with `kn service delete %[2]s` first", n.namespace, n.name, what)
}

// window is how many consecutive polls must find that a Service can't become ready: while its parts are created it may
// seem so.
const window = 5

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
			switch cond.Status {
			case "True":
				c.say("Service %s/%s is ready: %s", n.namespace, n.name, s.Status.URL)
				return true, nil
			case "False":
				if refused++; refused >= window {
					return false, fmt.Errorf("the Service %s/%s can't become ready: %s; mend it with `kn service update %[2]s`", n.namespace, n.name, cond.Message)
				}
			default:
				refused = 0
			}
		}
		return false, nil
	}, func() string { return last })
}

// until polls until done, a permanent error, or the end of ctx, whose error has where. Errors of a busy cluster count
// as "not yet".
func until(ctx context.Context, done func(context.Context) (bool, error), where func() string) error {
	err := wait.PollUntilContextCancel(ctx, 500*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		found, err := done(ctx)
		passing := apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsInternalError(err) || apierrors.IsConflict(err)
		if err != nil && (ctx.Err() != nil || passing) {
			return false, nil // it is tried again
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
