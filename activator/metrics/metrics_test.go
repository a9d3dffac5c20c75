package metrics

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rouse-dev/rouse/api"
)

// TestRemovedHasNoSeries: requests that end after their function was removed begin no series of it.
func TestRemovedHasNoSeries(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := New(reg, nil)
	if err != nil {
		t.Fatal(err)
	}
	f := m.Of("default/m")
	f.Done(200, time.Second)
	f.Remove()
	f.Done(200, time.Second)
	f.Done(404, time.Second)
	f.FellBack(api.CodeBusy)
	f.Retried(api.CodeMoved)
	f.Woke(errors.New("it has ended"))
	if n, err := testutil.GatherAndCount(reg); err != nil || n != 0 {
		t.Errorf("found %d series of a removed function, error %v: want none", n, err)
	}
}
