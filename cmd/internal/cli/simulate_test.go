package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// simulateWith runs rouse simulate.
func simulateWith(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := Execute(t.Context(), append([]string{"simulate"}, args...), strings.NewReader(stdin), &out, &out)
	return out.String(), err
}

func TestSimulate(t *testing.T) {
	csv, err := simulateWith(t, "", "generate", "--hours", "2", "--functions", "5")
	if err != nil {
		t.Fatal(err)
	}
	svg := filepath.Join(t.TempDir(), "picture.svg")
	out, err := simulateWith(t, csv, "--trace", "-", "--devices", "2", "--output", "json", "--svg", svg)
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Policies []map[string]any }
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	var names []string
	for _, p := range got.Policies {
		names = append(names, p["name"].(string))
		for _, key := range []string{"gpu_hours", "hot_share", "ttft_p50_ms", "ttft_p95_ms", "refused", "swaps"} {
			if _, found := p[key].(float64); !found {
				t.Errorf("%s: %s is %v, want a number", p["name"], key, p[key])
			}
		}
	}
	if want := "rouse knative keepalive random"; strings.Join(names, " ") != want {
		t.Errorf("policies %v, want %s", names, want)
	}
	picture, err := os.ReadFile(svg)
	if err != nil || !bytes.HasPrefix(picture, []byte("<svg")) {
		t.Errorf("the picture begins with %.20q (%v)", picture, err)
	}
	again, err := simulateWith(t, csv, "--trace", "-", "--devices", "2", "--output", "json")
	if err != nil || again != out {
		t.Errorf("the same trace gives another result (%v)", err)
	}
	table, err := simulateWith(t, csv, "--trace", "-", "--policy", "random", "--policy", "rouse")
	if err != nil || !strings.Contains(table, "GPU-HOURS") || strings.Contains(table, "knative") || strings.Index(table, "random") > strings.Index(table, "rouse") {
		t.Errorf("got %s (%v), want a table of random and rouse", table, err)
	}
}

func TestSimulateRefuses(t *testing.T) {
	for _, c := range []struct {
		args, stdin, want string
	}{
		{"--policy best", "", "--policy best: want rouse, knative, keepalive, random"},
		{"--hours 0", "", "--hours 0: want more than 0"},
		{"--hours NaN", "", `--hours "NaN": want 0 or more`},
		{"--functions 0", "", `--functions "0": want 1 or more`},
		{"--devices 0", "", `--devices "0": want 1 or more`},
		{"--devices 2 --nodes 3", "", "nodes: want 1 to the number of devices, 2 (have 3)"},
		{"--device-memory much", "", `--device-memory "much": want an amount`},
		{"--device-memory 0", "", `--device-memory "0": want an amount`},
		{"--weights 200Gi --devices 1", "", "needs 4 GPUs of one node, and a node has 1"},
		{"--weights -1", "", "--weights -1:"},
		{"--load wild", "", `load "wild": want one of`},
		{"--keep 5s --target-p95 5s", "", "give one of them"},
		{"--suspend never", "", "suspend never: want auto, on or off"},
		{"--rehearse on", "", "rehearse on: want measured, always or never"},
		{"--sleeper-limit 0", "", `--sleeper-limit "0": want 1 or more`},
		{"--trace /nonexistent.csv", "", "--trace: open /nonexistent.csv"},
		{"--trace -", "a,b\n1,2\n", "--trace standard input: line 1: the header is"},
		{"--trace -", "time,model,prompt_tokens,output_tokens\n1,a,1,x\n", `line 2: output tokens "x"`},
		{"--output xml --hours 1", "", `--output "xml": want text, json or yaml`},
		{"--rate -1", "", `--rate "-1": want 0 or more`},
		{"--zipf -1", "", `--zipf "-1": want 0 or more`},
		{"--hold 2562047h", "", "--hold 2562047h0m0s: want more than 0 and at most 24h0m0s"},
		{"--device-memory 1Ki", "", "model m000 needs 20097707 GPUs of one node, and a node has 4"},
	} {
		if _, err := simulateWith(t, c.stdin, strings.Fields(c.args)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.args, err, c.want)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: it is said more than once: %v", c.args, err)
		}
	}
}
