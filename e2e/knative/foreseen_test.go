package knative

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/autoscaler/rhythm"
	"github.com/rouse-dev/rouse/e2e/cluster"
	"github.com/rouse-dev/rouse/internal/disk"
)

// The functions of TestForeseen sleep after sleepsAfter, and were asked for each hour; visits were apart from that, so that a window
// is as wide as a slow machine wants it.
const (
	sleepsAfter = 15 * time.Second
	hourly      = time.Hour
	apart       = time.Second
)

// TestForeseen has the state learned by earlier leaders in the ConfigMap rouse-learned. A function with a request each
// hour is awake when the request comes; one with rouse.dev/prewake: "false" is asleep. kn rouse why names the forecast,
// and then says that it was right. The next leader knows the same.
func TestForeseen(t *testing.T) {
	c := rouse(t)
	annotations := []string{"rouse.dev/model=pico", "rouse.dev/sleep-after=" + sleepsAfter.String(), "rouse.dev/gone-after=0"}
	f := create(t, "foreseen", functionImage, annotations)
	off := create(t, "not-foreseen", functionImage, append(annotations, "rouse.dev/prewake=false"))
	t.Cleanup(func() { scaleAutoscaler(context.Background(), t, c, 2) })
	w := rhythm.Window{}
	for lead := 2 * sleepsAfter; ; lead *= 2 { // until an autoscaler leads and both are asleep before the window begins
		f.ask("red blue")
		off.ask("red blue")
		scaleAutoscaler(t.Context(), t, c, 0)
		w = learnedBefore(t, c, time.Now().Add(lead), f.name, off.name)
		scaleAutoscaler(t.Context(), t, c, 2)
		f.hasState("asleep")
		off.hasState("asleep")
		if time.Until(w.From) > time.Second {
			break
		}
		if lead > time.Minute {
			t.Fatalf("nobody leads %s after the autoscaler was started", lead)
		}
	}
	f.hasState("awake") // without a request
	a := f.ask("apple pear")
	if timing := a.header.Get("Server-Timing"); !strings.HasPrefix(timing, "hold;dur=0, wake;dur=0,") {
		t.Errorf("its request has Server-Timing %q, want that it found it awake", timing)
	}
	off.hasState("asleep")
	eventually(t, "what became of the forecast", func() string {
		return lacks(f.why(), "  wake ", "a request is foreseen at "+w.From.Add(w.Until.Sub(w.From)/2).UTC().Format("15:04:05 MST"), "of the last 3 forecasts were right", "that was right: one came at")
	})
	if why := off.why(); strings.Contains(why, "foreseen at") {
		t.Errorf("of one that is not to be foreseen it says\n%s", why)
	}
	said := ""
	eventually(t, "the next forecast", func() string { said = f.foreseen(); return lacks(said, "4 of the last 4 forecasts were right") })
	before := leader(t, c)
	if out, err := c.Kubectl(t.Context(), "-n", "knative-serving", "delete", "pod", before, "--timeout=3m"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	eventually(t, "the next leader knows it", func() string {
		if now := leader(t, c); now == before || now == "" {
			return now + " leads"
		}
		if got := f.foreseen(); got != said {
			return fmt.Sprintf("it says %q, want %q", got, said)
		}
		return ""
	})
}

// scaleAutoscaler sets the number of autoscalers, and waits until they run.
func scaleAutoscaler(ctx context.Context, t *testing.T, c *cluster.Cluster, n int) {
	t.Helper()
	if out, err := c.Kubectl(ctx, "-n", "knative-serving", "scale", "deployment/rouse-autoscaler", fmt.Sprintf("--replicas=%d", n)); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	wait := []string{"rollout", "status", "deployment/rouse-autoscaler", "--timeout=180s"}
	if n == 0 {
		wait = []string{"wait", "pod", "-l", "app=rouse-autoscaler", "--for=delete", "--timeout=180s"}
	}
	if out, err := c.Kubectl(ctx, append([]string{"-n", "knative-serving"}, wait...)...); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// learnedBefore writes what a leader has learned of functions that are asked for each hour, the next time at about next.
func learnedBefore(t *testing.T, c *cluster.Cluster, next time.Time, names ...string) rhythm.Window {
	t.Helper()
	r := &rhythm.Rhythm{}
	for k := -6; k < 0; k++ {
		r.Visit(next.Add(time.Duration(k)*hourly+time.Duration(-k%2)*apart), hourly, time.Second, sleepsAfter/3)
	}
	w, known := r.Next(time.Now())
	if right, of := r.Score(); !known || !r.Trusted() || right != 3 || of != 3 {
		t.Fatalf("of six visits %d of %d forecasts were right, the next one is known: %t", right, of, known)
	}
	rhythms := map[string]string{}
	for _, name := range names {
		rhythms["default/"+name+"-00001"] = r.Text()
	}
	file, err := disk.Encode(2, rhythms)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := json.Marshal(map[string]any{"data": map[string]string{"rhythms.json": string(file)}})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := c.Kubectl(t.Context(), "-n", "knative-serving", "patch", "configmap", "rouse-learned", "--type=merge", "-p", string(patch)); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return w
}

// leader is the pod that leads, empty if none does.
func leader(t *testing.T, c *cluster.Cluster) string {
	t.Helper()
	all := pods(t, c, "app=rouse-autoscaler,rouse.dev/leader=true", "knative-serving")
	if len(all) != 1 {
		return ""
	}
	return all[0].Metadata.Name
}

// why returns the output of kn rouse why for f; an error if there is no answer.
func (f *function) why() string {
	f.t.Helper()
	out, err := f.c.Kn(f.t.Context(), "rouse", "why", f.name)
	if err != nil {
		return fmt.Sprintf("%v: %s", err, out)
	}
	return out
}

// foreseen is the line of kn rouse describe that says when f is wanted next.
func (f *function) foreseen() string {
	f.t.Helper()
	out, _ := f.c.Kn(f.t.Context(), "rouse", "describe", f.name) // without a leader there is no such line
	for line := range strings.Lines(out) {
		if text, found := strings.CutPrefix(line, "Foreseen:"); found {
			return strings.TrimSpace(text)
		}
	}
	return ""
}

// lacks lists the elements of want that are not in text.
func lacks(text string, want ...string) string {
	for _, w := range want {
		if !strings.Contains(text, w) {
			return fmt.Sprintf("%q is not in\n%s", w, text)
		}
	}
	return ""
}

// TestRehearsed checks that a process whose first sleep takes long sleeps and wakes once while no request waits, which
// is measured. A request that comes meanwhile is answered as usual.
func TestRehearsed(t *testing.T) {
	parallel(t)
	rouse(t)
	rehearsing := func(t *testing.T, name string) (f *function, said string) {
		f = create(t, name, simulator, []string{"rouse.dev/model=" + simModel, "rouse.dev/runtime=vllm", "rouse.dev/memory=64Mi", "rouse.dev/sleep-after=1m", "rouse.dev/rehearse=always"},
			"--env", "VLLMSIM_FLAGS=--load-time 100ms --wake-time 20ms --sleep-time 250ms --first-sleep 16 --prefill-time 1us --step-time 200us")
		said = content(f.ask("hello there").body)
		if said == "" {
			t.Fatal("the first answer has no content")
		}
		eventually(t, "the rehearsal begins", func() string {
			return lacks(f.why(), "a rehearsal, idle for", "how long its first sleep takes is not known")
		})
		return f, said
	}
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		f, _ := rehearsing(t, "rehearsed")
		eventually(t, "it was measured", func() string { return lacks(f.why(), "its rehearsal is over, the first sleep took 4") })
		f.hasState("awake")
	})
	t.Run("interrupted", func(t *testing.T) {
		t.Parallel()
		f, said := rehearsing(t, "rehearsed-asked")
		if got := content(f.ask("hello there").body); got != said {
			t.Errorf("a request during the rehearsal is answered with %q, before it was %q", got, said)
		}
		f.hasState("awake")
	})
}
