package verb

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rouse-dev/rouse/api/admin"
)

func TestPrintUsage(t *testing.T) {
	var out strings.Builder
	if err := printUsage(&out, admin.Usage{Since: time.Now(), Rows: []admin.UsageRow{
		{State: admin.UsageIdle, GPUSeconds: 1800},
		{State: admin.UsageAwake, Function: "default/m", GPUSeconds: 900.04, Cost: 0.5},
		{State: admin.UsageAwake, Function: "team/" + "a-function-with-a-very-long-name", Tenant: strings.Repeat("tenant", 30), Requests: 1234567, Input: 1234567890, Output: 123456789, GPUSeconds: 900, Cost: 1234.5},
	}}, true); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 80 {
			t.Errorf("a line of %d columns: %s", n, line)
		}
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"TENANT FUNCTION REQS INPUT OUTPUT GPU-S COST",
		"(idle) - 0 0 0 1800.0 0.00",
		"- m 0 0 0 900.0 0.50",
		"tenanttenantt… team/a-functi… 1.235M 1.235G 123.5M 900.0 1234.50",
		"all - 1.235M 1.235G 123.5M 3600.0 1235.00",
	}
	if strings.Join(got[:len(want)], "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
