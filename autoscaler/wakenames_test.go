package autoscaler

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// drawn is a line of a wake as it is printed: who, what, a bar and a time.
var drawn = regexp.MustCompile(`(?m)^(?:activator|autoscaler|instance|kubernetes)  +(.+?)  +[▏▎▍▌▋▊▉█]+ +[0-9.]+ms$`)

// TestNamesInTheDocs: the steps that docs show are those that there are, and each is explained.
func TestNamesInTheDocs(t *testing.T) {
	read := func(name string) string {
		raw, err := os.ReadFile("../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	traces := read("traces.md")
	_, table, _ := strings.Cut(traces, "## Steps")
	table, _, _ = strings.Cut(table, "## Paths")
	explained := map[string]bool{}
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, "|"); len(cells) > 3 {
			for name := range strings.SplitSeq(cells[1], ",") {
				explained[strings.TrimSpace(name)] = true
			}
		}
	}
	for name := range stepLabels {
		if !explained[name] {
			t.Errorf("docs/traces.md does not explain the step %q", name)
		}
	}
	shown := drawn.FindAllStringSubmatch(traces+read("latency.md"), -1)
	if len(shown) < 20 {
		t.Errorf("the docs show %d steps of wakes, want those of several", len(shown))
	}
	for _, line := range shown {
		if stepLabels[line[1]] == "" {
			t.Errorf("the docs show a step that there is not: %q", line[1])
		}
	}
}
