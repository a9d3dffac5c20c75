package knative

import (
	"context"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/rouse-dev/rouse/api/control"
)

// TestOneSecret: every request to the API server names the Secret, as the activator's role requires.
func TestOneSecret(t *testing.T) {
	kube := fake.NewClientset(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: control.SystemNamespace, Name: control.ControlSecret}})
	asked := make(chan string, 16) // more than are sent; from the fake's reactors, never closed
	tell := func(restrictions interface{ String() string }, namespace string) {
		asked <- namespace + " " + restrictions.String()
	}
	kube.PrependReactor("list", "secrets", func(a clienttesting.Action) (bool, runtime.Object, error) {
		tell(a.(clienttesting.ListAction).GetListRestrictions().Fields, a.GetNamespace())
		return false, nil, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	one := newSecret(kube, control.ControlSecret)
	var running sync.WaitGroup
	running.Go(func() { one.Run(ctx.Done()) })
	defer running.Wait()
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), one.HasSynced) {
		t.Fatal("it does not sync")
	}
	if got, want := <-asked, control.SystemNamespace+" metadata.name="+control.ControlSecret; got != want {
		t.Errorf("it asks for %q, want %q", got, want)
	}
	if _, err := one.Lister().Secrets(control.SystemNamespace).Get(control.ControlSecret); err != nil {
		t.Error(err)
	}
}
