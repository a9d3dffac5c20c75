package leader

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler/server"
)

func quietLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }

func autoscalerPod(name string, leads bool) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: control.SystemNamespace, Name: name, Labels: map[string]string{"app": control.AutoscalerName}}}
	if leads {
		p.Labels[control.LabelLeader] = "true"
	}
	return p
}

// leaders are the pods that the Service selects.
func leaders(t *testing.T, kube *fake.Clientset) (names []string) {
	t.Helper()
	list, err := kube.CoreV1().Pods(control.SystemNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: control.LabelLeader + "=true"})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list.Items {
		names = append(names, p.Name)
	}
	return names
}

// Two processes: the second leads at once when the first has ended, and never beside it.
func TestOneLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := fake.NewClientset()
		var leading atomic.Value
		leading.Store("")
		stand := func(ctx context.Context, name string) <-chan error {
			done := make(chan error, 1)
			go func() {
				done <- stand(ctx, kube, name, func() {}, func(ctx context.Context, _ uint64) error {
					if !leading.CompareAndSwap("", name) {
						t.Errorf("%s leads beside %s", name, leading.Load())
					}
					<-ctx.Done()
					time.Sleep(time.Second) // its parts end
					leading.Store("")
					return nil
				})
			}()
			return done
		}
		first, stop := context.WithCancel(t.Context())
		a := stand(first, "a")
		time.Sleep(5 * time.Second)
		second, stopSecond := context.WithCancel(t.Context())
		b := stand(second, "b")
		time.Sleep(time.Minute)
		if leading.Load() != "a" {
			t.Fatalf("%q leads, want a", leading.Load())
		}
		stop()
		if err := <-a; err != nil {
			t.Errorf("a ends: %v", err)
		}
		time.Sleep(2 * time.Second) // far less than the lease's life: it was let go
		if leading.Load() != "b" {
			t.Errorf("%q leads, want b", leading.Load())
		}
		stopSecond()
		if err := <-b; err != nil {
			t.Errorf("b ends: %v", err)
		}
	})
}

// TestTermsRise checks that each leader's term is higher than all earlier ones. The earlier leaders are the other
// process, a killed process in the same pod that held the lease, and one whose lease was deleted.
func TestTermsRise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := fake.NewClientset()
		kube.PrependReactor("create", "leases", func(call clienttesting.Action) (bool, runtime.Object, error) {
			call.(clienttesting.CreateAction).GetObject().(metav1.Object).SetCreationTimestamp(metav1.Now())
			return false, nil, nil
		})
		terms := make(chan uint64, 1) // one leader at a time
		leads := func(name string) (term uint64, stop func()) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				done <- stand(ctx, kube, name, func() {}, func(ctx context.Context, term uint64) error {
					terms <- term
					<-ctx.Done()
					return nil
				})
			}()
			return <-terms, func() {
				cancel()
				if err := <-done; err != nil {
					t.Errorf("%s ends: %v", name, err)
				}
			}
		}
		leases := kube.CoordinationV1().Leases(control.SystemNamespace)
		killed := func() { // it has not let go: the lease is as it was while it led
			lease, err := leases.Get(t.Context(), control.AutoscalerName, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			a, now := "a", metav1.NowMicro()
			lease.Spec.HolderIdentity, lease.Spec.RenewTime = &a, &now
			if _, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		var last uint64
		for k, name := range []string{"a", "b", "a", "a", "a"} {
			switch k {
			case 3:
				killed()
			case 4:
				if err := leases.Delete(t.Context(), control.AutoscalerName, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			begun := time.Now()
			term, stop := leads(name)
			if term <= last {
				t.Errorf("leader %d, %s, has the term %d, the one before had %d", k, name, term, last)
			}
			if took := time.Since(begun); took > 2*time.Second {
				t.Errorf("leader %d, %s, leads after %s", k, name, took)
			}
			last = term
			time.Sleep(5 * time.Second)
			stop()
		}
	})
}

// A leader that can't reach the API server stops before another one may lead.
func TestLosingTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := fake.NewClientset()
		cut := make(chan struct{})
		kube.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			select {
			case <-cut:
				return true, nil, errors.New("no route to host")
			default:
				return false, nil, nil
			}
		})
		done := make(chan error, 1)
		var cause error
		go func() {
			done <- stand(t.Context(), kube, "a", func() {}, func(ctx context.Context, _ uint64) error {
				<-ctx.Done()
				cause = context.Cause(ctx)
				return nil
			})
		}()
		time.Sleep(5 * time.Second)
		close(cut)
		begun := time.Now()
		if err := <-done; !errors.Is(err, errLost) || !errors.Is(cause, errLost) {
			t.Errorf("%v, cause %v, want %v", err, cause, errLost)
		}
		if took := time.Since(begun); took > leaseLife {
			t.Errorf("it led for %s without the API server; another may lead after %s", took, leaseLife)
		}
	})
}

// An API server that answers nothing at all takes no more of the leader's time than one that refuses.
func TestLosingTheLeaseInSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := fake.NewClientset()
		var cut atomic.Bool
		var last string // call of the elector, since then
		kube.PrependReactor("*", "leases", func(call clienttesting.Action) (bool, runtime.Object, error) {
			if !cut.Load() {
				return false, nil, nil
			}
			// A try is an update and then a get, in one time of renewWithin that the first try
			// uses up; a get of its own has a time of its own.
			if last == "" || last == "get" && call.GetVerb() == "get" {
				time.Sleep(renewWithin)
			}
			last = call.GetVerb()
			return true, nil, context.DeadlineExceeded
		})
		var stopped time.Time
		done := make(chan error, 1)
		go func() {
			done <- stand(t.Context(), kube, "a", func() {}, func(ctx context.Context, _ uint64) error {
				<-ctx.Done()
				stopped = time.Now()
				return nil
			})
		}()
		time.Sleep(5*time.Second + renewEvery/2)
		cut.Store(true)
		begun := time.Now()
		if err := <-done; !errors.Is(err, errLost) {
			t.Errorf("got %v, want %v", err, errLost)
		}
		if took := stopped.Sub(begun); took > leaseLife-stopWithin {
			t.Errorf("it led for %s without the API server; another may lead after %s", took, leaseLife)
		}
	})
}

func TestAFailedLeaderLetsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := fake.NewClientset()
		broken := errors.New("a part failed")
		if err := stand(t.Context(), kube, "a", func() {}, func(context.Context, uint64) error { return broken }); !errors.Is(err, broken) {
			t.Errorf("%v, want %v", err, broken)
		}
		lease, err := kube.CoordinationV1().Leases(control.SystemNamespace).Get(t.Context(), control.AutoscalerName, metav1.GetOptions{})
		if err != nil || *lease.Spec.HolderIdentity != "" {
			t.Errorf("the lease is %+v (%v), want nobody's", lease.Spec, err)
		}
	})
}

func TestTheServiceSelectsTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := fake.NewClientset(autoscalerPod("a", true), autoscalerPod("b", false), autoscalerPod("c", true))
		failures := 3
		kube.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			if failures--; failures >= 0 {
				return true, nil, errors.New("the API server is busy")
			}
			return false, nil, nil
		})
		p := &process{cfg: Config{Pod: "b"}, kube: kube, log: quietLogger()}
		if err := p.claim(t.Context()); err != nil {
			t.Error(err)
		}
		if got, want := leaders(t, kube), []string{"b"}; !cmp.Equal(got, want) {
			t.Errorf("labelled: %q, want %q", got, want)
		}
	})
}

func TestToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := fake.NewClientset()
		secrets := kube.CoreV1().Secrets(control.SystemNamespace)
		tok := newToken(kube, quietLogger())
		if tok.current() != "" {
			t.Errorf("before: %q", tok.current())
		}
		if err := tok.ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
		made := tok.current()
		other := newToken(kube, quietLogger())
		if err := other.ensure(t.Context()); err != nil || other.current() != made || len(made) < 40 {
			t.Errorf("a second process has %q (%v), the first made %q", other.current(), err, made)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- tok.keep(ctx) }()
		synctest.Wait()
		set := func(data map[string][]byte) {
			t.Helper()
			s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: control.SystemNamespace, Name: control.ControlSecret}, Data: data}
			if _, err := secrets.Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		set(map[string][]byte{control.ControlSecretKey: []byte("chosen-by-people\n")})
		if got := tok.current(); got != "chosen-by-people" {
			t.Errorf("after a change: %q", got)
		}
		set(nil)
		if got := tok.current(); got == "chosen-by-people" || len(got) < 40 {
			t.Errorf("emptied: %q, want a new one", got)
		}
		emptied := tok.current()
		if err := secrets.Delete(t.Context(), control.ControlSecret, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		s, err := secrets.Get(t.Context(), control.ControlSecret, metav1.GetOptions{})
		if err != nil || content(s) != tok.current() || tok.current() == emptied {
			t.Errorf("deleted: the Secret has %v (%v), the process %q, before it had %q", s, err, tok.current(), emptied)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestGoesWithTheDeployment checks that the objects that leaders make belong to the autoscaler's Deployment, also those
// of an older version. A process outside of the cluster has none.
func TestGoesWithTheDeployment(t *testing.T) {
	meta := func(name string, uid types.UID) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: control.SystemNamespace, Name: name, UID: uid}
	}
	older := []runtime.Object{&coordinationv1.Lease{ObjectMeta: meta(control.AutoscalerName, "")},
		&corev1.Secret{ObjectMeta: meta(control.ControlSecret, ""), Data: map[string][]byte{control.ControlSecretKey: []byte("old")}}}
	for name, tt := range map[string]struct {
		there []runtime.Object
		owner types.UID
		token string
	}{
		"a new cluster": {[]runtime.Object{older[0], &appsv1.Deployment{ObjectMeta: meta(control.AutoscalerName, "d")}}, "d", ""},
		"an older one":  {append(older, &appsv1.Deployment{ObjectMeta: meta(control.AutoscalerName, "d")}), "d", "old"},
		"no Deployment": {older, "", "old"},
	} {
		t.Run(name, func(t *testing.T) {
			kube := fake.NewClientset(tt.there...)
			l := &leader{process: &process{kube: kube}, token: newToken(kube, quietLogger())}
			if err := l.belong(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := l.token.ensure(t.Context()); err != nil || tt.token != "" && l.token.current() != tt.token {
				t.Fatalf("the token is %q, %v; want %q", l.token.current(), err, tt.token)
			}
			lease, err := kube.CoordinationV1().Leases(control.SystemNamespace).Get(t.Context(), control.AutoscalerName, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			secret, err := kube.CoreV1().Secrets(control.SystemNamespace).Get(t.Context(), control.ControlSecret, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range []metav1.Object{lease, secret} {
				owners := o.GetOwnerReferences()
				if (tt.owner == "") != (len(owners) == 0) || tt.owner != "" && (owners[0].UID != tt.owner || owners[0].Kind != "Deployment") {
					t.Errorf("%T is owned by %+v, want %q", o, owners, tt.owner)
				}
			}
		})
	}
}

func TestTokenIsForbidden(t *testing.T) {
	kube := fake.NewClientset()
	kube.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, control.ControlSecret, errors.New("no permission"))
	})
	if err := newToken(kube, quietLogger()).ensure(t.Context()); err == nil || !strings.Contains(err.Error(), control.ControlSecret) {
		t.Errorf("%v, want an error that names the Secret", err)
	}
}

func TestActivatorPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := func(name, ip string, ready bool, restarts int32) *corev1.Pod {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: control.SystemNamespace, Name: name, UID: "uid-" + "of-pod", Labels: map[string]string{"app": control.ActivatorName}}}
			p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, ContainerStatuses: []corev1.ContainerStatus{{RestartCount: restarts}}}
			if ready {
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			}
			return p
		}
		kube := fake.NewClientset(pod("a", "10.0.0.1", true, 0))
		var got []server.Activator
		a := newActivatorPods(kube, func(now []server.Activator) { got = now })
		ctx, cancel := context.WithCancel(t.Context())
		done := beside(t, func() error { return a.run(ctx) })
		synctest.Wait()
		first := got
		if len(got) != 1 || got[0].Endpoint != "http://10.0.0.1:8014" || !got[0].Ready {
			t.Fatalf("%+v", got)
		}
		pods := kube.CoreV1().Pods(control.SystemNamespace)
		update := func(p *corev1.Pod) {
			t.Helper()
			if _, err := pods.Update(t.Context(), p, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		update(pod("a", "10.0.0.1", false, 0))
		if len(got) != 1 || got[0].Ready || got[0].Key != first[0].Key {
			t.Errorf("not ready: %+v", got)
		}
		update(pod("a", "10.0.0.1", true, 1))
		if len(got) != 1 || got[0].Key == first[0].Key {
			t.Errorf("its container was restarted: %+v, want another key than %s", got, first[0].Key)
		}
		ending := pod("a", "10.0.0.1", true, 1)
		now := metav1.Now()
		ending.DeletionTimestamp, ending.Finalizers = &now, []string{"test"}
		update(ending)
		if len(got) != 1 {
			t.Errorf("it is ending: %+v; want that it is told on", got)
		}
		update(pod("a", "", false, 1))
		if len(got) != 0 {
			t.Errorf("without an address: %+v", got)
		}
		agent := pod("b", "10.0.0.2", true, 0)
		agent.UID, agent.Labels["app"] = "uid-of-agent", control.AgentName
		if _, err := pods.Create(t.Context(), agent, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(got) != 1 || got[0].Name != "b" {
			t.Errorf("an agent: %+v; want that it is told", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// beside runs f beside the test.
func beside(t *testing.T, f func() error) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

func TestConfig(t *testing.T) {
	err := Config{Listen: "8080", MetricsListen: ":1"}.Validate()
	for _, want := range []string{"POD_NAME", "--listen", "--kubeconfig"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: does not name %s", err, want)
		}
	}
}

// Before the leader is ready, requests wait for a moment, or get the reason.
func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		problem := ""
		g := newGate(func() string { return problem })
		ask := func() (status int, body string, took time.Duration) {
			begun, w := time.Now(), httptest.NewRecorder()
			g.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", control.PathRegister, nil))
			return w.Code, w.Body.String(), time.Since(begun)
		}
		if status, body, took := ask(); status != 503 || took != patience {
			t.Errorf("nothing is there yet: %d %s after %s", status, body, took)
		}
		problem = "install Knative Serving"
		if status, body, took := ask(); status != 503 || took != 0 || !strings.Contains(body, problem) {
			t.Errorf("people have to do something: %d %s after %s", status, body, took)
		}
		problem = ""
		time.AfterFunc(patience/2, func() {
			g.open(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
		})
		for _, want := range []time.Duration{patience / 2, 0} {
			if status, body, took := ask(); status != 204 || took != want {
				t.Errorf("it opens: %d %s after %s, want %s", status, body, took, want)
			}
		}
	})
}

// A server ends at once, and cuts streams.
func TestServeEnds(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := beside(t, func() error {
		return serveHTTP(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}), quietLogger())
	})
	resp, err := http.Get("http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	cancel()
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Errorf("the follower: %v, want the end", err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
