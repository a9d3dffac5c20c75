package knative

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	autoscalingv1alpha1 "knative.dev/serving/pkg/apis/autoscaling/v1alpha1"
)

var update = flag.Bool("update", false, "rewrite what testdata expects")

// TestStatusTranscript writes each line's census into a fresh status. A line is of
// numbers by name, and of the words initialized, unreachable, unnamed, unplaced and problem.
func TestStatusTranscript(t *testing.T) {
	raw, err := os.ReadFile("testdata/status.txt")
	if err != nil {
		t.Fatal(err)
	}
	var out, results strings.Builder
	skip := false
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "----":
			out.WriteString("----\n" + results.String())
			results.Reset()
			skip = true
		case line == "":
			skip = false
			out.WriteString("\n")
		case skip:
		case strings.HasPrefix(line, "#"):
			out.WriteString(line + "\n")
		default:
			out.WriteString(line + "\n")
			results.WriteString(statusOf(t, line) + "\n")
		}
	}
	if *update {
		if err := os.WriteFile("testdata/status.txt", []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(raw), out.String()); diff != "" {
		t.Errorf("the transcript differs (-want +got):\n%s", diff)
	}
}

func statusOf(t *testing.T, line string) string {
	t.Helper()
	var c census
	var s scaling
	var st autoscalingv1alpha1.PodAutoscalerStatus
	st.InitializeConditions()
	st.ServiceName = "tiny-00001"
	numbers := map[string]*int{"min": &s.min, "initial": &s.initial, "awake": &c.awake, "asleep": &c.asleep, "wanted": &c.wanted}
	for _, w := range strings.Fields(line) {
		name, value, _ := strings.Cut(w, "=")
		switch {
		case numbers[name] != nil:
			n, err := strconv.Atoi(value)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			*numbers[name] = n
		case name == "initialized":
			s.initialized = true
			st.MarkScaleTargetInitialized()
		case name == "unreachable":
			s.unreachable = true
		case name == "unnamed":
			st.ServiceName = ""
		case name == "problem":
			c.problem = "100% wrong: write it so"
		case name == "unplaced":
			c.unplaced = "no node takes the pod: 0/1 nodes are available"
		case name == "trouble":
			c.trouble = &trouble{value, "exit code 1"}
		default:
			t.Fatalf("%q: what is %q?", line, w)
		}
	}
	c.writeStatus(&st, s)
	active := st.GetCondition(autoscalingv1alpha1.PodAutoscalerConditionActive)
	word := map[bool]string{true: "active"}[active.IsTrue()] + map[bool]string{true: "activating"}[active.IsUnknown()] + map[bool]string{true: "inactive"}[active.IsFalse()]
	target := "scale target not initialised"
	if st.IsScaleTargetInitialized() {
		target = "scale target initialised"
	}
	text := fmt.Sprintf("%s %d/%d, %s", word, *st.ActualScale, *st.DesiredScale, target)
	if active.Reason != "" {
		text += fmt.Sprintf("; %s: %s", active.Reason, active.Message)
	}
	return text
}
