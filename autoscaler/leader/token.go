package leader

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"knative.dev/pkg/controller"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/bell"
)

type token struct {
	kube  kubernetes.Interface
	log   *slog.Logger
	value atomic.Pointer[string]
	bell  bell.Bell // rung by the watch, received by keep
	// owner owns the Secret, which is deleted with it.
	owner []metav1.OwnerReference
}

func newToken(kube kubernetes.Interface, log *slog.Logger) *token {
	return &token{kube: kube, log: log, bell: bell.New()}
}

func (t *token) current() string {
	if v := t.value.Load(); v != nil {
		return *v
	}
	return ""
}

func (t *token) ensure(ctx context.Context) error {
	secrets := t.kube.CoreV1().Secrets(control.SystemNamespace)
	s, err := secrets.Get(ctx, control.ControlSecret, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		s, err = secrets.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: control.ControlSecret, Namespace: control.SystemNamespace,
				Labels: map[string]string{"app.kubernetes.io/part-of": "rouse"}, OwnerReferences: t.owner},
			Data: map[string][]byte{control.ControlSecretKey: []byte(random())},
		}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			s, err = secrets.Get(ctx, control.ControlSecret, metav1.GetOptions{})
		}
	case err == nil && (content(s) == "" || !slices.Equal(s.OwnerReferences, t.owner)):
		s = s.DeepCopy()
		if content(s) == "" {
			s.Data = map[string][]byte{control.ControlSecretKey: []byte(random())}
		}
		s.OwnerReferences = t.owner
		s, err = secrets.Update(ctx, s, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("the cluster's token, Secret %s/%s: %w", control.SystemNamespace, control.ControlSecret, err)
	}
	v := content(s)
	if v == "" {
		return fmt.Errorf("the cluster's token, Secret %s/%s: there is nothing under the key %q", control.SystemNamespace, control.ControlSecret, control.ControlSecretKey)
	}
	if old := t.value.Swap(&v); old != nil && *old != v {
		t.log.Info("the cluster's token has changed")
	}
	return nil
}

// content omits a line end that an editor left.
func content(s *corev1.Secret) string {
	return strings.TrimSpace(string(s.Data[control.ControlSecretKey]))
}

func random() string { return rand.Text() + rand.Text() }

// keep also creates a deleted Secret again.
func (t *token) keep(ctx context.Context) error {
	f := only(t.kube, control.ControlSecret)
	if _, err := f.Core().V1().Secrets().Informer().AddEventHandler(rings(t.bell)); err != nil {
		return fmt.Errorf("watch Secret %s: %w", control.ControlSecret, err)
	}
	f.Start(ctx.Done())
	defer f.Shutdown()
	t.bell.Each(ctx, func() {
		if err := t.ensure(ctx); err != nil && ctx.Err() == nil {
			t.log.Warn("the old token stays in use", "error", err)
			time.AfterFunc(time.Second, t.bell.Ring)
		}
	})
	return nil
}

func rings(b bell.Bell) cache.ResourceEventHandler {
	return controller.HandleAll(func(any) { b.Ring() })
}

func only(kube kubernetes.Interface, name string) informers.SharedInformerFactory {
	return informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithNamespace(control.SystemNamespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
		}))
}
