package knative

import (
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/config"
)

// TestElsewhere: a revision for other clusters is ready without a pod, whatever its scale says, and nothing starts one.
func TestElsewhere(t *testing.T) {
	inCluster(t, 1, map[string]string{config.AnnotationClusters: "gpu", "autoscaling.knative.dev/min-scale": "1"}, func(t *testing.T, c *cluster) {
		pa, events := c.pass()
		if !pa.Status.IsScaleTargetInitialized() || !pa.Status.IsInactive() || len(events) > 0 {
			t.Errorf("got %+v and the events %q", pa.Status, events)
		}
		if active := pa.Status.GetCondition("Active"); active.Reason != reasonElsewhere || !strings.Contains(active.Message, config.AnnotationClusters) {
			t.Errorf("got %+v", active)
		}
		if c.replicas() != 0 {
			t.Errorf("%d replicas, want none", c.replicas())
		}
		if f, told := c.functions[tiny]; told {
			t.Errorf("the core was told of it: %+v", f)
		}
	})
}
