package knative

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	v1 "knative.dev/serving/pkg/apis/serving/v1"
	servingclient "knative.dev/serving/pkg/client/clientset/versioned/typed/serving/v1"

	"github.com/rouse-dev/rouse/activator/federation/protocol"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config"
)

// Marks of a Service made here.
const (
	labelPlaced        = "clusters.rouse.dev/placed"
	annotationFronts   = "clusters.rouse.dev/fronts"   // JSON: names
	annotationManifest = "clusters.rouse.dev/manifest" // hash
)

type acceptConfig struct {
	Namespace string
	// Of the accepted runtimes.
	Images map[string]string
	// As in [config.Accept].
	Models []string
}

func acceptNamespace(patterns []string) (string, error) {
	var one string
	for _, p := range patterns {
		namespace, _, found := strings.Cut(p, "/")
		if !found || namespace == "" || strings.ContainsAny(namespace, `*?[]\`) {
			return "", fmt.Errorf("the pattern %q names no namespace: want NAMESPACE/NAME, where * may stand in NAME", p)
		}
		if one != "" && one != namespace {
			return "", fmt.Errorf("the patterns name the namespaces %s and %s: want one, which is all that the agent has rights in", one, namespace)
		}
		one = namespace
	}
	return one, nil
}

func (c acceptConfig) Validate() error {
	switch {
	case c.Namespace == "" || path.Clean(c.Namespace) != c.Namespace:
		return errors.New("no namespace is given for the functions of front doors")
	case len(c.Images) == 0:
		return errors.New("functions of front doors are accepted, and no runtime has an image: name them as RUNTIME=IMAGE")
	}
	for kind, image := range c.Images {
		if !slices.Contains(api.RuntimeKinds, kind) || kind == api.RuntimeCommand || kind == api.RuntimeHTTP || image == "" {
			return fmt.Errorf("the image %q of the runtime %q: want RUNTIME=IMAGE, where RUNTIME is one of %s other than %s and %s", image, kind, strings.Join(api.RuntimeKinds, ", "), api.RuntimeCommand, api.RuntimeHTTP)
		}
	}
	return config.Accept{Models: c.Models}.Validate()
}

// applier creates the functions of front doors as Knative Services of one namespace. It implements agent.Applier.
//
// It refuses a runtime without an image, a command, a handler, an environment, a sidecar, or another namespace. A
// Service is deleted without owners; those of others stay unchanged. The watch reports Services ([applier.See]):
// every agent knows their owners.
//
// It is safe for concurrent use; the watch's methods do nothing on nil.
type applier struct {
	cfg      acceptConfig
	services servingclient.ServiceInterface

	mu     sync.Mutex
	owners map[api.FunctionName][]string // lists are replaced, never changed
}

func newApplier(cfg acceptConfig, client servingclient.ServicesGetter) (*applier, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &applier{cfg: cfg, services: client.Services(cfg.Namespace), owners: map[api.FunctionName][]string{}}, nil
}

// See reports whether a Service's owners have changed.
func (a *applier) See(s *v1.Service) (changed bool) {
	if a == nil || s.Namespace != a.cfg.Namespace {
		return false
	}
	return a.note(api.NewFunctionName(s.Namespace, s.Name), ownersOf(s))
}

func (a *applier) Forget(s *v1.Service) {
	if a != nil {
		a.note(api.NewFunctionName(s.Namespace, s.Name), nil)
	}
}

func (a *applier) note(name api.FunctionName, owners []string) (changed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	changed = !slices.Equal(a.owners[name], owners)
	if len(owners) == 0 {
		delete(a.owners, name)
	} else {
		a.owners[name] = owners
	}
	return changed
}

func (a *applier) Owners(name api.FunctionName) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.owners[name]
}

func (a *applier) Apply(ctx context.Context, m protocol.Manifest, front string) error {
	want, err := a.service(m, front)
	if err != nil {
		return api.Errorf(http.StatusForbidden, api.CodeStartFailed, "%v", err)
	}
	return a.change(ctx, m.Name, func(is *v1.Service) error {
		if is == nil {
			markOwners(want, []string{front})
			_, err := a.services.Create(ctx, want, metav1.CreateOptions{})
			return err
		}
		owners := ownersOf(is)
		same := is.Annotations[annotationManifest] == want.Annotations[annotationManifest]
		switch {
		case len(owners) == 0:
			return api.Errorf(http.StatusConflict, "", "%s is declared there by somebody else", m.Name)
		case !same && (len(owners) > 1 || owners[0] != front):
			return api.Errorf(http.StatusConflict, "", "%s is there as %s has declared it, which is different", m.Name, strings.Join(owners, ", "))
		case same && slices.Contains(owners, front):
			return nil
		}
		is = is.DeepCopy()
		if !same {
			is.Spec = want.Spec
			is.Annotations[annotationManifest] = want.Annotations[annotationManifest]
		}
		if !slices.Contains(owners, front) {
			owners = append(slices.Clone(owners), front)
		}
		markOwners(is, owners)
		_, err := a.services.Update(ctx, is, metav1.UpdateOptions{})
		return err
	})
}

// The function is deleted with its last owner.
func (a *applier) Remove(ctx context.Context, name api.FunctionName, front string) error {
	if name.Namespace() != a.cfg.Namespace {
		return nil
	}
	return a.change(ctx, name, func(is *v1.Service) error {
		if is == nil || !slices.Contains(ownersOf(is), front) {
			return nil
		}
		owners := slices.DeleteFunc(ownersOf(is), func(other string) bool { return other == front })
		if len(owners) == 0 {
			return a.services.Delete(ctx, is.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &is.UID, ResourceVersion: &is.ResourceVersion}})
		}
		is = is.DeepCopy()
		markOwners(is, owners)
		_, err := a.services.Update(ctx, is, metav1.UpdateOptions{})
		return err
	})
}

// do gets nil for a missing Service, and runs again if the Service has changed meanwhile.
func (a *applier) change(ctx context.Context, name api.FunctionName, do func(is *v1.Service) error) error {
	raced := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
	err := retry.OnError(retry.DefaultRetry, raced, func() error {
		is, err := a.services.Get(ctx, name.Name(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			is = nil
		case err != nil:
			return err
		}
		err = do(is)
		if is != nil && apierrors.IsNotFound(err) {
			return nil // it was removed meanwhile
		}
		return err
	})
	return a.explain(err, name)
}

// explain is for the front door's client.
func (a *applier) explain(err error, name api.FunctionName) error {
	var e *api.Error
	switch {
	case err == nil || errors.As(err, &e):
		return err
	case apierrors.IsForbidden(err) && api.QuotaFull(err.Error()):
		return api.Errorf(http.StatusServiceUnavailable, api.CodeNoCapacity, "the quota of its namespace %s does not allow %s: %v", a.cfg.Namespace, name, err)
	case apierrors.IsForbidden(err):
		return api.Errorf(http.StatusForbidden, api.CodeNoCapacity, "its agent may not change Services of the namespace %s (manifests/components/agent/accept.yaml has the rights): %v", a.cfg.Namespace, err)
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		return api.Errorf(http.StatusBadRequest, api.CodeStartFailed, "its API server does not accept %s: %v", name, err)
	}
	return fmt.Errorf("change the Service of %s: %w", name, err)
}

// none: not made here
func ownersOf(s *v1.Service) (fronts []string) {
	if s.Labels[labelPlaced] == "" || s.DeletionTimestamp != nil || json.Unmarshal([]byte(s.Annotations[annotationFronts]), &fronts) != nil {
		return nil
	}
	return fronts
}

// keepMarks copies what strip would drop.
func keepMarks(to *metav1.ObjectMeta, from metav1.ObjectMeta) {
	if from.Labels[labelPlaced] == "" {
		return
	}
	if to.Annotations == nil {
		to.Annotations = map[string]string{}
	}
	to.Labels, to.DeletionTimestamp = map[string]string{labelPlaced: from.Labels[labelPlaced]}, from.DeletionTimestamp
	to.Annotations[annotationFronts] = from.Annotations[annotationFronts]
}

func markOwners(s *v1.Service, owners []string) {
	text, _ := json.Marshal(owners) // strings always marshal
	s.Annotations[annotationFronts] = string(text)
}
