package knative

import (
	"net/http"
	"strings"
	"testing"
)

// TestMistakesAreExplained makes functions with what users mistype, and wants
// the reason where users look: at the revision, and in the answer to a request.
func TestMistakesAreExplained(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, image string
		annotations []string
		more        []string
		revision    string // in a condition of the revision; empty: not looked for
		event       string // reason of an event on the revision
		answer      string // in the answer to a request
		status      int
	}{
		{"typo-key", functionImage, []string{"rouse.dev/modle=pico"}, nil, "rouse.dev/model", "InvalidDeclaration", "rouse.dev/model", 503},
		{"typo-value", functionImage, []string{"rouse.dev/model=pico", "rouse.dev/sleep-after=soon"}, nil, "rouse.dev/sleep-after", "InvalidDeclaration", "rouse.dev/sleep-after", 503},
		{"typo-model", functionImage, []string{"rouse.dev/model=/models/none.gguf"}, nil, "", "", "none.gguf", 503},
		{"no-image", "dev.local/absent:v1", []string{"rouse.dev/model=pico"}, nil, "", "", "dev.local/absent:v1", 503},
		{"foreign-image", "dev.local/foreign:v1", []string{"rouse.dev/model=pico"}, nil, "", "", "not a function of Rouse", 503},
		{"too-large", functionImage, []string{"rouse.dev/model=pico"}, []string{"--request", "memory=9000Gi"}, "", "", "memory", 503},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := rouse(t)
			f := &function{t, c, tt.name}
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
			if err != nil || a.status != tt.status || !strings.Contains(a.body, tt.answer) {
				t.Errorf("a request is answered with %d %s (%v), want %d with %q in it", a.status, a.body, err, tt.status, tt.answer)
			}
		})
	}
}

// TestMissingClass leaves the class out: Knative's own autoscaler serves the
// function, through our activator, as it serves every other.
func TestMissingClass(t *testing.T) {
	t.Parallel()
	c := rouse(t)
	f := &function{t, c, "classless"}
	t.Cleanup(f.remove)
	if _, err := c.Kn(t.Context(), "service", "create", f.name, "--image", functionImage, "--env", "ROUSE_MODEL=pico", "--wait-timeout", "120"); err != nil {
		t.Fatal(err)
	}
	a, err := call(t.Context(), c, f.host(), "/v1/chat/completions", chat(f.name, "red blue"))
	if err != nil || a.status != http.StatusOK || !strings.Contains(a.body, "red blue") {
		t.Errorf("without the class: %d %s (%v)", a.status, a.body, err)
	}
}
