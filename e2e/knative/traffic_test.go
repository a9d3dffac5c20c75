package knative

import (
	"net/http"
	"strings"
	"testing"
)

// TestTrafficSplitAndRollback moves a tenth of the traffic to a new revision, at
// the own host and at the front door, and takes it back.
func TestTrafficSplitAndRollback(t *testing.T) {
	t.Parallel()
	f := create(t, "split", functionImage, lasting)
	f.ask("red blue")
	if _, err := f.kn("update", functionImage, []string{"rouse.dev/priority=1"}, "--traffic", "split-00001=90,@latest=10"); err != nil {
		t.Fatal(err)
	}
	doors := map[string]func() (answer, error){
		"own host": func() (answer, error) {
			return call(t.Context(), f.c, f.host(), "/v1/chat/completions", chat(f.name, "red blue"))
		},
		"front door": func() (answer, error) {
			return frontDoor(t, f.c, "/v1/chat/completions", chat(f.name, "red blue"))
		},
	}
	for name, door := range doors {
		eventually(t, "the split at the "+name, func() string { // its routes follow a moment later
			a, err := door()
			if err != nil || a.status != http.StatusOK {
				t.Fatalf("during the split: %d %s (%v)", a.status, a.body, err)
			}
			if servedBy(a) != "split-00002" {
				return "no answer of the new revision"
			}
			return ""
		})
		got := map[string]int{}
		const n = 300
		for range n {
			a, err := door()
			if err != nil || a.status != http.StatusOK {
				t.Fatalf("during the split: %d %s (%v)", a.status, a.body, err)
			}
			got[servedBy(a)]++
		}
		// 30 expected of a binomial distribution; 8 and 60 are more than four standard deviations away.
		if fresh := got["split-00002"]; fresh < 8 || fresh > 60 || got["split-00001"] != n-fresh {
			t.Errorf("%s: %v of %d requests, want about a tenth at the new revision", name, got, n)
		}
	}
	if _, err := f.c.Kn(t.Context(), "service", "update", f.name, "--traffic", "split-00001=100"); err != nil {
		t.Fatal(err)
	}
	for name, door := range doors {
		run := 0
		eventually(t, "the rollback at the "+name, func() string {
			a, err := door()
			if err != nil || a.status != http.StatusOK {
				t.Fatalf("during the rollback: %d %s (%v)", a.status, a.body, err)
			}
			if run++; servedBy(a) != "split-00001" {
				run = 0
			}
			if run < 10 {
				return "fewer than 10 answers in a row from the old revision"
			}
			return ""
		})
	}
}

// servedBy is the revision whose instance answered.
func servedBy(a answer) string {
	revision, _, _ := strings.Cut(a.header.Get("X-Rouse-Instance"), "-deployment-")
	return revision
}

// TestStockBesideOurs runs a function of Knative's own class, from zero and warm, through our activator.
func TestStockBesideOurs(t *testing.T) {
	t.Parallel()
	f := create(t, "stock", helloImage, []string{"autoscaling.knative.dev/window=6s"})
	for range 2 {
		a, err := call(t.Context(), f.c, f.host(), "/", nil)
		if err != nil || a.status != http.StatusOK || !strings.HasPrefix(a.body, "hello") {
			t.Fatalf("a stock function answers %d %s (%v)", a.status, a.body, err)
		}
		f.hasPods(0)
	}
}
