package knative

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/e2e/cluster"
)

// TestMistakesAreExplained makes functions with common mistakes. The reason must be where users look: at the revision,
// and in the answer to a request.
func TestMistakesAreExplained(t *testing.T) {
	parallel(t)
	for _, tt := range []struct {
		name, image string
		annotations []string
		more        []string
		revision    string // in a condition of the revision; empty: not looked for
		event       string // reason of an event on the revision
		answer      string // in the answer to a request, or in the operator's view of a failed start
		status      int
	}{
		{"typo-key", functionImage, []string{"rouse.dev/modell=pico"}, nil, "rouse.dev/model", "InvalidDeclaration", "rouse.dev/model", 503},
		{"typo-value", functionImage, []string{"rouse.dev/model=pico", "rouse.dev/sleep-after=soon"}, nil, "rouse.dev/sleep-after", "InvalidDeclaration", "rouse.dev/sleep-after", 503},
		{"typo-model", functionImage, []string{"rouse.dev/model=/models/none.gguf"}, nil, "", "", "none.gguf", 503},
		{"no-image", "dev.local/absent:v1", []string{"rouse.dev/model=pico"}, nil, "", "", "dev.local/absent:v1", 503},
		{"foreign-image", "dev.local/foreign:v1", []string{"rouse.dev/model=pico"}, nil, "", "", "no function of Rouse", 503},
		{"too-large", functionImage, []string{"rouse.dev/model=pico"}, []string{"--request", "memory=9000Gi"}, "", "", "memory", 503},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := rouse(t)
			f := &function{t: t, c: c, name: tt.name}
			t.Cleanup(f.remove)
			_, err := f.kn("create", tt.image, tt.annotations, append(tt.more, "--no-wait")...)
			if err != nil {
				t.Fatal(err)
			}
			if tt.revision != "" {
				eventually(t, "the condition of "+tt.name, func() string {
					out, err := c.Kubectl(t.Context(), "get", "revisions", "-l", "serving.knative.dev/service="+tt.name, "-o", "jsonpath={.items[*].status.conditions[*].message}")
					if err != nil || !strings.Contains(out, tt.revision) {
						return out
					}
					return ""
				})
			}
			if tt.event != "" {
				eventually(t, "the event on "+tt.name, func() string {
					out, err := c.Kubectl(t.Context(), "get", "events", "--field-selector", "reason="+tt.event, "-o", "jsonpath={.items[*].involvedObject.name}")
					if err != nil || !strings.Contains(out, tt.name+"-00001") {
						return "events are on " + out
					}
					return ""
				})
			}
			var a answer
			eventually(t, "the front door knows "+tt.name, func() string { // Knative makes the revision a moment after the service
				if a, err = frontDoor(t, c, "/v1/chat/completions", chat(tt.name, "red blue")); err == nil && a.status == http.StatusNotFound {
					return a.body
				}
				return ""
			})
			said := a.body
			if strings.Contains(said, `"start_failed"`) {
				said = f.reasons()
			}
			if err != nil || a.status != tt.status || !strings.Contains(said, tt.answer) {
				t.Errorf("a request is answered with %d %s (%v), want %d; want %q in %s", a.status, a.body, err, tt.status, tt.answer, said)
			}
		})
	}
}

// TestMissingClass leaves the class out: Knative's own autoscaler serves the
// function, through our activator, as it serves every other, and an event says that
// our annotations do nothing there.
func TestMissingClass(t *testing.T) {
	parallel(t)
	c := rouse(t)
	f := &function{t: t, c: c, name: "classless"}
	t.Cleanup(f.remove)
	if _, err := c.Kn(t.Context(), "service", "create", f.name, "--image", functionImage, "--env", "ROUSE_MODEL=pico",
		"--annotation-revision", "rouse.dev/sleep-after=1m", "--wait-timeout", "300", "--wait-window", "100"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the event on "+f.name, func() string {
		out, err := c.Kubectl(t.Context(), "get", "events", "--field-selector", "reason=ClassMissing", "-o", "jsonpath={.items[*].involvedObject.name}")
		if err != nil || !strings.Contains(out, f.name+"-00001") {
			return "events are on " + out
		}
		return ""
	})
	a, err := call(t.Context(), c, f.host(), "/v1/chat/completions", chat(f.name, "red blue"))
	if err != nil || a.status != http.StatusOK || !strings.Contains(a.body, "red blue") {
		t.Errorf("without the class: %d %s (%v)", a.status, a.body, err)
	}
}

// TestPodsThatKubernetesRefuses makes a function where a quota forbids its pods. A request is refused after a few
// tries, its operator reads why, and nothing is tried for ever.
func TestPodsThatKubernetesRefuses(t *testing.T) {
	parallel(t)
	c := rouse(t)
	const name = "refused"
	t.Cleanup(func() {
		_, _ = c.Kubectl(context.Background(), "delete", "namespace", name, "--wait=false", "--ignore-not-found")
	})
	for _, step := range [][]string{{"create", "namespace", name}, {"create", "quota", "none", "--hard=pods=0", "-n", name}} {
		if _, err := c.Kubectl(t.Context(), step...); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Kn(t.Context(), "service", "create", name, "-n", name, "--image", functionImage, "--scale-init", "0",
		"--annotation-revision", "autoscaling.knative.dev/class="+class, "--annotation-revision", "rouse.dev/model=pico", "--wait-timeout", "300"); err != nil {
		t.Fatal(err)
	}
	a := answerOf(t, c, name)
	if a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, `"start_failed"`) {
		t.Errorf("a request is answered with %d %s, want 503 start_failed", a.status, a.body)
	}
	if said, err := c.Kn(t.Context(), "rouse", "why", name, "-n", name); err != nil || !strings.Contains(said, "exceeded quota") {
		t.Errorf("its operator reads (%v)\n%s\nwant the quota", err, said)
	}
}

// TestDeletedWhileRequestsWait deletes a function whose pod never comes: waiting requests are refused at once.
func TestDeletedWhileRequestsWait(t *testing.T) {
	parallel(t)
	c := rouse(t)
	f := create(t, "deleted", "dev.local/absent:v2", []string{"rouse.dev/model=pico"})
	answered := make(chan answer, 1)
	go func() { answered <- answerOf(t, c, f.name) }()
	f.hasPods(1) // it was asked for by the request
	if _, err := c.Kn(t.Context(), "service", "delete", f.name); err != nil {
		t.Error(err)
	}
	if a := <-answered; a.status != http.StatusNotFound || !strings.Contains(a.body, "removed while the request waited") {
		t.Errorf("the request that waits is answered with %d %s, want 404 and why", a.status, a.body)
	}
}

// answerOf asks the front door for a model that it may hear of only now.
func answerOf(t *testing.T, c *cluster.Cluster, model string) answer {
	for deadline := time.Now().Add(within); ; time.Sleep(200 * time.Millisecond) {
		a, err := frontDoor(t, c, "/v1/chat/completions", chat(model, "red blue"))
		if err != nil {
			t.Errorf("ask for %s: %v", model, err)
			return a
		}
		if a.status != http.StatusNotFound || !strings.Contains(a.body, "does not exist") || time.Now().After(deadline) {
			return a
		}
	}
}

// TestHeadersOpenNothing names a revision by the headers of Knative's ingress from
// outside: the front door answers all the same.
func TestHeadersOpenNothing(t *testing.T) {
	parallel(t)
	c := rouse(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.IngressURL+"/v1/models", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = frontHost
	r.Header.Set("Knative-Serving-Namespace", "default")
	r.Header.Set("Knative-Serving-Revision", "private-00001")
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("the front door answers with %d, want what it answers to everybody", resp.StatusCode)
	}
}
