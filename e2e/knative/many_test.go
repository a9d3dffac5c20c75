package knative

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestManyWakeAtOnce asks thirty functions without pods in the same moment: each answers.
func TestManyWakeAtOnce(t *testing.T) {
	parallel(t)
	c := rouse(t)
	const n = 30
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, `---
apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: many-%d, labels: {test: many}}
spec:
  template:
    metadata:
      annotations: {autoscaling.knative.dev/class: %s, autoscaling.knative.dev/initial-scale: "0", rouse.dev/model: pico}
    spec:
      containers: [{image: "%s"}]
`, i, class, functionImage)
	}
	file := filepath.Join(t.TempDir(), "many.yaml")
	if err := os.WriteFile(file, []byte(all.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			keep(t, c)
		}
		if _, err := c.Kubectl(context.Background(), "delete", "ksvc", "-l", "test=many"); err != nil {
			t.Error(err)
		}
	})
	for _, step := range [][]string{
		{"apply", "-f", file},
		{"wait", "ksvc", "-l", "test=many", "--for=condition=Ready", "--timeout=180s"},
	} {
		if out, err := c.Kubectl(t.Context(), step...); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	var asked sync.WaitGroup
	for i := range n {
		f := &function{t: t, c: c, name: fmt.Sprintf("many-%d", i)}
		asked.Go(func() {
			a, err := call(t.Context(), c, f.host(), "/v1/chat/completions", chat(f.name, pair(i)))
			if err != nil || a.status != http.StatusOK || !strings.Contains(a.body, pair(i)) {
				t.Errorf("%s: status %d, %v: %s; want %q", f.name, a.status, err, a.body, pair(i))
			}
		})
	}
	asked.Wait()
}
