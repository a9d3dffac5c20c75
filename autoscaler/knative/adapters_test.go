package knative

import (
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config"
)

// TestAdaptersOfAService checks that the Service's own annotation takes the place of its revisions', and that a change
// of it is applied without a new revision.
func TestAdaptersOfAService(t *testing.T) {
	inCluster(t, 0, map[string]string{config.AnnotationAdapters: "old=a"}, func(t *testing.T, c *cluster) {
		asked := 0
		c.fleet.mu.Lock()
		c.fleet.changed = func(n api.FunctionName) {
			if n == tiny {
				asked++
			}
		}
		c.fleet.mu.Unlock()
		want := func(list ...api.Adapter) {
			t.Helper()
			if _, problem, _, err := c.fleet.declare(t.Context(), tiny, scaling{}); err != nil || problem != "" {
				t.Fatal(problem, err)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			if diff := cmp.Diff(list, c.functions[tiny].Runtime.Adapters); diff != "" {
				t.Errorf("adapters (-want +got):\n%s", diff)
			}
		}
		want(api.Adapter{Name: "old", Path: "a"})
		c.service("default/tiny", 1, "")
		services := c.serving.ServingV1().Services("default")
		for _, tc := range []struct {
			list string
			want []api.Adapter
		}{
			{"fr=hf://org/fr,de=b", []api.Adapter{{Name: "fr", Path: "hf://org/fr"}, {Name: "de", Path: "b"}}},
			{"de=b", []api.Adapter{{Name: "de", Path: "b"}}},
			{"de=b,,", []api.Adapter{{Name: "de", Path: "b"}}},
			{"", nil},
		} {
			c.fleet.mu.Lock()
			before := asked
			c.fleet.mu.Unlock()
			s := &servingv1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tiny", Annotations: map[string]string{config.AnnotationAdapters: tc.list}}}
			if _, err := services.Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			want(tc.want...)
			c.fleet.mu.Lock()
			if asked == before {
				t.Errorf("%q: the revision is not looked at again", tc.list)
			}
			c.fleet.mu.Unlock()
		}
	})
}
