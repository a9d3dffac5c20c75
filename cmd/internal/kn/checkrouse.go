package kn

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	admission "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/api/control"
)

const (
	applyCommand   = "kubectl apply -k manifests/overlays/default, or helm install rouse CHART -n knative-serving"
	componentsHelp = "name it under components in an overlay of your own, or helm upgrade rouse CHART -n knative-serving --set components={any-image}"
)

func (c *checker) rouse(ctx context.Context) {
	there := false
	for _, name := range []string{control.ActivatorName, control.AutoscalerName} {
		available, found, err := c.deployment(ctx, control.SystemNamespace, name)
		switch {
		case err != nil:
			c.failed(name, err)
		case !found && name == control.ActivatorName:
		case !found:
			if there {
				c.add(name, resultMissing, applyCommand, "it is not there, and the activator is")
			}
		case available == 0:
			there = true
			trouble := strings.TrimSuffix("no pod of it is available; "+c.trouble(ctx, control.SystemNamespace, "app="+name), "; ")
			c.add(name, resultMissing, "kubectl describe pods -n "+control.SystemNamespace+" -l app="+name, "%s", trouble)
		default:
			there = true
			c.add(name, resultOK, "", "%d available", available)
		}
	}
	c.webhook(ctx, there)
	if !there {
		c.add("rouse", resultOK, "", "not installed; %s", applyCommand)
		return
	}
	c.leader(ctx)
	if raw, err := (keysSecret{c.cluster}).Read(ctx); err == nil {
		if len(raw) == 0 {
			c.add("keys", resultWarning, "kn rouse keys create NAME, or anonymous to let everybody in", "no client has one, and clients need one")
		} else {
			c.add("keys", resultOK, "", "declared")
		}
	}
}

func (c *checker) leader(ctx context.Context) {
	var devices []admin.Device
	d, err := c.door(ctx)
	if err == nil {
		err = d.Call(ctx, http.MethodGet, admin.PathDevices, nil, &devices)
	}
	switch {
	case errors.Is(err, errNoLeader):
		c.add("leader", resultMissing, "", "%v", err)
	case err != nil:
		c.failed("leader", err)
	default:
		gpus := slices.DeleteFunc(devices, isHost)
		c.add("leader", resultOK, "", "an autoscaler leads; it has %d GPUs", len(gpus))
	}
}

// webhook checks that pods of our class pass through any-image, and that it answers.
func (c *checker) webhook(ctx context.Context, installed bool) {
	wanted := slices.Contains(c.plan.components, "any-image")
	w, err := get[admission.MutatingWebhookConfiguration](ctx, c.cluster, mutatingWebhooks, "", injectorName)
	switch {
	case apierrors.IsNotFound(err) && wanted && installed:
		c.add("webhook", resultMissing, componentsHelp, "any-image is not installed")
		return
	case apierrors.IsNotFound(err):
		c.add("webhook", resultOK, "", "any-image is not installed: images need the function in them")
		return
	case err != nil:
		c.failed("webhook", err)
		return
	}
	ruled := slices.ContainsFunc(w.Webhooks, func(h admission.MutatingWebhook) bool { return len(h.Rules) > 0 })
	available, found, err := c.deployment(ctx, control.SystemNamespace, injectorName)
	logs := "kubectl logs -n " + control.SystemNamespace + " -l app=" + injectorName
	switch {
	case err != nil:
		c.failed("webhook", err)
	case (!found || available == 0) && ruled:
		c.add("webhook", resultMissing, "no pod of Rouse's class can be made until one answers: "+logs+"; or take it away: kubectl delete mutatingwebhookconfiguration "+injectorName, "any-image is asked about pods, and no injector is available")
	case !found || available == 0:
		c.add("webhook", resultMissing, logs, "any-image has no injector that is available")
	case !ruled:
		c.add("webhook", resultMissing, logs, "any-image has no rules: the injector did not find its own service answer yet")
	default:
		c.add("webhook", resultOK, "", "any-image; injectors that are available: %d", available)
	}
}

// trouble says why pods are not ready; empty: unknown.
func (c *checker) trouble(ctx context.Context, namespace, selector string) string {
	all, _ := list[corev1.Pod](ctx, c.cluster, pods, namespace, selector)
	for _, p := range all {
		for _, s := range p.Status.ContainerStatuses {
			if w := s.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
				return strings.TrimSpace(p.Name + ": " + w.Reason + " " + w.Message)
			}
		}
		for _, s := range p.Status.Conditions {
			if s.Type == "PodScheduled" && s.Status == "False" {
				return p.Name + ": " + s.Reason + " " + s.Message
			}
		}
	}
	return ""
}
