package knative

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/serving/pkg/apis/serving"
	v1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/config"
)

// transportFunc is a function as a transport.
type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answer returns an answer with a body.
func answer(status int, body string) (*http.Response, error) {
	return &http.Response{StatusCode: status, ContentLength: int64(len(body)), Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
}

// rig is an activator whose instances are a function, with the watch and controls that feed it.
type rig struct {
	core      *activator.Activator
	watch     *watch
	instances *instances
	prober    *prober
}

func newRig(t *testing.T, instance transportFunc) *rig {
	t.Helper()
	known := newInstances()
	client := control.NewFor(instance, known.token)
	core, err := activator.New(activator.Config{Name: "test", Domain: activator.NoDomain, PrivateMetrics: true},
		activator.Deps{Emitter: api.EmitterFunc(func(api.Event) {}), Waker: client, Transport: instance})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	w := newWatch(core, known, log)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = core.Run(ctx)
	})
	return &rig{core: core, watch: w, instances: known, prober: &prober{core: core, watch: w, instances: known, client: client, http: instance, log: log}}
}

// revision returns a revision of the service "tiny".
func revision(name, class string, annotations ...string) *v1.Revision {
	rev := &v1.Revision{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "default", Labels: map[string]string{serving.ServiceLabelKey: "tiny"},
		Annotations: map[string]string{config.AnnotationClass: class},
	}}
	for i := 0; i+1 < len(annotations); i += 2 {
		rev.Annotations[annotations[i]] = annotations[i+1]
	}
	rev.Spec.Containers = []corev1.Container{{Image: "dev.local/rouse-function:v1", Ports: []corev1.ContainerPort{{ContainerPort: 9000}}}}
	return rev
}

// route returns the route of the service "tiny" with percentages of revisions.
func route(shares map[string]int64) *v1.Route {
	r := &v1.Route{ObjectMeta: metav1.ObjectMeta{Name: "tiny", Namespace: "default", Labels: map[string]string{serving.ServiceLabelKey: "tiny"}}}
	for name, percent := range shares {
		r.Status.Traffic = append(r.Status.Traffic, v1.TrafficTarget{RevisionName: name, Percent: &percent})
	}
	r.Status.Traffic = append(r.Status.Traffic, v1.TrafficTarget{RevisionName: "tiny-00009", Tag: "only-a-tag"})
	return r
}

// pod returns a pod of a revision.
func pod(revision, name, ip string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{serving.RevisionLabelKey: revision}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip},
	}
}

// awake returns the report of an awake instance.
func awake(revision, id, ip string) api.InstanceStatus {
	return api.InstanceStatus{
		Instance: api.InstanceID(id), Function: api.NewFunctionName("default", revision), State: api.Awake, Seq: 1,
		Endpoint: podEndpoint(ip, 9000), Concurrency: 1,
	}
}
