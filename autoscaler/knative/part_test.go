package knative

import (
	"testing"
	"testing/synctest"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// Who is deleted by somebody else is told to end, so that its memory is free soon; who
// was stopped here has been emptied already.
func TestWhoIsDeletedIsToldToEnd(t *testing.T) {
	inCluster(t, 2, nil, func(t *testing.T, c *cluster) {
		c.two()
		c.deletePod("pod-1")
		synctest.Wait()
		if !c.called("POST 10.0.0.1:8080"+control.PathStop) || c.called("POST 10.0.0.2:8080"+control.PathStop) {
			t.Errorf("calls %v, want one to pod-1 alone", c.calls)
		}
		if got := c.last("pod-1").State; got != api.Gone {
			t.Errorf("pod-1 is %s, want it gone at once: nothing more is sent to it", got)
		}
	})
}
