package verb

import (
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api/admin"
)

// TestPrintUsage prints a table for a program, with whole names.
func TestPrintUsage(t *testing.T) {
	const tenant = "https://login.example.com#acme"
	var out strings.Builder
	if err := printUsage(&out, admin.Usage{Since: time.Now(), Rows: []admin.UsageRow{
		{State: admin.UsageIdle, GPUSeconds: 1800},
		{State: admin.UsageAwake, Function: "default/m", GPUSeconds: 900.04, Cost: 0.5},
		{State: admin.UsageAwake, Function: "team/" + "a-function-with-a-very-long-name", Tenant: tenant, Requests: 1234567, Input: 1234567890, Cached: 999, Output: 123456789, GPUSeconds: 900, Cost: 1234.5},
	}}, false, true); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"TENANT FUNCTION REQS INPUT CACHED OUTPUT GPU-S COST",
		"(idle) - 0 0 0 0 1800.0 0.00",
		"- m 0 0 0 0 900.0 0.50",
		tenant + " team/a-function-with-a-very-long-name 1234567 1234567890 999 123456789 900.0 1234.50",
		"all - 1234567 1234567890 999 123456789 3600.0 1235.00",
	}
	if strings.Join(got[:len(want)], "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestDuring(t *testing.T) {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.Local)
	day := time.Date(2026, 11, 1, 0, 0, 0, 0, time.Local)
	for _, c := range []struct {
		since, from, to string
		want            admin.UsageQuery
	}{
		{"", "", "", admin.UsageQuery{}},
		{"90m", "", "", admin.UsageQuery{From: now.Add(-90 * time.Minute)}},
		{"7d", "", "", admin.UsageQuery{From: now.Add(-7 * 24 * time.Hour)}},
		{"", "2026-11-01", "", admin.UsageQuery{From: day}},
		{"", "2026-11-01T08:30", "2026-11-02 08:30:10", admin.UsageQuery{From: day.Add(8*time.Hour + 30*time.Minute), To: day.AddDate(0, 0, 1).Add(8*time.Hour + 30*time.Minute + 10*time.Second)}},
		{"", "", "2026-11-01T08:30:00Z", admin.UsageQuery{To: time.Date(2026, 11, 1, 8, 30, 0, 0, time.UTC)}},
	} {
		var q admin.UsageQuery
		if err := during(&q, c.since, c.from, c.to, now); err != nil || !q.From.Equal(c.want.From) || !q.To.Equal(c.want.To) {
			t.Errorf("%v: %v, %v", c, q, err)
		}
		back, err := admin.UsageQueryOf(q.Values())
		if err != nil || !back.From.Equal(q.From) || !back.To.Equal(q.To) {
			t.Errorf("%v comes back as %v, %v", q, back, err)
		}
	}
	for _, bad := range [][3]string{{"-1h"}, {"0d"}, {"d"}, {"1y"}, {"", "yesterday"}, {"", "", "2026-13-01"}, {"", "2026-11-02", "2026-11-01"}} {
		if err := during(new(admin.UsageQuery), bad[0], bad[1], bad[2], now); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
