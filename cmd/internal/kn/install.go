package kn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler/settings"
	"github.com/rouse-dev/rouse/cmd/internal/render"
	"github.com/rouse-dev/rouse/manifests"
)

// manifestRegistry and manifestTag are those of the images in the manifests.
const (
	manifestRegistry = "dev.local"
	manifestTag      = "v1"
)

// Registry is set by the linker for releases: where their images are.
var Registry = ""

// defaultImages is where the images are if the person says nothing: a release's are of its own version.
func defaultImages() (registry, tag string) {
	if Registry != "" && Version != "" {
		return Registry, Version
	}
	return manifestRegistry, manifestTag
}

// installer installs and removes, and says so line by line.
type installer struct {
	*cluster
	out io.Writer
	// pause is the time between two looks at the cluster.
	pause time.Duration
}

// say prints a line of progress.
func (i *installer) say(format string, args ...any) { fmt.Fprintf(i.out, format+"\n", args...) }

// plan is what install is to do.
type plan struct {
	overlay, registry, tag string
	components             []string
	anyKnative             bool
}

func installCommand() *cobra.Command {
	var p plan
	var dry, check bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install Rouse in the cluster, or bring it to this version",
		Long: `Install Rouse beside Knative Serving, or bring it to this version. Nothing of
Knative is replaced: Rouse's activator takes the place of Knative's by one change of
a Service's selector, once it is ready, and ` + "`kn rouse uninstall`" + ` changes it back.
Services of other classes are served on as before.`,
		Example: `  kn rouse install
  # images of one's own
  kn rouse install --registry ghcr.io/me --tag v2
  # what would be applied
  kn rouse install --overlay time-slicing --dry-run
  # what the cluster has and lacks, before or after
  kn rouse install --component any-image --check`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if check {
				return checkCluster(cmd, p, timeout)
			}
			stream, err := p.render()
			if err != nil {
				return err
			}
			if dry {
				_, err := cmd.OutOrStdout().Write(stream)
				return err
			}
			c, err := connect(cmd)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), timeout, fmt.Errorf("not done within --timeout %s; run it again to go on", timeout))
			defer cancel()
			return (&installer{c, cmd.OutOrStdout(), time.Second}).install(ctx, stream, p.anyKnative)
		},
	}
	f := cmd.Flags()
	registry, tag := defaultImages()
	f.StringVar(&p.overlay, "overlay", "default", "what to install: `one` of "+strings.Join(manifests.Overlays(), ", "))
	f.StringSliceVar(&p.components, "component", nil, "what to add (repeatable): `one` of "+strings.Join(manifests.Components(), ", "))
	f.StringVar(&p.registry, "registry", registry, "the `registry` and folder that the images rouse-activator, rouse-autoscaler and rouse-function lie in")
	f.StringVar(&p.tag, "tag", tag, "the images' `tag`")
	f.BoolVar(&p.anyKnative, "any-knative", false, "install beside a version of Knative Serving that Rouse was not made for, too")
	f.BoolVar(&dry, "dry-run", false, "print the manifests and change nothing")
	f.BoolVar(&check, "check", false, "say what the cluster has and lacks, and how to mend it; change nothing. Exit status 1: something is missing")
	render.Flag(cmd)
	cmd.Flags().Lookup("output").Usage = "`format` of what --check finds: text, json or yaml"
	f.DurationVar(&timeout, "timeout", 5*time.Minute, "how `long` to wait until all is there")
	return cmd
}

// render makes the manifests.
func (p plan) render() ([]byte, error) {
	images := map[string]string{}
	for _, name := range []string{control.ActivatorName, control.AutoscalerName, "rouse-function"} {
		images[manifestRegistry+"/"+name] = strings.TrimSuffix(p.registry, "/") + "/" + name + ":" + p.tag
	}
	return manifests.Render(p.overlay, images, p.components...)
}

// install brings the cluster to what the manifests say:
//
//  1. Is Knative Serving there, and of a version that Rouse works with?
//  2. May this person do it, and does the cluster take every object? Nothing has
//     been changed until here.
//  3. Apply, then delete what an older version had and this one has not. Who needed no key before needs none now.
//  4. Wait until the Deployments are available and the data path is Rouse's.
func (i *installer) install(ctx context.Context, stream []byte, anyKnative bool) error {
	version, err := i.knative(ctx, anyKnative) // 1.
	if err != nil {
		return err
	}
	i.say("Knative Serving %s is there", orUnknown(version))
	objects, err := i.parse(stream)
	if err != nil {
		return err
	}
	if err := i.check(ctx, objects); err != nil { // 2.
		return err
	}
	if err := i.letIn(ctx); err != nil { // 3.
		return err
	}
	for _, o := range objects {
		if err := i.apply(ctx, o, false); err != nil {
			return fmt.Errorf("%w\nrun it again once that is put right; stock Knative is as it was", err)
		}
		i.say("applied %s", o)
	}
	if err := i.prune(ctx, objects); err != nil {
		return err
	}
	if err := settings.Allow(ctx, i.kube); err != nil { // an uninstall that was not finished forbade it
		return fmt.Errorf("allow the take-over: %w", err)
	}
	for _, o := range objects { // 4.
		if o.GetKind() == "Deployment" {
			if err := i.available(ctx, o); err != nil {
				return err
			}
		}
	}
	if err := i.taken(ctx); err != nil {
		return err
	}
	i.sayKeys(ctx)
	i.say("Rouse is installed: Services with the annotation autoscaling.knative.dev/class=gpu.autoscaling.rouse.dev are functions now")
	return nil
}

func orUnknown(version string) string {
	if version == "" {
		return "(of an unknown version)"
	}
	return version
}

// check finds out whether every object can be applied, without changing one.
func (i *installer) check(ctx context.Context, objects []object) error {
	var rights []right
	for _, o := range objects {
		for _, verb := range []string{"get", "create", "patch"} {
			rights = append(rights, right{verb: verb, group: o.resource.Group, resource: o.resource.Resource, namespace: o.namespace})
		}
	}
	if err := i.require(ctx, "install Rouse", rights); err != nil {
		return err
	}
	var refused []error
	for _, o := range objects {
		if err := i.apply(ctx, o, true); err != nil {
			refused = append(refused, err)
		}
	}
	if len(refused) > 0 {
		return fmt.Errorf("the cluster would not take this; nothing was changed:\n%w", errors.Join(refused...))
	}
	i.say("checked %d objects: the cluster takes them", len(objects))
	return nil
}

// prune deletes what another version or overlay has left.
func (i *installer) prune(ctx context.Context, keep []object) error {
	kept := map[string]bool{}
	for _, o := range keep {
		kept[o.id()] = true
	}
	there, err := i.ours(ctx, false)
	if err != nil {
		return fmt.Errorf("look for what an older version has left: %w", err)
	}
	for _, o := range slices.Backward(there) { // a webhook goes before what answers it
		if kept[o.id()] {
			continue
		}
		if err := i.remove(ctx, o); err != nil {
			return err
		}
		i.say("deleted %s: this version has none", o)
	}
	return nil
}

// available waits until a Deployment has its new pods, and says what keeps them.
func (i *installer) available(ctx context.Context, o object) error {
	last := ""
	return i.until(ctx, func(ctx context.Context) (bool, error) {
		d, err := i.kube.AppsV1().Deployments(o.namespace).Get(ctx, o.GetName(), metav1.GetOptions{})
		if err != nil {
			return false, refusal(err, "get", deployments, o.namespace, o.GetName())
		}
		want := int32(1)
		if d.Spec.Replicas != nil {
			want = *d.Spec.Replicas
		}
		s := d.Status
		if s.ObservedGeneration >= d.Generation && s.UpdatedReplicas >= want && s.AvailableReplicas >= want && s.Replicas == s.UpdatedReplicas {
			i.say("%s: %d of %d available", o, s.AvailableReplicas, want)
			return true, nil
		}
		line := fmt.Sprintf("%s: %d of %d available", o, min(s.AvailableReplicas, s.UpdatedReplicas), want)
		if trouble := i.trouble(ctx, o.namespace, "app="+o.GetName()); trouble != "" {
			line += "; " + trouble
		}
		if line != last {
			i.say("%s", line)
			last = line
		}
		return false, nil
	}, func() string { return last })
}

// taken waits until requests go through Rouse's activator.
func (i *installer) taken(ctx context.Context) error {
	i.say("waiting for Rouse's activator to take its place")
	err := i.until(ctx, func(ctx context.Context) (bool, error) {
		s, err := i.kube.CoreV1().Services(control.SystemNamespace).Get(ctx, settings.Service, metav1.GetOptions{})
		if err != nil {
			return false, refusal(err, "get", kubeServices, control.SystemNamespace, settings.Service)
		}
		return s.Spec.Selector["app"] == control.ActivatorName, nil
	}, func() string {
		return fmt.Sprintf("Service %s still points at Knative's own activator: the autoscaler's log says why (kubectl logs -n %s -l app=%s)", settings.Service, control.SystemNamespace, control.AutoscalerName)
	})
	if err == nil {
		i.say("Service %s points at Rouse's activator", settings.Service)
	}
	return err
}

// until looks again and again until done, an error that another look does not mend, or
// the end of ctx; then where says where it stood. Errors of a cluster that is busy count as "not yet".
func (i *installer) until(ctx context.Context, done func(context.Context) (bool, error), where func() string) error {
	tick := time.NewTicker(i.pause)
	defer tick.Stop()
	for {
		found, err := done(ctx)
		switch {
		case found:
			return nil
		case err != nil && ctx.Err() == nil && !passing(err):
			return err
		}
		select {
		case <-ctx.Done():
			if at := where(); at != "" {
				return fmt.Errorf("%w: %s", context.Cause(ctx), at)
			}
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// passing says whether an error of the API server may go away by itself.
func passing(err error) bool {
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsInternalError(err) || apierrors.IsConflict(err)
}

// trouble says what keeps the pods of a selector from being ready; empty: nothing that shows.
func (i *installer) trouble(ctx context.Context, namespace, selector string) string {
	list, err := i.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return ""
	}
	for _, p := range list.Items {
		for _, c := range p.Status.ContainerStatuses {
			if w := c.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
				return strings.TrimSpace(p.Name + ": " + w.Reason + " " + w.Message + hint(w.Reason))
			}
		}
		for _, c := range p.Status.Conditions {
			if c.Type == "PodScheduled" && c.Status == "False" {
				return p.Name + ": " + c.Reason + " " + c.Message
			}
		}
	}
	return ""
}

// hint says what a person can do about a container that does not start.
func hint(reason string) string {
	switch reason {
	case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull":
		return " (--registry and --tag say where the images are)"
	case "CrashLoopBackOff":
		return " (kubectl logs --previous shows its last words)"
	}
	return ""
}
