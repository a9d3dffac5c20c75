package knative

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// autoscaled is the scale in the status of a function's revision.
type autoscaled struct {
	Spec struct {
		Reachability string
	}
	Status struct {
		DesiredScale, ActualScale int
		Conditions                []struct{ Type, Status, Reason string }
	}
}

// condition is the status of a condition, with its reason.
func (a autoscaled) condition(name string) string {
	for _, c := range a.Status.Conditions {
		if c.Type == name {
			return strings.TrimSpace(c.Status + " " + c.Reason)
		}
	}
	return "absent"
}

// scale reads the PodAutoscaler of a function's revision, counted from 1.
func (f *function) scale(revision int) (a autoscaled) {
	f.t.Helper()
	out, err := f.c.Kubectl(f.t.Context(), "get", "podautoscalers.autoscaling.internal.knative.dev", fmt.Sprintf("%s-%05d", f.name, revision), "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &a)
	}
	if err != nil {
		f.t.Fatalf("the PodAutoscaler of %s, revision %d: %v", f.name, revision, err)
	}
	return a
}

// hasScale waits until a revision wants and has n instances awake, and until its
// conditions say so to Knative.
func (f *function) hasScale(revision, n int) {
	f.t.Helper()
	active := "True"
	if n == 0 {
		active = "False NoTraffic"
	}
	want := fmt.Sprintf("%d wanted, %d awake, Active %s, ScaleTargetInitialized True", n, n, active)
	eventually(f.t, fmt.Sprintf("scale of %s, revision %d", f.name, revision), func() string {
		a := f.scale(revision)
		got := fmt.Sprintf("%d wanted, %d awake, Active %s, ScaleTargetInitialized %s", a.Status.DesiredScale, a.Status.ActualScale, a.condition("Active"), a.condition("ScaleTargetInitialized"))
		if got != want {
			return fmt.Sprintf("%s; want %s", got, want)
		}
		return ""
	})
}

// TestMinScale keeps two awake without a request. A replaced revision keeps none, since no request reaches it.
func TestMinScale(t *testing.T) {
	parallel(t)
	f := create(t, "min-two", functionImage, quick, "--scale-min", "2")
	f.hasScale(1, 2)
	if _, err := f.kn("update", functionImage, quick, "--env", "ANOTHER=1", "--scale-min", "1"); err != nil {
		t.Fatal(err)
	}
	f.hasScale(2, 1)
	f.hasScale(1, 0)
	f.hasPods(1)
	if got := f.scale(1).Spec.Reachability; got != "Unreachable" {
		t.Errorf("the old revision is %s, want it unreachable: the test shows nothing else", got)
	}
}

// TestInitialScale starts one without a request, which ends like any other unused one.
func TestInitialScale(t *testing.T) {
	parallel(t)
	// Awake for long enough to be seen, however late kn returns on a busy machine. The
	// initial scale comes after the 0 that create gives: the later one holds.
	f := create(t, "init-one", functionImage, []string{"rouse.dev/model=pico", "rouse.dev/sleep-after=25s", "rouse.dev/gone-after=27s"}, "--scale-init", "1")
	f.hasScale(1, 1)
	f.hasScale(1, 0)
	f.hasPods(0)
	if a := f.ask("red blue"); !strings.Contains(a.body, "red blue") {
		t.Errorf("it answers %s", a.body)
	}
}

// TestActivationScale brings two up for one request.
func TestActivationScale(t *testing.T) {
	parallel(t)
	f := create(t, "both-at-once", functionImage, lasting, "--scale-activation", "2")
	f.hasScale(1, 0)
	f.ask("red blue")
	f.hasScale(1, 2)
	f.hasPods(2)
}

// TestMaxScaleUnderLoad starts as many as the load wants and max-scale allows; each request is answered.
func TestMaxScaleUnderLoad(t *testing.T) {
	parallel(t)
	f := create(t, "max-three", functionImage, append([]string{"rouse.dev/sleep-after=3s"}, lasting[0]), "--scale-max", "3", "--concurrency-limit", "1")
	l := underLoad(t, 8, asking(f))
	f.hasScale(1, 3)
	l.goOn(t, 100)
	for _, failure := range l.end() {
		t.Error(failure)
	}
	f.hasScale(1, 0)
}
