package kn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/cmd/internal/verb"
	"github.com/rouse-dev/rouse/config"
	"github.com/rouse-dev/rouse/internal/names"
)

const labelService = "serving.knative.dev/service"

// Condition is a condition of Knative's objects.
type Condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Service is a Knative Service with revisions of Rouse's class.
type Service struct {
	Name       api.FunctionName `json:"name"`
	URL        string           `json:"url,omitempty"`
	Conditions []Condition      `json:"conditions,omitempty"`
	// Revisions are in the order of their traffic, then the newest first.
	Revisions []Revision `json:"revisions"`
}

// Revision is one revision, with Knative's and the autoscaler's data.
type Revision struct {
	Name    api.FunctionName `json:"name"`
	Percent int64            `json:"percent"`
	Tags    []string         `json:"tags,omitempty"`
	Created time.Time        `json:"created,omitzero"`
	// Scaling is its PodAutoscaler's, if requested.
	Conditions []Condition `json:"conditions,omitempty"`
	Scaling    []Condition `json:"scaling,omitempty"`
	// Function is nil if the autoscaler does not serve it: Conditions say why.
	Function *admin.Function `json:"function,omitempty"`
}

// used reports whether the revision matters to a user that looks at the service.
func (r *Revision) used() bool {
	return r.Percent > 0 || len(r.Tags) > 0 || r.Function != nil && (len(r.Function.Instances) > 0 || r.Function.Activator.Waiting > 0)
}

type knObject struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Template struct {
			Metadata metav1.ObjectMeta `json:"metadata"`
		} `json:"template"`
	} `json:"spec"`
	Status struct {
		URL string `json:"url"`
		// LatestCreatedRevisionName is only in a Service.
		LatestCreatedRevisionName string      `json:"latestCreatedRevisionName"`
		Conditions                []Condition `json:"conditions"`
		Traffic                   []struct {
			RevisionName string `json:"revisionName"`
			Percent      *int64 `json:"percent"`
			Tag          string `json:"tag"`
		} `json:"traffic"`
	} `json:"status"`
}

// fleet has the services of some namespaces, and all functions of the cluster.
type fleet struct {
	services  []*Service
	functions []admin.Function
}

// survey reads the services of a namespace ("": all) and the autoscaler's data on them.
func (c *cluster) survey(ctx context.Context, d *verb.Client, namespace string) (*fleet, error) {
	f := &fleet{}
	if err := d.Call(ctx, http.MethodGet, admin.PathFunctions, nil, &f.functions); err != nil {
		return nil, err
	}
	declared, err := list[knObject](ctx, c, services, namespace, "")
	if err != nil {
		return nil, err
	}
	made, err := list[knObject](ctx, c, revisions, namespace, "")
	if err != nil {
		return nil, err
	}
	scaled, err := list[knObject](ctx, c, podAutoscalers, namespace, "")
	if err != nil {
		return nil, err
	}
	f.join(namespace, declared, made, scaled)
	return f, nil
}

func (f *fleet) join(namespace string, declared, made, scaled []knObject) {
	classes := map[api.FunctionName]map[string]string{}
	for _, o := range scaled {
		classes[api.NewFunctionName(o.Metadata.Namespace, o.Metadata.Name)] = o.Metadata.Annotations
	}
	byName := map[api.FunctionName]*Service{}
	service := func(name api.FunctionName) *Service {
		if byName[name] == nil {
			byName[name] = &Service{Name: name}
		}
		return byName[name]
	}
	known := map[api.FunctionName]*Revision{}
	for i := range f.functions {
		fn := &f.functions[i]
		if namespace != "" && fn.Function.Name.Namespace() != namespace {
			continue
		}
		known[fn.Function.Name] = &Revision{Name: fn.Function.Name, Function: fn}
	}
	for _, o := range made {
		name := api.NewFunctionName(o.Metadata.Namespace, o.Metadata.Name)
		r := known[name]
		if r == nil {
			if !config.IsFunction(o.Metadata.Annotations, classes[name]) {
				continue
			}
			r = &Revision{Name: name}
		}
		r.Created, r.Conditions = o.Metadata.CreationTimestamp.Time, o.Status.Conditions
		if r.Function == nil { // the autoscaler knows the service of others
			s := service(api.NewFunctionName(o.Metadata.Namespace, cmp.Or(o.Metadata.Labels[labelService], o.Metadata.Name)))
			s.Revisions = append(s.Revisions, *r)
		}
	}
	for _, r := range known {
		s := service(r.Function.Function.ServiceName())
		s.Revisions = append(s.Revisions, *r)
	}
	for _, o := range declared {
		if s := byName[api.NewFunctionName(o.Metadata.Namespace, o.Metadata.Name)]; s != nil {
			s.describe(o)
		}
	}
	f.services = slices.SortedFunc(maps.Values(byName), func(a, b *Service) int { return cmp.Compare(a.Name, b.Name) })
	for _, s := range f.services {
		slices.SortFunc(s.Revisions, func(a, b Revision) int {
			return cmp.Or(cmp.Compare(b.Percent, a.Percent), b.Created.Compare(a.Created), cmp.Compare(b.Name, a.Name))
		})
	}
}

func (s *Service) describe(o knObject) {
	s.URL, s.Conditions = o.Status.URL, o.Status.Conditions
	for _, t := range o.Status.Traffic {
		for i := range s.Revisions {
			r := &s.Revisions[i]
			if r.Name.Name() != t.RevisionName {
				continue
			}
			if t.Percent != nil {
				r.Percent += *t.Percent
			}
			if t.Tag != "" {
				r.Tags = append(r.Tags, t.Tag)
			}
		}
	}
}

// find reads what a name means: a service, a revision, or a model. The service has the revisions that are meant.
func (c *cluster) find(ctx context.Context, d *verb.Client, text string) (*Service, error) {
	name := c.name(text)
	f, err := c.survey(ctx, d, name.Namespace())
	if err != nil {
		return nil, err
	}
	for _, s := range f.services {
		if s.Name == name {
			return s, nil
		}
	}
	for _, s := range f.services {
		for _, r := range s.Revisions {
			if r.Name == name || r.Function != nil && slices.Contains(r.Function.Function.Names(), api.ModelName(text)) {
				one := *s
				one.Revisions = []Revision{r}
				return &one, nil
			}
		}
	}
	return nil, c.unknown(ctx, f, name)
}

func (s *Service) meant(text string) api.FunctionName {
	if len(s.Revisions) == 1 && s.Name.Name() != api.FunctionName(text).Name() {
		return s.Revisions[0].Name
	}
	return s.Name
}

// unknown says what a name may have meant:
//
//  1. a service that is not of Rouse's class, which lacks the annotation;
//  2. a function of another namespace;
//  3. a similar name.
func (c *cluster) unknown(ctx context.Context, f *fleet, name api.FunctionName) error {
	if o, err := get[knObject](ctx, c, services, name.Namespace(), name.Name()); err == nil {
		class, err := c.class(ctx, o)
		if err != nil {
			return err
		}
		if class != config.Class { // 1.
			return fmt.Errorf("%s is a Knative Service of the class %s, which Rouse does not serve; to make it a function:\n  kn service update %s -n %s --annotation-revision %s=%s",
				name, cmp.Or(class, "kpa.autoscaling.knative.dev"), name.Name(), name.Namespace(), config.AnnotationClass, config.Class)
		}
		return fmt.Errorf("%s has no revision yet: `kn service describe %s -n %s` says why", name, name.Name(), name.Namespace())
	}
	var near []string
	for _, fn := range f.functions {
		for _, known := range []api.FunctionName{fn.Function.ServiceName(), fn.Function.Name} {
			if known.Name() == name.Name() { // 2.
				return fmt.Errorf("there is no function %s in the namespace %s, but one in %s: say -n %[3]s", name.Name(), name.Namespace(), known.Namespace())
			}
			if known.Namespace() == name.Namespace() {
				near = append(near, known.Name())
			}
		}
	}
	if best := names.Nearest(name.Name(), min(3, len(name.Name())/2)+1, near...); best != "" { // 3.
		return fmt.Errorf("there is no function %s in the namespace %s; did you mean %s?", name.Name(), name.Namespace(), best)
	}
	return fmt.Errorf("there is no function %s in the namespace %s; %s", name.Name(), name.Namespace(), others(f, name.Namespace()))
}

// class is from the template, or from the newest revision's PodAutoscaler.
func (c *cluster) class(ctx context.Context, o knObject) (string, error) {
	class, newest := o.Spec.Template.Metadata.Annotations[config.AnnotationClass], o.Status.LatestCreatedRevisionName
	if class != "" || newest == "" {
		return class, nil
	}
	pa, err := get[knObject](ctx, c, podAutoscalers, o.Metadata.Namespace, newest)
	return pa.Metadata.Annotations[config.AnnotationClass], err
}

func others(f *fleet, namespace string) string {
	var names []string
	for _, fn := range f.functions {
		if s := fn.Function.ServiceName(); s.Namespace() == namespace && !slices.Contains(names, s.Name()) {
			names = append(names, s.Name())
		}
	}
	switch {
	case len(names) > 0:
		return "there are: " + strings.Join(names, ", ")
	case len(f.functions) > 0:
		return "it has none; `kn rouse list -A` shows those of the others"
	}
	return "the cluster has none yet; make one with `kn rouse create NAME --model REF`"
}

func errUnserved(s *Service) error {
	for _, r := range s.Revisions {
		for _, cond := range r.Conditions {
			if cond.Status == "False" && cond.Message != "" {
				return fmt.Errorf("%s is not served: %s", r.Name, cond.Message)
			}
		}
	}
	return errors.New(string(s.Name) + " is not served yet: the autoscaler has not taken it up; `kn rouse describe " + s.Name.Name() + " -n " + s.Name.Namespace() + "` shows its conditions")
}
