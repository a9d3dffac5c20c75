package knative

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubetesting "k8s.io/client-go/testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/config"
)

// begin starts an instance in the background.
func (c *cluster) begin(id api.InstanceID, g api.Grant) func() (api.InstanceID, error) {
	type result struct {
		id  api.InstanceID
		err error
	}
	done := make(chan result, 1)
	go func() {
		real, err := c.fleet.Start(c.traced(context.Background()), api.Function{Name: tiny}, id, g)
		done <- result{real, err}
	}()
	synctest.Wait()
	return func() (api.InstanceID, error) { r := <-done; return r.id, r.err }
}

func status(err error) int {
	var e *api.Error
	if errors.As(err, &e) {
		return e.Status
	}
	return 0
}

func TestAStartBecomesAPodThatJoins(t *testing.T) {
	inCluster(t, 0, nil, func(t *testing.T, c *cluster) {
		c.declare(scaling{initialized: true})
		id, err := c.begin("tiny-00001-0001", api.Grant{Epoch: 7})()
		if id != "pod-1" || err != nil || c.replicas() != 1 {
			t.Fatalf("got %s, %v and %d replicas, want pod-1 and 1", id, err, c.replicas())
		}
		if n := c.heard("pod-1"); n != 0 {
			t.Errorf("the core heard of pod-1 %d times before the start was over, want none: it would count it twice", n)
		}
		c.addressed("pod-1", "10.0.0.1")
		answer, err := c.join("pod-1", "10.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		if answer.Epoch != 7 || answer.Endpoint != "http://10.0.0.1:8080" || answer.Function.Name != tiny || answer.Function.Runtime.Model != "pico" {
			t.Errorf("got %+v", answer)
		}
		if err := c.report("pod-1", "10.0.0.1", api.Awake, 10); err != nil {
			t.Fatal(err)
		}
		got := c.last("pod-1")
		if got.State != api.Awake || got.Endpoint != "http://10.0.0.1:8080" {
			t.Errorf("the core heard %+v", got)
		}
		c.mu.Lock()
		told := c.told[len(c.told)-1]
		c.mu.Unlock()
		if told.Token != ownTok || told.Status.State != api.Awake {
			t.Errorf("the activators were told %+v, want the state with the token", told)
		}
	})
}

func TestStartsOfOneRevisionGetDifferentPods(t *testing.T) {
	inCluster(t, 0, nil, func(t *testing.T, c *cluster) {
		c.hold = true
		one, two, three := c.begin("a", api.Grant{Epoch: 1}), c.begin("b", api.Grant{Epoch: 2}), c.begin("c", api.Grant{Epoch: 3})
		if c.replicas() != 3 {
			t.Fatalf("got %d replicas, want 3", c.replicas())
		}
		c.kube.Lock()
		c.match(3)
		c.kube.Unlock()
		var ids []api.InstanceID
		for _, wait := range []func() (api.InstanceID, error){one, two, three} {
			id, err := wait()
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		slices.Sort(ids)
		if !slices.Equal(ids, []api.InstanceID{"pod-1", "pod-2", "pod-3"}) {
			t.Errorf("got %v, want three different pods", ids)
		}
	})
}

func TestJoinsThatAreRefused(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		if _, err := c.join("pod-7", "10.0.0.1"); status(err) != http.StatusNotFound {
			t.Errorf("a pod that is not there: got %v, want 404", err)
		}
		if err := c.report("pod-1", "10.0.0.1", api.Awake, 1); status(err) != http.StatusNotFound {
			t.Errorf("a report before the join: got %v, want 404", err)
		}
		c.runs("pod-1", "10.0.0.1")
		if _, err := c.join("pod-1", "10.0.0.66"); status(err) != http.StatusForbidden {
			t.Errorf("another pod's join: got %v, want 403", err)
		}
		if _, err := c.fleet.Join(t.Context(), control.RegisterRequest{Instance: "pod-1", Namespace: "default", Revision: "other-00001", Port: 8080},
			netip.MustParseAddr("10.0.0.1"), ownTok); status(err) != http.StatusNotFound {
			t.Errorf("a join for another revision: got %v, want 404", err)
		}
		if _, err := c.join("pod-1", "10.0.0.1"); err != nil {
			t.Errorf("its own join: %v", err)
		}
		if err := c.report("pod-1", "10.0.0.66", api.Awake, 1); status(err) != http.StatusForbidden {
			t.Errorf("a report from elsewhere: got %v, want 403", err)
		}
		s := api.InstanceStatus{Instance: "pod-1", Function: tiny, State: api.Awake, Seq: 1}
		if err := c.fleet.Report(s, netip.MustParseAddr("10.0.0.1"), "another token that is long"); status(err) != http.StatusForbidden {
			t.Errorf("a report with another token: got %v, want 403", err)
		}
		if err := c.report("pod-1", "10.0.0.1", "dancing", 1); status(err) != http.StatusBadRequest {
			t.Errorf("a state that is none: got %v, want 400", err)
		}
		if s := c.last("pod-1").State; s != api.Starting {
			t.Errorf("the core heard %s, want only that it starts", s)
		}
	})
}

// sleeper answers the control path of sleep.
func sleeper(name string, levels *[]api.Level) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != control.PathSleep || r.Header.Get("Authorization") != "Bearer "+ownTok {
			http.Error(w, "no", http.StatusNotFound)
			return
		}
		var req control.SleepRequest
		_ = json.NewDecoder(r.Body).Decode(&req)
		*levels = append(*levels, req.Level)
		api.WriteJSON(w, http.StatusOK, api.InstanceStatus{Instance: api.InstanceID(name), Function: tiny, State: api.Asleep, Level: req.Level, Seq: 99})
	})
}

// two brings up two pods that are awake.
func (c *cluster) two() {
	for name, ip := range map[string]string{"pod-1": "10.0.0.1", "pod-2": "10.0.0.2"} {
		c.runs(name, ip)
		if _, err := c.join(name, ip); err != nil {
			c.t.Fatal(err)
		}
		if err := c.report(name, ip, api.Awake, 5); err != nil {
			c.t.Fatal(err)
		}
	}
}

func TestStopTakesTheVeryPod(t *testing.T) {
	inCluster(t, 2, nil, func(t *testing.T, c *cluster) {
		c.two()
		var levels []api.Level
		c.instances["10.0.0.2:8080"] = sleeper("pod-2", &levels)
		if err := c.fleet.Stop(t.Context(), c.last("pod-2"), api.Drain{Limit: time.Second}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !slices.Equal(levels, []api.Level{api.Level2}) {
			t.Errorf("it was put to sleep at %v, want once at level 2", levels)
		}
		if c.replicas() != 1 || c.last("pod-2").State != api.Gone || c.last("pod-1").State != api.Awake {
			t.Errorf("got %d replicas, pod-1 %s and pod-2 %s", c.replicas(), c.last("pod-1").State, c.last("pod-2").State)
		}
		if err := c.fleet.Stop(t.Context(), c.last("pod-2"), api.Drain{Limit: time.Second}); err != nil || c.replicas() != 1 {
			t.Errorf("again: got %v and %d replicas, want nothing", err, c.replicas())
		}
	})
}

// TestAnEmptyInstanceEndsAtOnce: its pod is deleted without the grace period that the queue-proxy would use up.
func TestAnEmptyInstanceEndsAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		pod     func(*corev1.Pod)
		deaf    bool
		deleted bool
	}{
		"it is empty":                 {deleted: true},
		"it could not be emptied":     {deaf: true},
		"another container of a user": {pod: func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "beside"}) }},
		"no annotation of ours":       {pod: func(p *corev1.Pod) { p.Annotations = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 0, nil)
				c.annotations = map[string]string{config.AnnotationModel: "pico"}
				c.match(2)
				if test.pod != nil {
					c.edit("pod-2", test.pod)
				}
				var deleted []string
				c.kube.PrependReactor("delete", "pods", func(a kubetesting.Action) (bool, runtime.Object, error) {
					d := a.(kubetesting.DeleteActionImpl)
					deleted = append(deleted, fmt.Sprintf("%s %s within %d s", d.Name, *d.DeleteOptions.Preconditions.UID, *d.DeleteOptions.GracePeriodSeconds))
					return true, nil, nil
				})
				c.start()
				defer func() { c.stop() }()
				c.declare(scaling{initialized: true})
				c.two()
				var levels []api.Level
				if !test.deaf {
					c.instances["10.0.0.2:8080"] = sleeper("pod-2", &levels)
				}
				if err := c.fleet.Stop(t.Context(), c.last("pod-2"), api.Drain{Limit: time.Second}); err != nil {
					t.Fatal(err)
				}
				want := []string{"pod-2 pod-2 within 1 s"}
				if !test.deleted {
					want = nil
				}
				if !slices.Equal(deleted, want) {
					t.Errorf("deleted are %q, want %q", deleted, want)
				}
			})
		})
	}
}

func TestStopWhereKubernetesTakesAnother(t *testing.T) {
	inCluster(t, 2, nil, func(t *testing.T, c *cluster) {
		c.two()
		c.backwards = true
		err := c.fleet.Stop(t.Context(), c.last("pod-2"), api.Drain{Limit: time.Second})
		if err == nil || !strings.Contains(err.Error(), "another pod") {
			t.Errorf("got %v, want that another pod was taken", err)
		}
		synctest.Wait()
		if c.last("pod-1").State != api.Gone || c.last("pod-2").State == api.Gone || c.replicas() != 1 {
			t.Errorf("got pod-1 %s, pod-2 %s and %d replicas", c.last("pod-1").State, c.last("pod-2").State, c.replicas())
		}
		// It is the last one now, and can be stopped.
		if err := c.fleet.Stop(t.Context(), c.last("pod-2"), api.Drain{Limit: time.Second}); err != nil || c.replicas() != 0 {
			t.Errorf("then: got %v and %d replicas, want none", err, c.replicas())
		}
	})
}

func TestAPodInTheOthersPlaceIsTaken(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		c.deletePod("pod-1") // a node is drained; Kubernetes makes another soon
		synctest.Wait()
		if c.last("pod-1").State != api.Gone {
			t.Fatalf("pod-1 is %s, want it gone", c.last("pod-1").State)
		}
		c.hold = true
		wait := c.begin("tiny-00001-0001", api.Grant{})
		if c.replicas() != 1 {
			t.Errorf("got %d replicas, want 1: its pod is on the way", c.replicas())
		}
		c.makePod()
		if id, err := wait(); id != "pod-2" || err != nil {
			t.Errorf("got %s and %v, want pod-2", id, err)
		}
	})
}

func TestARestartAdoptsWhatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2, nil)
		c.runs("pod-1", "10.0.0.1")
		c.runs("pod-2", "10.0.0.2")
		asked := 0
		c.instances["10.0.0.1:8080"] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost && r.URL.Path == control.PathReport {
				asked++
				w.WriteHeader(http.StatusAccepted)
			}
		})
		time.Sleep(time.Hour)
		c.start()
		defer c.stop()
		if s := c.last("pod-2"); !s.Since.Equal(time.Now()) {
			t.Errorf("it starts since %s ago, want since now: else its time to start is over", time.Since(s.Since))
		}
		if asked != 1 {
			t.Errorf("pod-1 was asked %d times, want once", asked)
		}
		if c.last("pod-1").State != api.Starting || c.last("pod-2").State != api.Starting {
			t.Errorf("the core heard %s and %s, want that both are there", c.last("pod-1").State, c.last("pod-2").State)
		}
		if _, err := c.join("pod-1", "10.0.0.1"); err != nil {
			t.Fatal(err)
		}
		if err := c.report("pod-1", "10.0.0.1", api.Asleep, 1_000); err != nil {
			t.Fatal(err)
		}
		if s := c.last("pod-1"); s.State != api.Asleep {
			t.Errorf("got %s, want it asleep as it is", s.State)
		}
		c.declare(scaling{initialized: true})
		if err := c.fleet.scaler.keepScale(t.Context(), tiny); err != nil || c.replicas() != 2 || c.called("scale") {
			t.Errorf("got %v and %d replicas, want the two that there were, untouched", err, c.replicas())
		}
	})
}

func TestSomebodyElseScales(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		c.declare(scaling{initialized: true})
		if err := c.fleet.scaler.keepScale(t.Context(), tiny); err != nil {
			t.Fatal(err)
		}
		c.scaleByHand(4)
		if err := c.fleet.scaler.keepScale(t.Context(), tiny); err != nil || c.replicas() != 1 {
			t.Errorf("got %v and %d replicas, want the one that is wanted", err, c.replicas())
		}
	})
}

// scaleByHand is kubectl scale.
func (c *cluster) scaleByHand(n int32) {
	d, err := c.fleet.deployment(tiny)
	if err != nil {
		c.t.Fatal(err)
	}
	d = d.DeepCopy()
	d.Spec.Replicas = &n
	if err := c.kube.Tracker().Update(deployments, d, "default"); err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait()
}

func TestPodsThatAreRefused(t *testing.T) {
	inCluster(t, 0, nil, func(t *testing.T, c *cluster) {
		c.refuse = "exceeded quota: two pods"
		began := time.Now()
		_, err := c.begin("tiny-00001-0001", api.Grant{})()
		if err == nil || !strings.Contains(err.Error(), "exceeded quota") {
			t.Errorf("got %v, want the reason", err)
		}
		if d := time.Since(began); d > 5*time.Second {
			t.Errorf("it took %s", d)
		}
		if c.replicas() != 0 {
			t.Errorf("got %d replicas, want the scale taken back", c.replicas())
		}
	})
}

// TestPodsLeaveTheQuota: pods that are being deleted count in a quota until they are gone, and the next start waits for that.
func TestPodsLeaveTheQuota(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		c.declare(scaling{initialized: true})
		time.Sleep(2 * lately) // a pod that came just now would be taken
		c.refuse = "exceeded quota: one pod"
		if _, err := c.begin("tiny-00001-0001", api.Grant{})(); err == nil {
			t.Fatal("it is started")
		}
		c.edit("pod-1", leaving)
		synctest.Wait()
		end := c.begin("tiny-00001-0002", api.Grant{})
		time.Sleep(30 * time.Second)
		c.kube.Lock()
		c.refuse = ""
		err := c.kube.Tracker().Delete(podResource, "default", "pod-1")
		c.kube.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		if id, err := end(); id != "pod-2" {
			t.Errorf("got %q, %v; want the pod that is made when the other is gone", id, err)
		}
	})
}

// TestANamespaceIsDeleted: no pod is made there, and the Deployment does not report that.
func TestANamespaceIsDeleted(t *testing.T) {
	inCluster(t, 0, nil, func(t *testing.T, c *cluster) {
		c.hold = true
		c.add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tiny.Namespace(), DeletionTimestamp: new(metav1.Now())}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := c.fleet.Start(ctx, api.Function{Name: tiny}, "tiny-00001-0001", api.Grant{}); err == nil || !strings.Contains(err.Error(), "its namespace is being deleted") {
			t.Errorf("got %v, want the reason", err)
		}
	})
}

// TestAWebhookDoesNotAnswer: that a webhook is away says nothing of the pod. A start waits for it, and ends with the reason where it stays away.
func TestAWebhookDoesNotAnswer(t *testing.T) {
	const away = `Internal error occurred: failed calling webhook "functions.rouse.dev": failed to call webhook: connection refused`
	inCluster(t, 0, nil, func(t *testing.T, c *cluster) {
		c.refuse = away
		end := c.begin("tiny-00001-0001", api.Grant{})
		time.Sleep(15 * time.Second)
		c.mu.Lock()
		c.refuse = ""
		c.match(1)
		c.mu.Unlock()
		if id, err := end(); err != nil || id != "pod-1" {
			t.Errorf("got %q and %v, want the pod that was made when it was back", id, err)
		}
	})
	inCluster(t, 0, nil, func(t *testing.T, c *cluster) {
		c.refuse = away
		_, err := c.begin("tiny-00001-0001", api.Grant{})()
		if err == nil || !strings.Contains(err.Error(), "within 20s") || !strings.Contains(err.Error(), away) {
			t.Errorf("got %v, want the reason", err)
		}
		if c.replicas() != 0 {
			t.Errorf("got %d replicas, want the scale taken back", c.replicas())
		}
	})
}

// TestSlowControllers: a pod that is made late is no failed start, and one that is never made ends with the start's own limit.
func TestSlowControllers(t *testing.T) {
	inCluster(t, 0, nil, func(t *testing.T, c *cluster) {
		c.hold = true
		end := c.begin("tiny-00001-0001", api.Grant{})
		time.Sleep(3 * time.Minute)
		c.mu.Lock()
		c.match(1)
		c.mu.Unlock()
		if id, err := end(); err != nil || id != "pod-1" {
			t.Errorf("got %q and %v, want the pod that was made late", id, err)
		}
	})
	inCluster(t, 0, nil, func(t *testing.T, c *cluster) {
		c.hold = true
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		_, err := c.fleet.Start(ctx, api.Function{Name: tiny}, "tiny-00001-0001", api.Grant{})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no pod was made") {
			t.Errorf("got %v, want what to look at", err)
		}
		if c.replicas() != 0 {
			t.Errorf("got %d replicas, want the scale taken back", c.replicas())
		}
	})
}

func TestAContainerThatEndsJoinsAgain(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		c.runs("pod-1", "10.0.0.1")
		if _, err := c.join("pod-1", "10.0.0.1"); err != nil {
			t.Fatal(err)
		}
		_ = c.report("pod-1", "10.0.0.1", api.Awake, 10)
		c.edit("pod-1", func(p *corev1.Pod) {
			s := &p.Status.ContainerStatuses[0]
			s.RestartCount = 1
			s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137}
		})
		synctest.Wait()
		if s := c.last("pod-1"); s.State != api.Unhealthy || s.GaveUp || !strings.Contains(s.Message, "memory limit") {
			t.Errorf("got %s (%v): %s", s.State, s.GaveUp, s.Message)
		}
		if err := c.report("pod-1", "10.0.0.1", api.Awake, 11); status(err) != http.StatusNotFound {
			t.Errorf("a late report: got %v, want 404", err)
		}
		if _, err := c.join("pod-1", "10.0.0.1"); err != nil {
			t.Fatal(err)
		}
		_ = c.report("pod-1", "10.0.0.1", api.Awake, 20)
		if s := c.last("pod-1"); s.State != api.Awake {
			t.Errorf("got %s, want it awake again", s.State)
		}
	})
}

func TestADeclarationIsTold(t *testing.T) {
	inCluster(t, 0, nil, func(t *testing.T, c *cluster) {
		c.declare(scaling{min: 1, initial: 2})
		if f := c.functions[tiny]; f.MinScale != 2 || f.MaxScale < 2 || f.Service != "default/tiny" {
			t.Errorf("before it was up: got %+v, want two kept awake", f)
		}
		c.declare(scaling{min: 1, initial: 2, initialized: true})
		if f := c.functions[tiny]; f.MinScale != 1 {
			t.Errorf("then: got min-scale %d, want 1", f.MinScale)
		}
		c.declare(scaling{initialized: true, unreachable: true})
		if f := c.functions[tiny]; f.MinScale != 0 || f.UnloadAfter != unreachableGone {
			t.Errorf("unreachable: got %+v, want it to go", f)
		}
		c.fleet.forgetFunction(tiny)
		if !slices.Contains(c.removed, tiny) {
			t.Error("it was not removed")
		}
	})
}

func TestAWrongDeclarationStartsNothing(t *testing.T) {
	inCluster(t, 1, map[string]string{"rouse.dev/sleep-aftr": "5s"}, func(t *testing.T, c *cluster) {
		if p := c.declare(scaling{initial: 1}); !strings.Contains(p, "rouse.dev/sleep-after") {
			t.Errorf("got %q, want what to write", p)
		}
		if err := c.fleet.scaler.keepScale(t.Context(), tiny); err != nil || c.replicas() != 0 {
			t.Errorf("got %v and %d replicas, want none", err, c.replicas())
		}
		if len(c.functions) != 0 {
			t.Errorf("the core was told of %v", c.functions)
		}
	})
}

func TestResolve(t *testing.T) {
	inCluster(t, 0, nil, func(t *testing.T, c *cluster) {
		for name, want := range map[api.FunctionName][]api.FunctionName{tiny: {tiny}, "default/tiny": {tiny}, "default/other": {}} {
			if got := c.fleet.Resolve(name); !slices.Equal(got, want) {
				t.Errorf("%s: got %v, want %v", name, got, want)
			}
		}
	})
}
