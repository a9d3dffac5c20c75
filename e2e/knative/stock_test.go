package knative

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"knative.dev/pkg/apis"
	duckv1 "knative.dev/pkg/apis/duck/v1"
)

// ill is a way in which a revision fails to come up.
type ill struct {
	name  string
	image string   // of the stock function; "": hello
	more  []string // for kn
	quota bool     // no pod may be made

	// What stock Knative says of it without Rouse: a condition of the revision that is False, its reason and part of its message.
	condition, reason, message string
	// ours is part of what the operator of a function of Rouse in this state reads; "": it serves all the same.
	ours string
}

// neverUp is the last message of a revision that was given up.
const neverUp = "Initial scale was never achieved"

// ills are the ways of which stock Knative knows. Where it waits for the progress deadline, that is short. Elsewhere
// it looks at the pod when the Deployment changes, which may be before the container has failed; then it is the
// deadline that makes it look again, or give the revision up. That one leaves a busy machine the time to start the container.
var ills = []ill{
	{name: "unschedulable", more: append([]string{"--request", "cpu=50"}, deadline...),
		condition: "ResourcesAvailable", reason: "Unschedulable", message: "Insufficient cpu", ours: "Insufficient cpu"},
	{name: "image-missing", image: "dev.local/nothing:v1", more: shortDeadline,
		condition: "ResourcesAvailable", reason: "ProgressDeadlineExceeded", message: neverUp, ours: "dev.local/nothing:v1"},
	{name: "no-program", more: append([]string{"--cmd", "/no/such/program"}, deadline...),
		condition: "ContainerHealthy", reason: "ExitCode128", message: "/no/such/program", ours: "/no/such/program"},
	{name: "exit-code", image: functionImage, more: append([]string{"--arg", "--no-such-flag"}, deadline...),
		condition: "ContainerHealthy", reason: "ExitCode1", message: "no-such-flag", ours: "no-such-flag"},
	{name: "quota", quota: true,
		condition: "ResourcesAvailable", reason: "FailedCreate", message: "exceeded quota", ours: "exceeded quota"},
	{name: "probe-failing", more: append([]string{"--probe-readiness", "exec:/no/such/probe"}, shortDeadline...),
		condition: "ResourcesAvailable", reason: "ProgressDeadlineExceeded", message: neverUp},
	{name: "config-wrong", more: append([]string{"--env-from", "config-map:nothing"}, shortDeadline...),
		condition: "ResourcesAvailable", reason: "ProgressDeadlineExceeded", message: neverUp, ours: `"nothing" not found`},
}

// Progress deadlines that a test can wait for.
var (
	shortDeadline = []string{"--annotation-revision", "serving.knative.dev/progress-deadline=15s"}
	deadline      = []string{"--annotation-revision", "serving.knative.dev/progress-deadline=60s"}
)

// TestStockFunctionsFailAsEver makes functions of Knative's own class that can't come up, in every way in which a
// revision can fail. Each must report what Knative reports without Rouse. Beside each is a function of Rouse in the
// same state, whose operator reads the obstacle.
func TestStockFunctionsFailAsEver(t *testing.T) {
	parallel(t)
	for _, tt := range ills {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := rouse(t)
			in := "default"
			if tt.quota {
				in = "stock-" + tt.name
				t.Cleanup(func() {
					_, _ = c.Kubectl(context.Background(), "delete", "namespace", in, "--wait=false", "--ignore-not-found")
				})
				for _, step := range [][]string{{"create", "namespace", in}, {"create", "quota", "none", "--hard=pods=0", "-n", in}} {
					if out, err := c.Kubectl(t.Context(), step...); err != nil {
						t.Fatalf("%v: %s", err, out)
					}
				}
			}
			stock := tt.make(t, in, "stock-"+tt.name)
			eventually(t, "what the revision of "+stock.name+" says", func() string {
				have := stock.condition(tt.condition)
				if have.Status == "False" && have.Reason == tt.reason && strings.Contains(have.Message, tt.message) {
					return ""
				}
				if given := stock.condition("ResourcesAvailable"); tt.condition == "ContainerHealthy" && given.Status == "False" && strings.Contains(given.Message, neverUp) {
					return "" // Knative gave it up before it looked at the container
				}
				return string(have.Status) + " " + have.Reason + ": " + have.Message
			})
			like := []string{"--annotation-revision", "autoscaling.knative.dev/class=" + class, "--annotation-revision", "rouse.dev/model=pico", "--scale-init", "0"}
			if tt.ours != "" { // a short wait is enough for an answer that does not come
				like = append(like, "--annotation-revision", "rouse.dev/hold-timeout=20s")
			}
			ours := tt.make(t, in, "ours-"+tt.name, like...)
			a := answerOf(t, c, in+"/"+ours.name)
			if tt.ours == "" {
				if a.status != http.StatusOK {
					t.Errorf("a function of Rouse answers %d %s", a.status, a.body)
				}
				return
			}
			if a.status != http.StatusServiceUnavailable {
				t.Errorf("a function of Rouse answers %d %s, want 503", a.status, a.body)
			}
			eventually(t, "what the operator of "+ours.name+" reads", func() string {
				if said := ours.reasons(); !strings.Contains(said, tt.ours) {
					return fmt.Sprintf("%s\nwant %q in it", said, tt.ours)
				}
				return ""
			})
		})
	}
}

// make creates a function that is ill.
func (i ill) make(t *testing.T, in, name string, more ...string) *function {
	t.Helper()
	f := &function{t: t, c: rouse(t), name: name, in: in}
	t.Cleanup(f.remove)
	image := i.image
	if image == "" {
		image = helloImage
		if len(more) > 0 {
			image = functionImage
		}
	}
	args := append([]string{"service", "create", name, "-n", in, "--no-wait", "--image", image}, i.more...)
	if out, err := f.c.Kn(t.Context(), append(args, more...)...); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return f
}

// condition returns a condition of the function's only revision.
func (f *function) condition(kind string) apis.Condition {
	f.t.Helper()
	var r struct{ Status duckv1.Status }
	if err := get(f.t.Context(), f.c, "/apis/serving.knative.dev/v1/namespaces/"+f.namespace()+"/revisions/"+f.name+"-00001", &r); err != nil && !apierrors.IsNotFound(err) {
		f.t.Fatal(err)
	}
	if c := r.Status.GetCondition(apis.ConditionType(kind)); c != nil {
		return *c
	}
	return apis.Condition{}
}
