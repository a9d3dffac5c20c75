package knative

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"knative.dev/pkg/apis"
	duckv1 "knative.dev/pkg/apis/duck/v1"
	"knative.dev/pkg/controller"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/names"
)

// Activators decide by package names which service a model's name refers to. The decision is repeated here to tell
// services that lost a name, without an effect on readiness.

type modelNames struct {
	*state
	lost map[api.FunctionName][]string // by service, with reasons
}

const conditionNames apis.ConditionType = "ModelNames"

const reasonNames = "NameOfAnother"

func (mn *modelNames) followNames() error {
	ring := func(any) { mn.namesDue.Ring() }
	each, there := controller.HandleAll(ring), cache.ResourceEventHandlerFuncs{AddFunc: ring, DeleteFunc: ring}
	for what, h := range map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		mn.watch.services.Informer(): each, mn.watch.routes.Informer(): each, mn.watch.revisions.Informer(): there, mn.watch.namespaces.Informer(): there,
	} {
		if _, err := what.AddEventHandler(h); err != nil {
			return fmt.Errorf("watch names: %w", err)
		}
	}
	return nil
}

func (mn *modelNames) keepNames(ctx context.Context) { mn.namesDue.Each(ctx, mn.decideNames) }

// decideNames reconciles revisions whose lost names have changed. It locks.
func (mn *modelNames) decideNames() {
	mn.mu.Lock()
	defer mn.mu.Unlock()
	lost := map[api.FunctionName][]string{}
	declared, variants := mn.declaredNames()
	_, losses := names.Settle(declared, func(n string) bool {
		_, known, _ := mn.watch.namespaces.Informer().GetStore().GetByKey(n)
		return known
	})
	for _, l := range losses {
		losers := []api.FunctionName{l.Service}
		if l.Kind == names.Variant {
			losers = variants[l.Service]
		}
		for _, s := range losers {
			lost[s] = append(lost[s], l.String())
		}
	}
	before := mn.lost
	mn.lost = lost
	for name, r := range mn.revisions {
		if s := r.spec.ServiceName(); !slices.Equal(before[s], lost[s]) || len(lost[s]) > 0 && !mn.hasCondition(s) {
			mn.changed(name)
		}
	}
}

func (mn *modelNames) hasCondition(service api.FunctionName) bool {
	s, err := mn.watch.services.Lister().Services(service.Namespace()).Get(service.Name())
	return err != nil || s.Status.GetCondition(conditionNames) != nil
}

// declaredNames also returns the services of each model with variants.
func (mn *modelNames) declaredNames() (all []names.Declaration, variants map[api.FunctionName][]api.FunctionName) {
	services := map[api.FunctionName][]*revision{}
	for _, r := range mn.revisions {
		if r.loaded {
			services[r.spec.ServiceName()] = append(services[r.spec.ServiceName()], r)
		}
	}
	variants = map[api.FunctionName][]api.FunctionName{}
	since := map[api.FunctionName]time.Time{}
	for _, name := range slices.Sorted(maps.Keys(services)) {
		created := mn.createdAt(name, services[name][0])
		serving := mn.servingRevisions(name, services[name])
		all = append(all, namesOf(name, created, serving)...)
		for _, r := range serving {
			group := api.NewFunctionName(name.Namespace(), string(r.spec.VariantOf))
			if r.spec.VariantOf == "" || slices.Contains(variants[group], name) {
				continue
			}
			variants[group] = append(variants[group], name)
			if at := since[group]; at.IsZero() || created.Before(at) && !created.IsZero() {
				since[group] = created
			}
		}
	}
	for _, group := range slices.Sorted(maps.Keys(variants)) {
		all = append(all, names.Declaration{Service: group, Created: since[group], Name: api.ModelName(group.Name()), Kind: names.Variant})
	}
	return all, variants
}

func namesOf(service api.FunctionName, created time.Time, serving []*revision) (all []names.Declaration) {
	add := func(kind names.Kind, list ...api.ModelName) {
		for _, n := range list {
			if c := (names.Declaration{Service: service, Created: created, Name: n, Kind: kind}); !slices.Contains(all, c) {
				all = append(all, c)
			}
		}
	}
	own := names.Own
	if service.Namespace() == api.DefaultNamespace {
		own = names.Default
	}
	add(own, api.ModelName(service.Name()))
	for _, r := range serving {
		add(names.Model, r.spec.Model)
		add(names.Alias, r.spec.Aliases...)
		for _, a := range r.spec.Runtime.Adapters {
			add(names.Adapter, a.Name)
		}
	}
	return all
}

func (mn *modelNames) createdAt(service api.FunctionName, r *revision) time.Time {
	if s, err := mn.watch.services.Lister().Services(service.Namespace()).Get(service.Name()); err == nil {
		return s.CreationTimestamp.Time
	}
	if rev, err := mn.watch.revisions.Lister().Revisions(r.name.Namespace()).Get(r.name.Name()); err == nil && service == r.name {
		return rev.CreationTimestamp.Time
	}
	return time.Time{}
}

func (mn *modelNames) servingRevisions(service api.FunctionName, all []*revision) (some []*revision) {
	route, err := mn.watch.routes.Lister().Routes(service.Namespace()).Get(service.Name())
	for _, r := range all {
		if err == nil && slices.ContainsFunc(route.Status.Traffic, func(t servingv1.TrafficTarget) bool {
			return t.RevisionName == r.name.Name() && t.Percent != nil && *t.Percent > 0
		}) {
			some = append(some, r)
		}
	}
	if some == nil {
		some = []*revision{slices.MaxFunc(all, func(a, b *revision) int { return strings.Compare(string(a.name), string(b.name)) })}
	}
	return some
}

// lostNames locks.
func (mn *modelNames) lostNames(name api.FunctionName) (service api.FunctionName, message string) {
	mn.mu.Lock()
	defer mn.mu.Unlock()
	r := mn.revisions[name]
	if r == nil {
		return name, ""
	}
	service = r.spec.ServiceName()
	return service, strings.Join(mn.lost[service], "; ")
}

func markNames(m apis.ConditionManager, message string) bool {
	have := m.GetCondition(conditionNames)
	switch {
	case message == "" && have == nil:
		return false
	case message == "":
		return m.ClearCondition(conditionNames) == nil
	case have != nil && have.Message == message:
		return false
	}
	m.SetCondition(apis.Condition{Type: conditionNames, Status: corev1.ConditionFalse, Severity: apis.ConditionSeverityInfo, Reason: reasonNames, Message: message})
	return true
}

// markService returns the service if its condition changed.
func (r *reconciler) markService(ctx context.Context, name api.FunctionName, message string) (*servingv1.Service, error) {
	s, err := r.fleet.watch.services.Lister().Services(name.Namespace()).Get(name.Name())
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("tell %s of its names: %w", name, err)
	}
	s = s.DeepCopy()
	if !markNames(s.GetConditionSet().Manage(&s.Status), message) {
		return nil, nil
	}
	if err := patchConditions(ctx, r.fleet.deps.Serving.ServingV1().Services(s.Namespace), s, s.Status.Conditions); err != nil {
		return nil, fmt.Errorf("tell %s of its names: %w", name, err)
	}
	return s, nil
}

// patchConditions does nothing if the object has changed meanwhile: that triggers another pass.
func patchConditions[T metav1.Object](ctx context.Context, objects interface {
	Patch(ctx context.Context, name string, kind types.PatchType, patch []byte, o metav1.PatchOptions, subresources ...string) (T, error)
}, o T, conditions duckv1.Conditions) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": o.GetResourceVersion()},
		"status":   map[string]any{"conditions": conditions},
	})
	if err != nil {
		return err
	}
	if _, err = objects.Patch(ctx, o.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: manager}, "status"); apierrors.IsConflict(err) {
		return nil
	}
	return err
}
