package knative

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/e2e/cluster"
)

// faultsFor is how long TestFaultsAreRecorded breaks things. ROUSE_E2E_FAULTS has another time (make deep PART=faults).
const faultsFor = 20 * time.Second

// TestFaultsAreRecorded breaks functions, activators and the autoscaler under load, one after the other and at random, and fetches the
// leader's record each time before it is the leader's turn, and at the end. Everything that was decided is decided again as it was.
func TestFaultsAreRecorded(t *testing.T) {
	c := rouse(t)
	length := faultsFor
	if text := os.Getenv("ROUSE_E2E_FAULTS"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatalf("ROUSE_E2E_FAULTS: %v", err)
		}
	}
	program := filepath.Join(t.TempDir(), "rouse")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, root+"/cmd/rouse").CombinedOutput(); err != nil {
		t.Fatalf("build rouse: %v: %s", err, out)
	}
	var fs []*function
	for k := range 3 {
		f := create(t, fmt.Sprintf("recorded-%d", k), functionImage, []string{"rouse.dev/model=pico", "rouse.dev/sleep-after=2s", "rouse.dev/gone-after=10s"})
		f.ask("red blue")
		fs = append(fs, f)
		l := underLoad(t, 1, withPauses(t, f, k))
		t.Cleanup(func() {
			if failed := l.end(); len(failed) > 0 { // the requests of a killed process are lost
				t.Logf("%d of %d requests failed, the first: %s", len(failed), l.sent.Load(), failed[0])
			}
		})
	}
	r := rand.New(rand.NewPCG(1, uint64(length)))
	records, kills := 0, 0
	fetch := func() {
		records++
		replayed(t, c, program, filepath.Join(t.TempDir(), fmt.Sprintf("%03d.flight", records)))
	}
	crash := func(pod string) {
		if kills < 4 {
			kill(t, c, pod)
			return
		}
		// One that crashes again and again is started later and later: a new pod is not.
		if out, err := c.Kubectl(t.Context(), "-n", "knative-serving", "delete", "pod", pod, "--force", "--grace-period=0", "--ignore-not-found"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for begin := time.Now(); time.Since(begin) < length || kills < 4; kills++ {
		switch kills % 4 { // each at least once
		case 0, 2:
			killPod(t, fs[r.IntN(len(fs))])
		case 1:
			crash(pods(t, c, "app=rouse-activator", "knative-serving")[0].Metadata.Name)
			rolledOut(t, c, "rouse-activator")
		case 3:
			fetch()
			if leader := pods(t, c, "app=rouse-autoscaler,rouse.dev/leader=true", "knative-serving"); len(leader) == 1 {
				crash(leader[0].Metadata.Name)
			}
			rolledOut(t, c, "rouse-autoscaler")
		}
		for _, f := range fs {
			f.ask("apple pear") // held until an autoscaler decides again
		}
	}
	fetch()
	t.Logf("%d faults in %s, %d records", kills, length, records)
}

// withPauses asks f with pauses in which it falls asleep, and sometimes is unloaded.
func withPauses(t *testing.T, f *function, k int) func(ctx context.Context, i int64) error {
	ask := asking(f)
	return func(ctx context.Context, i int64) error {
		pause := time.Duration(1+(int(i)*7+k*3)%14) * time.Second
		select {
		case <-time.After(pause):
		case <-t.Context().Done():
			return nil
		}
		return ask(ctx, i)
	}
}

// killPod kills the processes of a pod of a function, if it has one.
func killPod(t *testing.T, f *function) {
	t.Helper()
	list := f.pods()
	if len(list) == 0 {
		return
	}
	if out, err := f.c.Kubectl(t.Context(), "delete", "pod", list[0].Metadata.Name, "--force", "--grace-period=0", "--ignore-not-found"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// replayed fetches the leader's record, and replays it.
func replayed(t *testing.T, c *cluster.Cluster, program, file string) {
	t.Helper()
	eventually(t, "the leader's record", func() string { // another may have begun to lead just now
		if out, err := c.Kn(t.Context(), "rouse", "record", file); err != nil {
			return fmt.Sprintf("%v: %s", err, out)
		}
		return ""
	})
	cmd := exec.CommandContext(t.Context(), program, "replay", file)
	cmd.Env = append(os.Environ(), "TZ=Asia/Kolkata") // the record's zone counts, not the reader's
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "each is decided again as it was, to the byte") {
		kept := filepath.Join(os.TempDir(), "rouse-e2e", t.Name())
		_ = os.MkdirAll(kept, 0o700)
		_ = os.Rename(file, filepath.Join(kept, filepath.Base(file))) // to look into
		t.Fatalf("rouse replay: %v; the record is in %s:\n%s", err, kept, out)
	}
	t.Logf("%s", out)
}
