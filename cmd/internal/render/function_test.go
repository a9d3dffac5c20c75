package render

import (
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
)

// TestDescribe wants the reason of a function that fails, dashes for what is not
// known, and no spaces at the ends of lines.
func TestDescribe(t *testing.T) {
	f := admin.Function{Function: api.Function{Name: "default/chat", Model: "chat", MaxScale: 1, SleepAfter: time.Minute, SleepLevel: 1}}
	f.Activator.Failed = "needs 24 GiB of host memory"
	f.LastError = f.Activator.Failed
	text := func() string {
		var b strings.Builder
		if err := Describe(&b, f); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	for _, want := range []string{
		"State:         failed\n", "Refused:       needs 24 GiB of host memory\n", "Needs:         unknown\n",
		"Idle:          asleep (level 1) after 1m0s, never unloaded\n", "\nNo instances.\n",
	} {
		if got := text(); !strings.Contains(got, want) {
			t.Errorf("lacks %q:\n%s", want, got)
		}
	}
	if got := text(); strings.Contains(got, "Last error:") {
		t.Errorf("says the reason twice:\n%s", got)
	}

	f.Activator.Failed = ""
	f.Foreseen = "a request is foreseen at 07:00:00 UTC ± 1s"
	f.Need, f.Function.SleepAfter, f.Function.UnloadAfter = api.Memory{Devices: 1}, 0, time.Hour
	f.Instances = []api.InstanceStatus{{Instance: "chat-0001", State: api.Awake, PID: 7}}
	for _, want := range []string{"State:         awake\n", "Needs:         1 GPU\n", "Last error:    needs", "Foreseen:      a request is foreseen at 07:00:00 UTC ± 1s\n", "Idle:          stays awake, unloaded after 1h0m0s asleep\n"} {
		if got := text(); !strings.Contains(got, want) {
			t.Errorf("lacks %q:\n%s", want, got)
		}
	}
	if got := text(); strings.Contains(got, " \n") || !strings.HasSuffix(got, "  7\n") {
		t.Errorf("lines end with spaces:\n%q", got)
	}
}

// TestSnapshot: what was last reported of a function's snapshot is shown, also where no instance is left.
func TestSnapshot(t *testing.T) {
	made := time.Now().Add(-3 * time.Minute)
	for want, s := range map[string]*api.Snapshot{
		"":                        nil,
		"none: none was made yet": {Missing: "none was made yet"},
		"370 MiB, made 3m0s ago":  {Made: made, Size: 370 * api.MiB},
		"370 MiB, made 3m0s ago, restored in 3.5s": {Made: made, Size: 370 * api.MiB, Restore: 3500 * time.Millisecond},
	} {
		var b strings.Builder
		if err := Describe(&b, admin.Function{Learned: admin.Learned{Snapshot: s}}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(b.String(), "Snapshot:      "+want+"\n"); got != (want != "") {
			t.Errorf("want %q:\n%s", want, b.String())
		}
	}
}

// TestCommonMemory: what instances of one node have in common is said of each, and counts once in their function's sum.
func TestCommonMemory(t *testing.T) {
	on := func(id, node, file string, shared api.Bytes) api.InstanceStatus {
		return api.InstanceStatus{Instance: api.InstanceID(id), Node: node, State: api.Awake, Memory: api.Memory{Host: 3 * api.GiB}, Shared: api.SharedMemory{File: file, Bytes: shared}}
	}
	f := admin.Function{Instances: []api.InstanceStatus{on("a", "n1", "f", 2*api.GiB), on("b", "n1", "f", 2*api.GiB), on("c", "n2", "f", 2*api.GiB), on("d", "n1", "g", api.GiB), on("e", "n1", "", 0)}}
	if got := used(f); got != 13*api.GiB {
		t.Errorf("they use %s, want 13 GiB", got)
	}
	var b strings.Builder
	if err := Describe(&b, f); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), "3 GiB (2 GiB of it in common)"); n != 2 {
		t.Errorf("%d instances have something in common, want 2:\n%s", n, b.String())
	}
}
