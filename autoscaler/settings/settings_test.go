package settings_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	servingconfig "knative.dev/serving/pkg/apis/config"
	"knative.dev/serving/pkg/deployment"

	autoscalerconfig "knative.dev/serving/pkg/autoscaler/config"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler/settings"
)

func meta(name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: control.SystemNamespace, Labels: labels, UID: "uid-" + "1"}
}

// stock returns the objects that Knative's manifests install, as far as they matter here.
func stock(version string) []runtime.Object {
	return []runtime.Object{
		&corev1.Service{ObjectMeta: meta(settings.Service, map[string]string{"app": "activator"}), Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "activator"}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}},
		&appsv1.Deployment{ObjectMeta: meta("controller", map[string]string{"app.kubernetes.io/version": version})},
		&appsv1.Deployment{ObjectMeta: meta(control.AutoscalerName, nil)},
		&appsv1.Deployment{ObjectMeta: meta("activator", nil), Status: appsv1.DeploymentStatus{AvailableReplicas: 1}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "config-autoscaler", Namespace: control.SystemNamespace, Annotations: map[string]string{"knative.dev/example-checksum": "x"}},
			Data: map[string]string{"_example": "# allow-zero-initial-scale"}},
		&corev1.ConfigMap{ObjectMeta: meta("config-defaults", nil)},
		&corev1.ConfigMap{ObjectMeta: meta("config-deployment", nil), Data: map[string]string{"queue-sidecar-image": "queue", "progress-deadline": "900s"}},
	}
}

// world is a cluster and the reconciler of it.
type world struct {
	t       *testing.T
	kube    *fake.Clientset
	reached atomic.Bool
	r       *settings.Reconciler
}

func newWorld(t *testing.T, objects ...runtime.Object) *world {
	w := &world{t: t, kube: fake.NewClientset(objects...)}
	w.r = settings.NewReconciler(settings.Config{Kube: w.kube, Reached: w.reached.Load, Log: slog.New(slog.DiscardHandler)})
	return w
}

func (w *world) run() (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- w.r.Run(ctx) }()
	synctest.Wait()
	return func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("Run: %v", err)
		}
	}
}

// activators sets how many pods of Knative's own activator are available.
func (w *world) activators(n int32) {
	w.t.Helper()
	d := &appsv1.Deployment{ObjectMeta: meta("activator", nil), Status: appsv1.DeploymentStatus{AvailableReplicas: n}}
	if _, err := w.kube.AppsV1().Deployments(control.SystemNamespace).UpdateStatus(w.t.Context(), d, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) service() *corev1.Service {
	w.t.Helper()
	s, err := w.kube.CoreV1().Services(control.SystemNamespace).Get(w.t.Context(), settings.Service, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) configMap(name string) *corev1.ConfigMap {
	w.t.Helper()
	c, err := w.kube.CoreV1().ConfigMaps(control.SystemNamespace).Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// events returns the reasons of the events that were recorded.
func (w *world) events() (reasons []string) {
	w.t.Helper()
	for _, a := range w.kube.Actions() {
		if c, ok := a.(clienttesting.CreateAction); ok && a.GetResource().Resource == "events" {
			reasons = append(reasons, c.GetObject().(*corev1.Event).Reason)
		}
	}
	return reasons
}

// TestOlderVersion: what an older version has taken of Knative's data path goes back, once no function needs it and Knative's own
// activator serves; its settings stay.
func TestOlderVersion(t *testing.T) {
	for name, tt := range map[string]struct {
		selector    map[string]string
		annotations map[string]string
		want        map[string]string
	}{
		"as it was taken": {map[string]string{"app": control.ActivatorName}, map[string]string{settings.AnnotationBefore: `{"app":{"was":"activator","set":"rouse-activator"},"role":{"was":"new","set":null}}`},
			map[string]string{"app": "activator", "role": "new"}},
		"what was there is lost":        {map[string]string{"app": control.ActivatorName}, nil, map[string]string{"app": "activator"}},
		"somebody has changed it since": {map[string]string{"app": "other"}, map[string]string{settings.AnnotationBefore: `{"app":{"was":"activator","set":"rouse-activator"}}`}, map[string]string{"app": "other"}},
		"nobody has touched it":         {map[string]string{"app": "activator"}, nil, map[string]string{"app": "activator"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				objects := stock("0.51.0")
				s := objects[0].(*corev1.Service)
				s.Spec.Selector, s.Annotations = tt.selector, tt.annotations
				w := newWorld(t, objects...)
				defer w.run()()
				want := map[string]string{"allow-zero-initial-scale": "true", "_example": "# allow-zero-initial-scale"}
				if got := w.configMap("config-autoscaler").Data; !cmp.Equal(got, want) {
					t.Errorf("config-autoscaler has %v, want %v", got, want)
				}
				if got := w.service().Spec.Selector; !cmp.Equal(got, tt.selector) {
					t.Errorf("functions are reached by it, and the selector is %v, want %v", got, tt.selector)
				}
				w.activators(0)
				w.reached.Store(true)
				time.Sleep(time.Minute)
				if got := w.service().Spec.Selector; !cmp.Equal(got, tt.selector) {
					t.Errorf("Knative's own activator does not serve, and the selector is %v, want %v", got, tt.selector)
				}
				w.activators(1)
				time.Sleep(time.Minute)
				if got := w.service(); !cmp.Equal(got.Spec.Selector, tt.want) || len(got.Annotations) != 0 {
					t.Errorf("the selector is %v and the annotations are %v, want %v and none", got.Spec.Selector, got.Annotations, tt.want)
				}
				knativeAccepts(t, w)
				if w.r.Problem() != "" {
					t.Errorf("problem %q, want none", w.r.Problem())
				}
			})
		})
	}
}

// TestSettingsOfBefore checks that a setting that only an older version set gets its former value again, unless it was
// changed in the meantime. Settings of others stay.
func TestSettingsOfBefore(t *testing.T) {
	for name, tt := range map[string]struct {
		data, want map[string]string
	}{
		"as it was set": {map[string]string{"pod-is-always-schedulable": "true", "progress-deadline": "1800s", "queue-sidecar-image": "queue"},
			map[string]string{"queue-sidecar-image": "queue"}},
		"changed since": {map[string]string{"pod-is-always-schedulable": "false", "progress-deadline": "1800s", "queue-sidecar-image": "queue"},
			map[string]string{"pod-is-always-schedulable": "false", "queue-sidecar-image": "queue"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				objects := stock("0.51.0")
				for k, o := range objects {
					if c, is := o.(*corev1.ConfigMap); is && c.Name == "config-deployment" {
						old := c.DeepCopy()
						old.Data = tt.data
						old.Annotations = map[string]string{settings.AnnotationBefore: `{"pod-is-always-schedulable":{"was":null,"set":"true"},"progress-deadline":{"was":null,"set":"1800s"}}`}
						objects[k] = old
					}
				}
				w := newWorld(t, objects...)
				defer w.run()()
				c := w.configMap("config-deployment")
				if !cmp.Equal(c.Data, tt.want) || len(c.Annotations) != 0 {
					t.Errorf("config-deployment has %v and the annotations %v, want %v and none", c.Data, c.Annotations, tt.want)
				}
			})
		})
	}
}

// knativeAccepts reads the ConfigMaps as Knative's webhook does.
func knativeAccepts(t *testing.T, w *world) {
	t.Helper()
	a, err := autoscalerconfig.NewConfigFromMap(w.configMap("config-autoscaler").Data)
	if err != nil || !a.AllowZeroInitialScale {
		t.Errorf("config-autoscaler: %v, %+v", err, a)
	}
	d, err := servingconfig.NewDefaultsConfigFromMap(w.configMap("config-defaults").Data)
	if err != nil || d.MaxRevisionTimeoutSeconds != 3600 {
		t.Errorf("config-defaults: %v, %+v", err, d)
	}
	c, err := deployment.NewConfigFromMap(w.configMap("config-deployment").Data)
	if err != nil || c.PodIsAlwaysSchedulable || c.ProgressDeadline != 15*time.Minute {
		t.Errorf("config-deployment: %v, %+v; want it as Knative's manifests and the operator have it", err, c)
	}
}

// What people change of the settings is theirs.
func TestOthersChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, stock("0.51.0")...)
		defer w.run()()
		c := w.configMap("config-defaults")
		c.Data["max-revision-timeout-seconds"] = "7200"
		a := w.configMap("config-autoscaler")
		delete(a.Data, "allow-zero-initial-scale")
		for _, m := range []*corev1.ConfigMap{c, a} {
			if _, err := w.kube.CoreV1().ConfigMaps(control.SystemNamespace).Update(t.Context(), m, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5 * time.Minute)
		if v, found := w.configMap("config-autoscaler").Data["allow-zero-initial-scale"]; found {
			t.Errorf("a key that somebody removed is there again: %q", v)
		}
		if got := w.configMap("config-defaults").Data["max-revision-timeout-seconds"]; got != "7200" {
			t.Errorf("what somebody set is %q, want 7200", got)
		}
	})
}

func TestVersions(t *testing.T) {
	for _, c := range []struct {
		version          string
		untested         bool
		refused, remarks bool
	}{
		{version: "0.51.0"}, {version: "1.24.0"}, {version: "v1.24"}, {version: "knative-v1.24.4"},
		{version: "1.23.3", remarks: true}, {version: "1.25.0", remarks: true}, {version: "0.50.1", remarks: true},
		{version: "devel", remarks: true}, {version: "", remarks: true},
		{version: "1.19.0", refused: true}, {version: "0.40.0", refused: true}, {version: "1.26.0", refused: true},
		{version: "1.19.0", untested: true, remarks: true},
	} {
		_, remark, err := settings.Check(t.Context(), fake.NewClientset(stock(c.version)...), c.untested)
		var p *settings.Problem
		if errors.As(err, &p) != c.refused || (remark != "") != c.remarks {
			t.Errorf("%q (untested allowed: %t): remark %q, error %v; want refused %t, a remark %t", c.version, c.untested, remark, err, c.refused, c.remarks)
		}
		if c.refused && (p.Reason != "UntestedKnative" || !strings.Contains(p.Message, "--allow-untested-knative")) {
			t.Errorf("%q: %s %q does not say what to do", c.version, p.Reason, p.Message)
		}
	}
}

// Without Knative nothing is changed, one message says so, and the reconciler continues once Knative is installed.
func TestKnativeIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, &appsv1.Deployment{ObjectMeta: meta(control.AutoscalerName, nil)})
		waited := make(chan error, 1)
		go func() { waited <- w.r.Wait(t.Context()) }()
		time.Sleep(10 * time.Minute)
		if !strings.Contains(w.r.Problem(), "install Knative Serving") {
			t.Errorf("problem %q, want what to install", w.r.Problem())
		}
		if got, want := w.events(), []string{"NoKnative"}; !cmp.Equal(got, want) {
			t.Errorf("events %v, want %v", got, want)
		}
		for _, o := range stock("0.51.0") {
			if err := w.kube.Tracker().Add(o); err != nil && !apierrors.IsAlreadyExists(err) {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		if err := <-waited; err != nil || w.r.Problem() != "" {
			t.Errorf("Knative is there: %v, problem %q", err, w.r.Problem())
		}
	})
}

func TestForbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, stock("0.51.0")...)
		w.kube.PrependReactor("update", "configmaps", func(a clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "config-autoscaler", errors.New("no permission"))
		})
		defer w.run()()
		if p := w.r.Problem(); !strings.Contains(p, "config-autoscaler") || !strings.Contains(p, "no permission") {
			t.Errorf("problem %q, want what was refused", p)
		}
		if got, want := w.events(), []string{"SettingsFailed"}; !cmp.Equal(got, want) {
			t.Errorf("events %v, want %v", got, want)
		}
	})
}
