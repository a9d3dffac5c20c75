package local

import (
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api/admin"
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
