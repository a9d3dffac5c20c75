package kn

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler/settings"
)

func uninstallCommand() *cobra.Command {
	var force bool
	var grace, timeout time.Duration
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Give Knative its activator back and remove Rouse from the cluster",
		Long: `Give Knative's activator its Service back, wait until requests go there, and only
then delete what install has made. Services of other classes lose no request. It
finishes what was begun otherwise, too: run it after ` + "`kubectl delete -k`" + `.`,
		Example: `  kn rouse uninstall
  # though there are functions
  kn rouse uninstall --force`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := connect(cmd)
			if err != nil {
				return err
			}
			if grace < 0 {
				return fmt.Errorf("--grace %s: want zero or more", grace)
			}
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), timeout, fmt.Errorf("not done within --timeout %s; run it again to go on", timeout))
			defer cancel()
			return (&installer{c, cmd.OutOrStdout(), time.Second}).uninstall(ctx, force, grace)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "though there are functions")
	cmd.Flags().DurationVar(&grace, "grace", 10*time.Second, "how `long` requests that are under way have before Rouse's activator is told to end (it finishes them all the same)")
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "how `long` it may take")
	return cmd
}

// uninstall brings the cluster back to stock Knative:
//
//  1. Are there functions? They would be left without the parts that wake them.
//  2. Knative's Service and ConfigMaps are given back, if Knative's own activator is ready;
//     the autoscaler leaves them alone from then on.
//  3. Once nothing sends requests to Rouse's activator any more, and a grace for those
//     under way, it goes: it finishes what it has, for which the autoscaler still wakes.
//  4. The autoscaler goes, and then what it made for dual pods.
//  5. All else goes, the rights of what was deleted last.
func (i *installer) uninstall(ctx context.Context, force bool, grace time.Duration) error {
	if err := i.unneeded(ctx, force); err != nil { // 1.
		return err
	}
	there, err := i.remains(ctx)
	if err != nil {
		return err
	}
	if err := i.mayRemove(ctx, there); err != nil {
		return err
	}
	autoscaler := named(there, "Deployment", control.AutoscalerName)
	activator := named(there, "Deployment", control.ActivatorName)
	given, err := i.giveBack(ctx) // 2.
	if err != nil {
		return err
	}
	if len(activator) > 0 { // 3.
		i.say("waiting %s for requests that are under way", grace)
		if err := wait(ctx, grace); err != nil {
			return err
		}
	}
	for _, o := range activator {
		if err := i.end(ctx, o); err != nil {
			return err
		}
	}
	if err := i.finished(ctx, control.ActivatorName); err != nil {
		return err
	}
	for _, o := range autoscaler { // 4.
		if err := i.end(ctx, o); err != nil {
			return err
		}
	}
	if err := i.finished(ctx, control.AutoscalerName); err != nil { // it would make its lease again
		return err
	}
	if err := i.endPairs(ctx); err != nil {
		return err
	}
	slices.Reverse(there) // 5.
	for _, o := range without(there, append(activator, autoscaler...)) {
		if err := i.end(ctx, o); err != nil {
			return err
		}
	}
	if len(there) == 0 && !given {
		i.say("this cluster has no Rouse: there was nothing to remove")
		return nil
	}
	i.say("Rouse is removed: the cluster is stock Knative again")
	return nil
}

// unneeded refuses while there are functions, unless it is forced.
func (i *installer) unneeded(ctx context.Context, force bool) error {
	all, err := list[knObject](ctx, i.cluster, services, metav1.NamespaceAll, "")
	switch {
	case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
		return nil // Knative is gone, and so are its Services
	case err != nil:
		return err
	}
	var names []string
	for _, o := range all {
		if o.Spec.Template.Metadata.Annotations[api.AnnotationClass] == api.Class {
			names = append(names, o.Metadata.Namespace+"/"+o.Metadata.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	what := `Without Rouse they stay, but nobody scales them: pods that are awake go on answering, by way of
Knative's own activator; what is asleep or at zero is not woken, and its requests wait in vain. They work again
once Rouse is installed again. To have Knative scale one itself:
  kn service update NAME --annotation-revision ` + api.AnnotationClass + "=kpa.autoscaling.knative.dev"
	shown := "\n  " + strings.Join(names, "\n  ") + "\n"
	if !force {
		return fmt.Errorf("there are %d functions:%s%s\nDelete them first (kn service delete), or say --force", len(names), shown, what)
	}
	i.say("there are %d functions:%s%s", len(names), shown, what)
	return nil
}

// remains are all objects of Rouse: those of the manifests, and those that it made
// itself, or that are no longer told from it: the token, the keys of clients, the authority of the webhook, and the lease.
func (i *installer) remains(ctx context.Context) ([]object, error) {
	there, err := i.ours(ctx, true)
	if err != nil {
		return nil, fmt.Errorf("look for what is installed: %w", err)
	}
	made := []object{
		{Unstructured: blank("v1", "Secret", control.ControlSecret), resource: secrets, namespace: control.SystemNamespace},
		{Unstructured: blank("v1", "Secret", control.KeysSecret), resource: secrets, namespace: control.SystemNamespace},
		{Unstructured: blank("v1", "Secret", "rouse-injector"), resource: secrets, namespace: control.SystemNamespace},
		{Unstructured: blank("coordination.k8s.io/v1", "Lease", control.AutoscalerName), resource: leases, namespace: control.SystemNamespace},
	}
	for _, o := range made {
		_, err := i.client(o).Get(ctx, o.GetName(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, refusal(err, "get", o.resource, o.namespace, o.GetName())
		default:
			there = append(there, o)
		}
	}
	slices.SortStableFunc(there, func(a, b object) int { return rank(a.GetKind()) - rank(b.GetKind()) })
	return there, nil
}

func blank(version, kind, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(version)
	u.SetKind(kind)
	u.SetName(name)
	return u
}

// mayRemove asks for every right that an uninstall needs, before it begins.
func (i *installer) mayRemove(ctx context.Context, there []object) error {
	rights := []right{
		{verb: "patch", resource: "services", namespace: control.SystemNamespace, name: settings.Service},
		{verb: "patch", group: "apps", resource: "deployments", namespace: control.SystemNamespace},
		{verb: "patch", resource: "configmaps", namespace: control.SystemNamespace},
		{verb: "list", resource: "pods", namespace: control.SystemNamespace},
		{verb: "list", group: "discovery.k8s.io", resource: "endpointslices", namespace: control.SystemNamespace},
	}
	pairs, err := i.pairs(ctx)
	if err != nil {
		return err
	}
	for _, p := range pairs {
		for _, verb := range []string{"patch", "delete"} {
			if r := (right{verb: verb, resource: "pods", namespace: p.Namespace}); !slices.Contains(rights, r) {
				rights = append(rights, r)
			}
		}
	}
	for _, o := range there {
		rights = append(rights, right{verb: "delete", group: o.resource.Group, resource: o.resource.Resource, namespace: o.namespace})
	}
	return i.require(ctx, "remove Rouse", rights)
}

func named(list []object, kind, name string) []object {
	var out []object
	for _, o := range list {
		if o.GetKind() == kind && o.GetName() == name {
			out = append(out, o)
		}
	}
	return out
}

// without is list less others.
func without(list, others []object) []object {
	return slices.DeleteFunc(slices.Clone(list), func(o object) bool {
		return slices.ContainsFunc(others, func(d object) bool { return d.id() == o.id() })
	})
}

// end deletes an object and says so.
func (i *installer) end(ctx context.Context, o object) error {
	if err := i.remove(ctx, o); err != nil {
		return err
	}
	i.say("deleted %s", o)
	return nil
}

// ending bounds the wait for pods that have been told to end: an answer that streams
// may keep an activator for an hour.
const ending = 90 * time.Second

// finished waits, for ending and no longer, until the pods with the label app=name are gone.
func (i *installer) finished(ctx context.Context, name string) error {
	short, cancel := context.WithTimeout(ctx, ending)
	defer cancel()
	left := 0
	err := i.until(short, func(ctx context.Context) (bool, error) {
		found, err := i.podsOf(ctx, name)
		if err != nil {
			return false, err
		}
		left = len(found)
		return left == 0, nil
	}, func() string { return "" })
	if ctx.Err() == nil && short.Err() != nil {
		if left > 0 {
			i.say("%d pods of %s are still ending: they go when what they do is done", left, name)
		}
		return nil
	}
	return err
}

func (i *installer) podsOf(ctx context.Context, app string) ([]corev1.Pod, error) {
	found, err := i.kube.CoreV1().Pods(control.SystemNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		return nil, refusal(err, "list", pods, control.SystemNamespace, "")
	}
	return found.Items, nil
}

// giveBack gives Knative back what was taken over, and waits until requests go to
// Knative's own activator. It says whether there was anything to give.
func (i *installer) giveBack(ctx context.Context) (bool, error) {
	if err := i.stockReady(ctx); err != nil {
		return false, err
	}
	done, err := settings.GiveBack(ctx, i.kube)
	for _, sentence := range done {
		i.say("%s", sentence)
	}
	if err != nil {
		return len(done) > 0, fmt.Errorf("give back what is Knative's: %w", err)
	}
	sending := ""
	err = i.until(ctx, func(ctx context.Context) (bool, error) {
		who, err := i.sendingToUs(ctx)
		if err == nil {
			sending = who
		}
		return err == nil && sending == "", err
	}, func() string {
		if sending == "" {
			return "" // nobody could be asked
		}
		return sending + " still sends requests to Rouse's activator"
	})
	if err == nil {
		i.say("requests go to Knative's own activator")
	}
	return len(done) > 0, err
}

// stockReady waits until Knative's own activator can take its place again.
func (i *installer) stockReady(ctx context.Context) error {
	if _, err := i.kube.CoreV1().Services(control.SystemNamespace).Get(ctx, settings.Service, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return nil // there is no Knative to give anything to
	}
	told := false
	return i.until(ctx, func(ctx context.Context) (bool, error) {
		found, err := i.podsOf(ctx, "activator")
		if err != nil {
			return false, err
		}
		for _, p := range found {
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
					return true, nil
				}
			}
		}
		if !told {
			told = true
			i.say("waiting for a ready pod of Knative's own activator")
		}
		return false, nil
	}, func() string {
		return "no pod of Knative's own activator is ready, so nothing was given back: see `kubectl get pods -n " + control.SystemNamespace + " -l app=activator`"
	})
}

// sendingToUs names a Service whose endpoints are pods of Rouse's activator; empty:
// none is. The front door's does not count: it is ours.
func (i *installer) sendingToUs(ctx context.Context) (string, error) {
	mine, err := i.podsOf(ctx, control.ActivatorName)
	if err != nil || len(mine) == 0 {
		return "", err
	}
	address := map[string]bool{}
	for _, p := range mine {
		if p.Status.PodIP != "" {
			address[p.Status.PodIP] = true
		}
	}
	found, err := i.kube.DiscoveryV1().EndpointSlices(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if apierrors.IsForbidden(err) { // then those of revisions are not seen: the grace is for them
		found, err = i.kube.DiscoveryV1().EndpointSlices(control.SystemNamespace).List(ctx, metav1.ListOptions{})
	}
	if err != nil {
		return "", refusal(err, "list", endpointSlices, "", "")
	}
	for _, s := range found.Items {
		service := s.Labels[discoveryv1.LabelServiceName]
		if s.Labels["app.kubernetes.io/part-of"] == "rouse" { // a Service's labels are on its slices
			continue
		}
		for _, e := range s.Endpoints {
			for _, a := range e.Addresses {
				if address[a] {
					return "Service " + s.Namespace + "/" + service, nil
				}
			}
		}
	}
	return "", nil
}

// wait waits for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
