package knative

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/rouse-dev/rouse/api/control"
)

// clusterToken is safe for concurrent use.
type clusterToken struct {
	value atomic.Pointer[string]
}

// empty: none yet
func (t *clusterToken) current() string {
	if v := t.value.Load(); v != nil {
		return *v
	}
	return ""
}

// An editor may have added a newline.
func (t *clusterToken) secret(s *corev1.Secret) {
	if s.Name != control.ControlSecret {
		return
	}
	if v := strings.TrimSpace(string(s.Data[control.ControlSecretKey])); v != "" {
		t.value.Store(&v)
	}
}

// The token outlives its Secret: other processes still use it.
func (t *clusterToken) handler() cache.ResourceEventHandler {
	return on(t.secret, func(*corev1.Secret) {})
}

var errNoToken = errors.New("the Secret " + control.ControlSecret + " has no token yet: rouse-autoscaler makes it when it starts")

type withToken struct {
	next  http.RoundTripper
	token *clusterToken
}

func (t withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	token := t.token.current()
	if token == "" {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, errNoToken
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return t.next.RoundTrip(r)
}
