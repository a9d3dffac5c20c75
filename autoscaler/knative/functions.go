package knative

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"knative.dev/serving/pkg/apis/serving"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config"
)

type functions struct {
	*state
	nodes *nodes
}

// readFunction returns as problem what is wrong with the declaration.
func (fs *functions) readFunction(ctx context.Context, name api.FunctionName) (fn api.Function, rev *servingv1.Revision, problem, err error) {
	rev, err = fs.watch.revisions.Lister().Revisions(name.Namespace()).Get(name.Name())
	if apierrors.IsNotFound(err) { // it is older than its PodAutoscaler: the lister is behind
		rev, err = fs.deps.Serving.ServingV1().Revisions(name.Namespace()).Get(ctx, name.Name(), metav1.GetOptions{})
	}
	if err != nil {
		return fn, nil, nil, fmt.Errorf("read the revision %s: %w", name, err)
	}
	spec, err := json.Marshal(rev.Spec)
	if err != nil {
		return fn, nil, nil, fmt.Errorf("read the revision %s: %w", name, err)
	}
	fn, problem = config.Revision(config.RevisionSource{Namespace: rev.Namespace, Name: rev.Name, Service: rev.Labels[serving.ServiceLabelKey],
		Annotations: rev.Annotations, Spec: spec, Adapters: fs.adaptersOf(rev), GPUs: fs.cfg.GPUResources})
	return fn, rev, problem, nil
}

// adaptersOf returns the adapters that a revision's Service overrides; nil: none. A list that can't be read changes
// nothing. It locks.
func (fs *functions) adaptersOf(rev *servingv1.Revision) *[]api.Adapter {
	s, err := fs.watch.services.Lister().Services(rev.Namespace).Get(rev.Labels[serving.ServiceLabelKey])
	if err != nil {
		return nil
	}
	text, has := s.Annotations[config.AnnotationAdapters]
	if !has {
		return nil
	}
	list, err := config.Adapters(text)
	if err != nil {
		fs.log.Warn("a service's adapters can't be read and stay as they are", "service", s.Namespace+"/"+s.Name, "error", err)
		fs.mu.Lock()
		defer fs.mu.Unlock()
		if r := fs.revisions[api.NewFunctionName(rev.Namespace, rev.Name)]; r != nil && r.loaded {
			list = r.spec.Runtime.Adapters
			return &list
		}
		return nil
	}
	return &list
}

func (fs *functions) followAdapters() error {
	again := func(o any) {
		s, is := o.(*servingv1.Service)
		if !is {
			return // deleted, and its revisions will be
		}
		name := api.NewFunctionName(s.Namespace, s.Name)
		fs.mu.Lock()
		defer fs.mu.Unlock()
		for _, r := range fs.revisions {
			if r.spec.ServiceName() == name {
				fs.changed(r.name)
			}
		}
	}
	_, err := fs.watch.services.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: again, DeleteFunc: again,
		UpdateFunc: func(before, now any) {
			was, had := before.(*servingv1.Service).Annotations[config.AnnotationAdapters]
			is, has := now.(*servingv1.Service).Annotations[config.AnnotationAdapters]
			if was != is || had != has {
				again(now)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch services: %w", err)
	}
	return nil
}

func (fs *functions) putFunction(r *revision) {
	if !r.declared {
		return
	}
	if told := bounded(fs.nodes.forCore(r.spec), r.scaling, r.trouble != nil); !reflect.DeepEqual(told, r.told) {
		r.told = told
		fs.core.PutFunction(told)
	}
}

func (fs *functions) setDeclaration(r *revision, fn api.Function, problem error) {
	if !reflect.DeepEqual(r.spec, fn) {
		fs.namesDue.Ring()
	}
	r.spec, r.loaded, r.problem = fn, true, ""
	if problem == nil {
		problem = checkDual(fn)
	}
	if problem != nil {
		r.problem = problem.Error()
	}
}

// bounded applies its PodAutoscaler's bounds. A function that was never up keeps its initial scale, unless a start
// failed.
func bounded(fn api.Function, s scaling, failed bool) api.Function {
	switch {
	case s.unreachable:
		fn.MinScale = 0
		if fn.SleepAfter == 0 {
			fn.SleepAfter = config.DefaultSleepAfter
		}
		fn.UnloadAfter = unreachableGone
	case !s.initialized && !failed:
		fn.MinScale = max(s.min, s.initial)
		fn.MaxScale = max(fn.MaxScale, fn.MinScale)
	default:
		fn.MinScale = s.min
	}
	if s.most > 0 {
		fn.MaxScale = max(s.most, fn.MinScale)
	}
	return fn
}

const unreachableGone = time.Second

// Resolve returns the revision of that name, or a service's, the one with most traffic first.
func (f *Fleet) Resolve(name api.FunctionName) []api.FunctionName {
	f.mu.Lock()
	own := f.revision(name) != nil
	f.mu.Unlock()
	if own {
		return []api.FunctionName{name}
	}
	revs, err := f.watch.revisions.Lister().Revisions(name.Namespace()).List(labels.SelectorFromSet(labels.Set{serving.ServiceLabelKey: name.Name()}))
	if err != nil {
		f.log.Error("the revisions of a service can't be listed", "service", name, "error", err)
	}
	share := map[string]int64{}
	if route, err := f.watch.routes.Lister().Routes(name.Namespace()).Get(name.Name()); err == nil {
		for _, t := range route.Status.Traffic {
			if t.Percent != nil {
				share[t.RevisionName] += *t.Percent
			}
		}
	}
	revs = slices.DeleteFunc(slices.Clone(revs), func(r *servingv1.Revision) bool { return !f.functions.isFunction(r) })
	slices.SortFunc(revs, func(a, b *servingv1.Revision) int {
		switch {
		case share[a.Name] != share[b.Name]:
			return int(share[b.Name] - share[a.Name])
		case !a.CreationTimestamp.Time.Equal(b.CreationTimestamp.Time):
			return b.CreationTimestamp.Compare(a.CreationTimestamp.Time)
		}
		return strings.Compare(b.Name, a.Name)
	})
	names := make([]api.FunctionName, len(revs))
	for k, r := range revs {
		names[k] = api.NewFunctionName(r.Namespace, r.Name)
	}
	return names
}

func (fs *functions) isFunction(o any) bool {
	rev, ok := o.(*servingv1.Revision)
	if !ok {
		return false
	}
	pa, err := fs.watch.pas.Lister().PodAutoscalers(rev.Namespace).Get(rev.Name)
	return err == nil && config.IsFunction(rev.Annotations, pa.Annotations)
}

func (fs *functions) hasFunction(o any) bool {
	m, ok := o.(metav1.Object)
	if !ok {
		return true // a missed deletion
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.revision(api.NewFunctionName(m.GetNamespace(), m.GetLabels()[serving.RevisionLabelKey])) != nil
}

// registeredFunction's errors are *[api.Error].
func (fs *functions) registeredFunction(ctx context.Context, name api.FunctionName) (api.Function, error) {
	fs.mu.Lock()
	r := fs.revision(name)
	loaded := r != nil && r.loaded
	fs.mu.Unlock()
	if r == nil {
		pa, err := fs.watch.pas.Lister().PodAutoscalers(name.Namespace()).Get(name.Name())
		if err == nil && !config.IsFunction(nil, pa.Annotations) { // never ours: the instance continues on its own
			return api.Function{}, api.Errorf(http.StatusNotFound, api.CodeUnsupported, "the revision %s has the class %q, want %s", name, pa.Annotations[config.AnnotationClass], config.Class)
		}
		return api.Function{}, api.Errorf(http.StatusNotFound, "", "there is no revision %s of the class %s (yet)", name, config.Class)
	}
	if !loaded {
		fn, _, problem, err := fs.readFunction(ctx, name)
		if err != nil {
			return api.Function{}, api.Errorf(http.StatusNotFound, "", "%v", err)
		}
		fs.mu.Lock()
		fs.setDeclaration(r, fn, problem)
		fs.mu.Unlock()
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if r.problem != "" {
		return api.Function{}, api.Errorf(http.StatusUnprocessableEntity, "", "%s", r.problem)
	}
	return r.spec, nil
}
