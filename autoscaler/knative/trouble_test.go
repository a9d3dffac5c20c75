package knative

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/config"
)

func TestTroublesSayWhatToDo(t *testing.T) {
	waiting := func(reason, message string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "user-container", Image: "dev.local/nothing:v1",
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
		}
	}
	crash := func(end corev1.ContainerStateTerminated) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			waiting("CrashLoopBackOff", "back-off 10s")(p)
			p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &end
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("8Mi")}
		}
	}
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		want   []string
	}{
		"no image":   {waiting("ImagePullBackOff", "not found"), []string{"dev.local/nothing:v1", "not found", "tag"}},
		"no secret":  {waiting("CreateContainerConfigError", `secret "hf" not found`), []string{`secret "hf"`, "Secrets"}},
		"bad flag":   {crash(corev1.ContainerStateTerminated{ExitCode: 2, Message: "unknown flag: --nonsense"}), []string{"CrashLoopBackOff", "exit code 2", "--nonsense"}},
		"no message": {crash(corev1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"}), []string{"exit code 3", "kubectl logs pod-1"}},
		"no memory":  {crash(corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}), []string{"OOMKilled", "limit 8Mi", "raise"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 1, nil)
				c.start()
				defer c.stop()
				c.declare(scaling{initialized: true})
				c.edit("pod-1", test.change)
				synctest.Wait()
				s := c.last("pod-1")
				if s.State != api.Unhealthy || !s.GaveUp {
					t.Fatalf("got %s, want it given up", s.State)
				}
				for _, w := range test.want {
					if !strings.Contains(s.Message, w) {
						t.Errorf("%q lacks %q", s.Message, w)
					}
				}
				if r := c.fleet.takeCensus(tiny).trouble; r == nil || !strings.Contains(s.Message, r.message) {
					t.Errorf("the PodAutoscaler is told %v", r)
				}
			})
		})
	}
}

func TestAPodThatNeverJoins(t *testing.T) {
	for name, test := range map[string]struct {
		answer int // 0: nothing listens
		want   string
	}{
		"foreign":     {http.StatusOK, "no function of Rouse"},
		"foreign too": {http.StatusNotFound, "take off the annotation"},
		"cut off":     {http.StatusAccepted, "NetworkPolicies"},
		"slow":        {0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 1, nil)
				c.start()
				defer c.stop()
				if test.answer > 0 {
					c.instances["10.0.0.1:8080"] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if r.URL.Path != control.PathReport {
							t.Errorf("asked at %s", r.URL.Path)
						}
						w.WriteHeader(test.answer)
					})
				}
				c.edit("pod-1", func(o *corev1.Pod) { o.Annotations = map[string]string{config.AnnotationInject: "false"} })
				c.runs("pod-1", "10.0.0.1")
				time.Sleep(time.Minute)
				synctest.Wait()
				s := c.last("pod-1")
				if test.want == "" {
					if s.State != api.Starting {
						t.Errorf("got %s: %s, want more patience", s.State, s.Message)
					}
				} else if s.State != api.Unhealthy || !s.GaveUp || !strings.Contains(s.Message, test.want) {
					t.Errorf("got %s: %s, want %q", s.State, s.Message, test.want)
				}
			})
		})
	}
}

// TestAPodFromBeforeTheInjector is replaced once: the next may have a function. If it has none either, the revision fails.
func TestAPodFromBeforeTheInjector(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		c.declare(scaling{initialized: true})
		foreign := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
		c.instances["10.0.0.1:8080"], c.instances["10.0.0.2:8080"] = foreign, foreign
		c.runs("pod-1", "10.0.0.1")
		time.Sleep(time.Minute)
		synctest.Wait()
		if c.replicas() != 0 || len(c.pods()) != 0 {
			t.Fatalf("%d replicas, %d pods; want none", c.replicas(), len(c.pods()))
		}
		if s := c.last("pod-1"); s.State != api.Gone || !s.Taken {
			t.Errorf("the core heard that it is %s, taken: %t; %s", s.State, s.Taken, s.Message)
		}
		id, err := c.begin("m-0002", api.Grant{Epoch: 2})()
		if err != nil {
			t.Fatal(err)
		}
		c.runs(string(id), "10.0.0.2")
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := c.last(string(id)); s.State != api.Unhealthy || !s.GaveUp || !strings.Contains(s.Message, "no function of Rouse") || c.replicas() != 1 {
			t.Errorf("its successor is %s with %d replicas: %s", s.State, c.replicas(), s.Message)
		}
	})
}

func TestAFunctionThatGivesUpIsNotKeptForItsInitialScale(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		c.declare(scaling{initial: 1})
		if n := c.functions[tiny].MinScale; n != 1 {
			t.Fatalf("got min-scale %d, want 1 until it was up", n)
		}
		c.runs("pod-1", "10.0.0.1")
		if _, err := c.join("pod-1", "10.0.0.1"); err != nil {
			t.Fatal(err)
		}
		s := api.InstanceStatus{Instance: "pod-1", Function: tiny, State: api.Unhealthy, GaveUp: true, Message: "no such model", Seq: 3}
		if err := c.fleet.Report(s, c.fleet.pods["pod-1"].address, ownTok); err != nil {
			t.Fatal(err)
		}
		if n := c.functions[tiny].MinScale; n != 0 {
			t.Errorf("got min-scale %d, want 0: another try changes nothing", n)
		}
		_ = c.report("pod-1", "10.0.0.1", api.Awake, 4)
		if n := c.functions[tiny].MinScale; n != 1 {
			t.Errorf("got min-scale %d, want 1 again", n)
		}
	})
}
