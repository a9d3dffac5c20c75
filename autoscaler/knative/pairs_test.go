package knative

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubetesting "k8s.io/client-go/testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/autoscaler"
	"github.com/rouse-dev/rouse/config"
)

// gpuOne and gpuTwo are the node's.
const gpuOne, gpuTwo = api.DeviceID("GPU-1"), api.DeviceID("GPU-2")

var dualFunction = map[string]string{config.AnnotationDualPods: "true", config.AnnotationRuntime: api.RuntimeVLLM, config.AnnotationDeviceMemory: "600Mi"}

// inPairs runs test in a cluster whose function has dual pods.
func inPairs(t *testing.T, test func(t *testing.T, c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 0, dualFunction)
		c.gpus, c.annotations = 1, dualFunction
		c.kube.PrependReactor("delete", "pods", func(a kubetesting.Action) (bool, runtime.Object, error) {
			c.change(a.(kubetesting.DeleteAction).GetName(), beingDeleted)
			return true, nil, nil
		})
		c.start()
		defer func() { c.stop() }() // a test may have started it again
		if problem := c.declare(scaling{initialized: true}); problem != "" {
			t.Fatal(problem)
		}
		test(t, c)
	})
}

// requester has a requester's pod run and say which devices it was given.
func (c *cluster) requester(name, ip string, devices ...api.DeviceID) {
	c.t.Helper()
	c.runs(name, ip)
	c.mu.Lock()
	c.instances[ip+":8080"] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusOK) })
	c.mu.Unlock()
	answer, err := c.join(name, ip, devices...)
	if err != nil || answer.Role != control.RoleRequester {
		c.t.Fatalf("%s is told to be %q, %v; want a requester", name, answer.Role, err)
	}
	synctest.Wait()
}

// provider has a provider's pod run, join and be awake. It sleeps and wakes when it is told to.
func (c *cluster) provider(name api.InstanceID, ip string) control.RegisterAnswer {
	c.t.Helper()
	c.edit(string(name), func(p *corev1.Pod) { p.Spec.NodeName = "node1" })
	c.runs(string(name), ip)
	seq := uint64(100)
	c.mu.Lock()
	c.instances[ip+":8080"] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seq++
		s := api.InstanceStatus{Instance: name, Function: tiny, State: api.Awake, Seq: seq, PID: 7}
		if r.URL.Path == control.PathSleep {
			var in control.SleepRequest
			if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
				c.t.Error(err)
			}
			s.State, s.Level, s.Epoch = api.Asleep, in.Level, in.Epoch
		}
		api.WriteJSON(w, http.StatusOK, s)
	})
	c.mu.Unlock()
	answer, err := c.fleet.Join(c.t.Context(), control.RegisterRequest{Instance: name, Namespace: "default", Revision: tiny.Name(), Port: 8080, Role: control.RoleProvider},
		netip.MustParseAddr(ip), ownTok)
	if err != nil || answer.Role != control.RoleProvider {
		c.t.Fatalf("%s is told to be %q, %v; want a provider", name, answer.Role, err)
	}
	if err := c.report(string(name), ip, api.Awake, 10); err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait()
	return answer
}

// object is a pod as it is, nil where it is not.
func (c *cluster) object(name string) *corev1.Pod {
	o, err := c.kube.Tracker().Get(podResource, "default", name)
	if err != nil {
		return nil
	}
	return o.(*corev1.Pod)
}

// gone has Kubernetes end a pod that is being deleted.
func (c *cluster) end(name string) {
	c.t.Helper()
	if o := c.object(name); o == nil || o.DeletionTimestamp == nil {
		c.t.Fatalf("the pod %s is not being deleted", name)
	}
	if err := c.kube.Tracker().Delete(podResource, "default", name); err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait()
}

// up starts an instance on the first GPU, and returns its name.
func (c *cluster) up() api.InstanceID {
	c.t.Helper()
	wait := c.begin("made-up", api.Grant{Epoch: 7, Devices: []api.DeviceID{gpuOne}, Memory: api.Memory{Devices: 1, PerDevice: 600 * api.MiB}})
	if c.replicas() != 1 {
		c.t.Fatalf("%d replicas, want 1", c.replicas())
	}
	c.requester("pod-1", "10.0.0.1", gpuOne)
	id, err := wait()
	if err != nil {
		c.t.Fatal(err)
	}
	c.provider(id, "10.0.0.2")
	return id
}

func (c *cluster) bound(name string) string {
	o := c.object(name)
	if o == nil {
		return "no pod"
	}
	if slices.Contains(o.Finalizers, Finalizer) != (o.Annotations[AnnotationBound] != "") {
		c.t.Errorf("%s is bound to %q and has the finalizers %v", name, o.Annotations[AnnotationBound], o.Finalizers)
	}
	return o.Annotations[AnnotationBound]
}

func (c *cluster) sleepNow(id api.InstanceID) {
	c.t.Helper()
	if _, err := c.fleet.Sleep(c.t.Context(), api.InstanceStatus{Instance: id, Function: tiny}, api.Level1, 8, api.Drain{Limit: time.Second}); err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait()
}

func TestAPairFromStartToHotWake(t *testing.T) {
	inPairs(t, func(t *testing.T, c *cluster) {
		id := c.up()
		if c.bound("pod-1") != string(id) || c.bound(string(id)) != "pod-1" {
			t.Errorf("bound are %s and %s", c.bound("pod-1"), c.bound(string(id)))
		}
		if !c.called("POST 10.0.0.1:8080"+spiReady) || !c.called("PUT 10.0.0.1:8080"+spiProxy) {
			t.Errorf("the requester was not told that a provider serves: %v", c.calls)
		}
		if got := c.last(string(id)); got.State != api.Awake || !slices.Equal(got.Devices, []api.DeviceID{gpuOne}) || got.Node != "node1" {
			t.Errorf("the core heard %+v", got)
		}
		if n := c.heard("pod-1"); n != 0 {
			t.Errorf("the core heard %d times of a requester, which is no instance", n)
		}
		c.sleepNow(id)
		if c.replicas() != 0 || c.object("pod-1").DeletionTimestamp == nil || !c.called("POST 10.0.0.1:8080"+spiRelease) {
			t.Errorf("asleep there are %d replicas, and the requester's deletion is %v", c.replicas(), c.object("pod-1").DeletionTimestamp)
		}
		if got := c.bound("pod-1") + c.bound(string(id)); got != "" {
			t.Errorf("still bound to %s", got)
		}
		c.end("pod-1")

		woken := make(chan error, 1)
		go func() {
			s, err := c.fleet.Wake(context.Background(), api.InstanceStatus{Instance: id, Function: tiny}, api.Grant{Instance: id, Epoch: 9, Devices: []api.DeviceID{gpuOne}})
			if err == nil && s.State != api.Awake {
				err = errors.New("it says that it is " + string(s.State))
			}
			woken <- err
		}()
		synctest.Wait()
		if c.called("POST 10.0.0.2:8080" + control.PathWake) {
			t.Fatal("it was woken before its claim has come")
		}
		c.requester("pod-2", "10.0.0.3", gpuOne)
		if err := <-woken; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if c.bound("pod-2") != string(id) {
			t.Errorf("the new requester is bound to %q", c.bound("pod-2"))
		}
		if all, hot := c.came(t); all != 2 || hot != 1 {
			t.Errorf("%g came up, %g of them hot; want 2 and 1", all, hot)
		}
	})
}

// came is how many instances the metrics say came up, and how many of them hot.
func (c *cluster) came(t *testing.T) (all, hot float64) {
	t.Helper()
	r := prometheus.NewRegistry()
	c.fleet.metrics.register(r)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "rouse_dualpod_actuations_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			all += m.GetCounter().GetValue()
			if m.GetLabel()[0].GetValue() == string(autoscaler.PathHot) {
				hot += m.GetCounter().GetValue()
			}
		}
	}
	return all, hot
}

// A claim whose release failed is released again, and the scale is lowered by it once.
func TestAReleaseThatFailsIsRetried(t *testing.T) {
	inPairs(t, func(t *testing.T, c *cluster) {
		id := c.up()
		wait := c.begin("another", api.Grant{Epoch: 7, Devices: []api.DeviceID{gpuTwo}, Memory: api.Memory{Devices: 1, PerDevice: 600 * api.MiB}})
		c.requester("pod-2", "10.0.0.3", gpuTwo)
		other, err := wait()
		if err != nil {
			t.Fatal(err)
		}
		c.provider(other, "10.0.0.4")
		var failed atomic.Bool
		c.kube.PrependReactor("patch", "deployments", func(kubetesting.Action) (bool, runtime.Object, error) {
			return failed.CompareAndSwap(false, true), nil, errors.New("etcdserver: request timed out")
		})
		c.sleepNow(id)
		time.Sleep(2 * markTimeout)
		if !failed.Load() || c.replicas() != 2 {
			t.Fatalf("%d replicas, want that lowering them has failed", c.replicas())
		}
		time.Sleep(idleClaim + 2*markTimeout)
		if c.replicas() != 1 || c.object("pod-1").DeletionTimestamp == nil || c.bound("pod-2") != string(other) {
			t.Errorf("%d replicas, the deletion of pod-1 is %v, pod-2 is bound to %q", c.replicas(), c.object("pod-1").DeletionTimestamp, c.bound("pod-2"))
		}
	})
}

func TestAWakeThatIsServedElsewhere(t *testing.T) {
	inPairs(t, func(t *testing.T, c *cluster) {
		id := c.up()
		c.sleepNow(id)
		c.end("pod-1")
		woken := make(chan error, 1)
		go func() {
			_, err := c.fleet.Wake(context.Background(), api.InstanceStatus{Instance: id, Function: tiny}, api.Grant{Instance: id, Epoch: 9, Devices: []api.DeviceID{gpuOne}})
			woken <- err
		}()
		synctest.Wait()
		c.requester("pod-2", "10.0.0.3", gpuTwo) // the other GPU
		if c.replicas() != 2 {
			t.Fatalf("%d replicas, want another try to land on the sleeper's GPU", c.replicas())
		}
		time.Sleep(15 * time.Second) // it does not come
		if err := <-woken; !errors.Is(err, autoscaler.ErrElsewhere) {
			t.Errorf("got %v, want that another comes up", err)
		}
		synctest.Wait()
		var made []string
		for _, p := range c.pods() {
			if p.Labels[LabelProvider] != "" && p.Name != string(id) {
				made = append(made, p.Name)
			}
		}
		if len(made) != 1 || c.last(made[0]).State != api.Starting {
			t.Errorf("made were %v, want one of which the core has heard", made)
		}
	})
}

func TestADeletedRequesterWaitsForItsProvider(t *testing.T) {
	inPairs(t, func(t *testing.T, c *cluster) {
		id := c.up()
		c.deletePod("pod-1")
		synctest.Wait()
		if !c.called("POST 10.0.0.2:8080" + control.PathSleep) {
			t.Fatal("its provider is not put to sleep")
		}
		if s := c.last(string(id)); s.State != api.Asleep {
			t.Errorf("the core heard that the provider is %s", s.State)
		}
		if !c.called("POST 10.0.0.1:8080"+spiRelease) || c.bound("pod-1") != "" {
			t.Errorf("it is not released: bound to %q", c.bound("pod-1"))
		}
	})
}

func TestADeadProvidersClaimServesTheNext(t *testing.T) {
	inPairs(t, func(t *testing.T, c *cluster) {
		id := c.up()
		c.edit(string(id), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
		synctest.Wait()
		if s := c.last(string(id)); s.State != api.Gone {
			t.Fatalf("the core heard that it is %s", s.State)
		}
		wait := c.begin("next", api.Grant{Epoch: 20, Devices: []api.DeviceID{gpuOne}})
		next, err := wait()
		if err != nil || next == id || c.replicas() != 1 {
			t.Errorf("got %s, %v with %d replicas; want another provider for the same claim", next, err, c.replicas())
		}
		if !c.called("POST 10.0.0.1:8080" + spiUnready) {
			t.Log("the requester was bound again before it was told of the end")
		}
	})
}

func TestAPairIsTakenOver(t *testing.T) {
	inPairs(t, func(t *testing.T, c *cluster) {
		id := c.up()
		c.stop()
		c.seen = nil
		c.start()
		c.declare(scaling{initialized: true})
		if _, err := c.join("pod-1", "10.0.0.1", gpuOne); err != nil {
			t.Fatal(err)
		}
		c.provider(id, "10.0.0.2")
		time.Sleep(time.Minute)
		if c.replicas() != 1 || c.bound("pod-1") != string(id) || c.object(string(id)).DeletionTimestamp != nil {
			t.Errorf("after a restart there are %d replicas, the requester is bound to %q", c.replicas(), c.bound("pod-1"))
		}
		if s := c.last(string(id)); s.State != api.Awake {
			t.Errorf("the core heard that the provider is %s", s.State)
		}
	})
}

func TestADeletedFunctionKeepsNoPod(t *testing.T) {
	inPairs(t, func(t *testing.T, c *cluster) {
		id := c.up()
		if err := c.serving.Tracker().Delete(pasResource, "default", tiny.Name()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		c.fleet.forgetFunction(tiny)
		c.deletePod("pod-1")
		c.deletePod(string(id))
		synctest.Wait()
		if c.bound(string(id)) == "" {
			t.Error("the claim goes while the provider still runs")
		}
		c.edit(string(id), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
		synctest.Wait()
		if got := c.bound(string(id)) + c.bound("pod-1"); got != "" {
			t.Errorf("something is bound to %s, and no pod can go", got)
		}
	})
}
