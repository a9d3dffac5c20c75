package knative

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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

// revision is one function: a Knative revision of our class.
type revision struct {
	name api.FunctionName
	// spec is the declared function; told is the one given to the core, whose bounds may differ. problem says what is wrong
	// with the declaration.
	spec     api.Function
	loaded   bool
	told     api.Function
	declared bool
	scaling  scaling
	problem  string
	warned   string // the last problem that was reported to the user
	adopted  bool   // its existing pods have been taken in

	pods   map[api.InstanceID]*pod // of its Deployment
	starts []*start                // starts that wait for a pod, the oldest first

	// Used for functions with dual pods: the pods that run its model, the instances that must become awake, the providers
	// being created, and the number of claims about to be added to want.
	providers map[api.InstanceID]*pod
	wants     []*want
	making    map[api.InstanceID]*making
	raising   int
	// want is the number of pods that its Deployment should have, -1 while unknown.
	want int
	// settled is closed when Kubernetes has acted on the scale, nil while nothing waits for that.
	settled chan struct{}
	// patching is the lock for writing the scale.
	patching chan struct{}
	// trouble is why the last start failed, nil since one succeeded.
	trouble *trouble
}

// elsewhere reports whether it runs in other clusters: the activators, as a front door, have it created there, and it has no
// pods here.
func (r *revision) elsewhere() bool { return r.problem == "" && r.spec.Clusters != "" }

// trouble is a pod's problem.
type trouble struct {
	reason  string // one word, for conditions
	message string // what happened and what to do
}

// scaling is the scale configuration in a PodAutoscaler.
type scaling struct {
	min, initial int
	most         int // config-autoscaler's maximum for a function without max-scale; 0: none
	unreachable  bool
	initialized  bool
}

// revision returns the record of a revision of our class, nil if it is not.
func (f *Fleet) revision(name api.FunctionName) *revision {
	if r := f.revisions[name]; r != nil {
		return r
	}
	pa, err := f.watch.pas.Lister().PodAutoscalers(name.Namespace()).Get(name.Name())
	if err != nil || !api.IsFunction(nil, pa.Annotations) || pa.DeletionTimestamp != nil {
		return nil
	}
	r := &revision{name: name, want: -1, pods: make(map[api.InstanceID]*pod), patching: make(chan struct{}, 1),
		providers: make(map[api.InstanceID]*pod), making: make(map[api.InstanceID]*making)}
	f.revisions[name] = r
	return r
}

// read converts a revision to a function.
func (f *Fleet) read(ctx context.Context, name api.FunctionName) (api.Function, *servingv1.Revision, error) {
	rev, err := f.watch.revisions.Lister().Revisions(name.Namespace()).Get(name.Name())
	if apierrors.IsNotFound(err) { // it is older than its PodAutoscaler, so it exists: the lister is behind
		rev, err = f.deps.Serving.ServingV1().Revisions(name.Namespace()).Get(ctx, name.Name(), metav1.GetOptions{})
	}
	if err != nil {
		return api.Function{}, nil, fmt.Errorf("read the revision %s: %w", name, err)
	}
	spec, err := json.Marshal(rev.Spec)
	if err != nil {
		return api.Function{}, nil, fmt.Errorf("read the revision %s: %w", name, err)
	}
	fn, err := config.Revision(config.RevisionSource{Namespace: rev.Namespace, Name: rev.Name, Service: rev.Labels[serving.ServiceLabelKey],
		Annotations: rev.Annotations, Spec: spec, Adapters: f.adaptersOf(rev), GPUs: f.cfg.GPUResources})
	if err != nil {
		return fn, rev, &declarationError{err}
	}
	return fn, rev, nil
}

// adaptersOf returns the adapters in the annotations of a revision's Service, nil if there are none. They override the
// revision's and can be changed without a new revision. A list that can't be read changes nothing.
func (f *Fleet) adaptersOf(rev *servingv1.Revision) *[]api.Adapter {
	s, err := f.watch.services.Lister().Services(rev.Namespace).Get(rev.Labels[serving.ServiceLabelKey])
	if err != nil {
		return nil
	}
	text, has := s.Annotations[api.AnnotationAdapters]
	if !has {
		return nil
	}
	list, err := config.Adapters(text)
	if err != nil {
		f.log.Warn("a service's adapters can't be read and stay as they are", "service", s.Namespace+"/"+s.Name, "error", err)
		f.mu.Lock()
		defer f.mu.Unlock()
		if r := f.revisions[api.NewFunctionName(rev.Namespace, rev.Name)]; r != nil && r.loaded {
			list = r.spec.Runtime.Adapters
			return &list
		}
		return nil
	}
	return &list
}

// followAdapters reconciles a Service's revisions when its list of adapters changes.
func (f *Fleet) followAdapters() error {
	again := func(o any) {
		s, is := o.(*servingv1.Service)
		if !is {
			return // it was deleted, and its revisions will be
		}
		name := api.NewFunctionName(s.Namespace, s.Name)
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, r := range f.revisions {
			if r.spec.ServiceName() == name {
				f.changed(r.name)
			}
		}
	}
	_, err := f.watch.services.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: again, DeleteFunc: again,
		UpdateFunc: func(before, now any) {
			a, b := before.(*servingv1.Service), now.(*servingv1.Service)
			if was, had := a.Annotations[api.AnnotationAdapters]; had != hasAdapters(b) || was != b.Annotations[api.AnnotationAdapters] {
				again(b)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch services: %w", err)
	}
	return nil
}

func hasAdapters(s *servingv1.Service) bool {
	_, has := s.Annotations[api.AnnotationAdapters]
	return has
}

// declarationError is an error in a revision's annotations or spec.
type declarationError struct{ error }

func (e *declarationError) Unwrap() error { return e.error }

// declare takes in a revision and its PodAutoscaler, and tells the core what has changed. problem is what is wrong with the
// declaration; news reports whether that is new.
func (f *Fleet) declare(ctx context.Context, name api.FunctionName, s scaling) (rev *servingv1.Revision, problem string, news bool, err error) {
	fn, rev, err := f.read(ctx, name)
	var wrong *declarationError
	if err != nil && !errors.As(err, &wrong) {
		return nil, "", false, err
	}
	f.mu.Lock()
	r := f.revision(name)
	if r == nil {
		f.mu.Unlock()
		return nil, "", false, fmt.Errorf("the revision %s is of another class", name)
	}
	adopted := r.adopted
	r.adopted = true
	f.load(r, fn, wrong)
	switch {
	case r.elsewhere():
		if r.declared {
			f.core.RemoveFunction(name)
		}
		r.declared, r.told = false, api.Function{}
	case r.problem == "":
		r.scaling, r.declared = s, true
		f.tell(r)
	}
	problem, news = r.problem, r.problem != r.warned
	r.warned = problem
	f.mu.Unlock()
	if !adopted {
		f.adopt(name)
	}
	return rev, problem, news, nil
}

// tell gives the core a function if it differs from the last one told.
func (f *Fleet) tell(r *revision) {
	if !r.declared {
		return
	}
	if told := bounded(f.whole(r.spec), r.scaling, r.trouble != nil); !reflect.DeepEqual(told, r.told) {
		r.told = told
		f.core.PutFunction(told)
	}
}

// load stores a revision's declaration.
func (f *Fleet) load(r *revision, fn api.Function, wrong *declarationError) {
	if !reflect.DeepEqual(r.spec, fn) {
		f.naming.Ring()
	}
	r.spec, r.loaded, r.problem = fn, true, ""
	if wrong != nil {
		r.problem = wrong.Error()
	} else if err := checkDual(fn); err != nil {
		r.problem = err.Error()
	}
}

// bounded applies the bounds of its PodAutoscaler to a function:
//
//  1. An unreachable one has no minimum and goes soon.
//  2. One that has never been up keeps its initial scale awake until all were awake once, if that is above zero and no start
//     failed.
//  3. Otherwise its own min-scale holds.
func bounded(fn api.Function, s scaling, failed bool) api.Function {
	switch {
	case s.unreachable:
		fn.MinScale = 0
		if fn.SleepAfter == 0 {
			fn.SleepAfter = api.DefaultSleepAfter
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

// unreachableGone is how long an unreachable instance sleeps.
const unreachableGone = time.Second

// forget drops a deleted revision.
func (f *Fleet) forget(name api.FunctionName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.revisions[name]
	if r == nil {
		return
	}
	for _, p := range slices.Concat(f.podsOf(name), slices.Collect(maps.Values(r.providers))) {
		p.stopping = true
		f.end(p, "the revision was deleted")
	}
	f.failWants(r, fmt.Errorf("the revision %s was deleted", name))
	for _, s := range r.starts {
		s.failed <- fmt.Errorf("the revision %s was deleted", name)
	}
	r.starts = nil
	delete(f.revisions, name)
	f.naming.Ring()
	f.core.RemoveFunction(name)
}

// Resolve returns the revisions that a name stands for: the revision of that name, or those of a service, the one with most
// traffic first. It returns none if there is neither.
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
	if route, err := f.watch.routes.Routes(name.Namespace()).Get(name.Name()); err == nil {
		for _, t := range route.Status.Traffic {
			if t.Percent != nil {
				share[t.RevisionName] += *t.Percent
			}
		}
	}
	revs = slices.DeleteFunc(slices.Clone(revs), func(r *servingv1.Revision) bool { return !f.isFunction(r) })
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
