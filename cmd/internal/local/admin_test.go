package local

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gorilla/mux"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/autoscaler"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
	adminapi "github.com/rouse-dev/rouse/autoscaler/server"
)

// counted is an autoscaler that reports what it was told.
type counted struct {
	adminapi.Decider
	requests int64
}

func (c *counted) Usage(admin.UsageQuery) admin.Usage {
	return admin.Usage{Rows: []admin.UsageRow{{Requests: c.requests}}}
}

// TestUsageIsTold: a report has what was used until now, and not until the activator's last report.
func TestUsageIsTold(t *testing.T) {
	c := &counted{}
	d := decider{c, func(time.Time) { c.requests++ }}
	if got := d.Usage(admin.UsageQuery{}).Rows[0].Requests; got != 1 {
		t.Errorf("got %d requests, want the one that was not told before", got)
	}
}

// TestRemoveHolds: no function is removed between the reading and the declaring of a change of its adapters.
func TestRemoveHolds(t *testing.T) {
	a, err := autoscaler.New(autoscaler.Config{Devices: []inventory.Device{{ID: api.HostMemory, Capacity: api.GiB}}}, nil, nil, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- a.Run(ctx) }()
	s, held := &server{autoscaler: a}, false
	s.admin = adminapi.NewAdmin(adminapi.AdminConfig{Decider: a, Far: func(context.Context, api.FunctionName) []admin.Far { // called while it is removed
		if held = !s.applying.TryLock(); !held {
			s.applying.Unlock()
		}
		return nil
	}})
	w := httptest.NewRecorder()
	s.removeFunction(w, mux.SetURLVars(httptest.NewRequest(http.MethodDelete, "/", nil), map[string]string{"namespace": "default", "name": "none"}))
	if !held || w.Code != http.StatusNotFound {
		t.Errorf("changes are held off: %t; status %d, want 404", held, w.Code)
	}
	cancel()
	<-ended
}
