package render

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rivo/uniseg"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
)

// fleet is a list as a person with some models has it.
func fleet() []admin.Function {
	engine := func(name, model string) api.Function {
		return api.Function{Name: api.NewFunctionName("", name), MaxScale: 1, Runtime: api.Runtime{Kind: api.RuntimeEngine, Model: model}, Origin: "functions.yaml"}
	}
	chat := admin.Function{Function: engine("chat", "/home/ann/models/a-rather-long-folder/qwen2.5-coder-14b-instruct-q4_k_m.gguf"),
		Instances: []api.InstanceStatus{{State: api.Awake, Memory: api.Memory{Host: 9 * api.GiB}}, {State: api.Asleep, Memory: api.Memory{Host: api.GiB}}}}
	chat.Activator = api.Activity{Waiting: 3, Running: 12, LastRequest: time.Now().Add(-125 * time.Second)}
	long := admin.Function{Function: engine("deepseek-r1-distill-qwen-1-5b-q4-k-m-of-somebody", "pico")}
	failed := admin.Function{Function: engine("broken", "pico")}
	failed.Activator.Failed = "no GGUF file"
	return []admin.Function{chat, long, failed}
}

func TestListFits(t *testing.T) {
	for _, width := range []int{80, 100, 60, 40, 0} {
		var b bytes.Buffer
		if err := writeNoted(&b, screen{width: width}, usual, fleet()); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			line = strings.TrimSuffix(line, "\n")
			if width > 0 && uniseg.StringWidth(line) > width {
				t.Errorf("at %d columns a line has %d: %q", width, uniseg.StringWidth(line), line)
			}
			if strings.HasSuffix(line, " ") {
				t.Errorf("a line ends with spaces: %q", line)
			}
		}
		if width == 0 && !strings.Contains(b.String(), "engine, qwen2.5-coder-14b-instruct-q4_k_m.gguf") {
			t.Errorf("where no terminal is, a cell is cut:\n%s", b.String())
		}
	}
}

// TestListSaysWhy: below the table stands why a function failed, whole and once.
func TestListSaysWhy(t *testing.T) {
	list := fleet()
	list[2].LastError = "the runtime ended before it was ready: exit status 65\nit is " + strings.Repeat("x", 100)
	var b bytes.Buffer
	if err := writeNoted(&b, screen{width: 80}, usual, list); err != nil {
		t.Fatal(err)
	}
	_, below, _ := strings.Cut(b.String(), "\n\n")
	if want := "broken failed: the runtime ended before it was ready: exit status 65 | it is " + strings.Repeat("x", 100) + "\n"; below != want {
		t.Errorf("below the table stands %q, want %q", below, want)
	}
}

func TestListInColour(t *testing.T) {
	var b bytes.Buffer
	if err := writeNoted(&b, screen{width: 100, colour: true}, usual, fleet()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\x1b[32mawake\x1b[0m     1/1", "\x1b[31mfailed\x1b[0m    0/1", "\x1b[2munloaded\x1b[0m  0/1"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("lacks %q:\n%q", want, b.String())
		}
	}
	b.Reset()
	if err := writeNoted(&b, screen{width: 100}, usual, fleet()); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "\x1b") {
		t.Errorf("has colours without leave:\n%q", b.String())
	}
}

func TestListWide(t *testing.T) {
	var b bytes.Buffer
	if err := writeNoted(&b, screen{}, all, fleet()); err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(b.String(), "\n")
	want := "NAME STATE AWAKE ASLEEP MEMORY HELD RUNNING LAST REQUEST RUNS SNAPSHOT DECLARED IN"
	if diff := cmp.Diff(want, strings.Join(strings.Fields(head), " ")); diff != "" {
		t.Errorf("head (-want +got):\n%s", diff)
	}
	for _, want := range []string{"/home/ann/models/a-rather-long-folder/qwen2.5-coder-14b-instruct-q4_k_m.gguf", "2m5s ago", "functions.yaml"} {
		if !strings.Contains(rest, want) {
			t.Errorf("lacks %q:\n%s", want, rest)
		}
	}
}

func TestCut(t *testing.T) {
	for _, tt := range []struct {
		text  string
		width int
		end   bool
		want  string
	}{{"chat", 4, false, "chat"}, {"chatter", 4, false, "cha…"}, {"chatter", 4, true, "…ter"}, {"模型模型", 5, false, "模型…"}, {"模型模型", 4, false, "模…"}, {"chat", 1, false, "…"}} {
		if got := cut(tt.text, tt.width, tt.end); got != tt.want || uniseg.StringWidth(got) > tt.width {
			t.Errorf("cut(%q, %d, %v) = %q, want %q", tt.text, tt.width, tt.end, got, tt.want)
		}
	}
}

// TestTableFits: a narrow terminal cuts names of functions, and a program gets them whole.
func TestTableFits(t *testing.T) {
	rows := Rows{{"TENANT", "FUNCTION", "REQS"}, {"https://login.example.com#acme", "a-function-with-a-long-name", 12}}
	for width, want := range map[int]string{0: "a-function-with-a-long-name", 60: "a-function-with-a-l…", 10: "a-function…"} {
		var b strings.Builder
		if err := table(&b, screen{width: width}, rows); err != nil {
			t.Fatal(err)
		}
		if got := strings.Fields(strings.Split(b.String(), "\n")[1]); got[0] != rows[1][0] || got[1] != want {
			t.Errorf("with %d columns: %q, want %q", width, got, want)
		}
	}
}
