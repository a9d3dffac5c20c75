package infertest_test

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/model"
)

// engine/golden/README.md says how the answers are made.
var (
	makeGoldens = flag.String("make", "", "with -llama, write the answers for generated models of this `family`")
	llama       = flag.String("llama", "", "`command` that opens a model with llama.cpp: python3 engine/golden/llama.py steps")
)

// TestMakeGoldens writes llama.cpp's answers for a family.
func TestMakeGoldens(t *testing.T) {
	if *makeGoldens == "" {
		t.Skip("no -make FAMILY: the answers are made by hand")
	}
	var lines []string
	for _, g := range infertest.GoldenSpecs() {
		if name, _, _ := strings.Cut(g.Name, "/"); name != *makeGoldens {
			continue
		}
		ask(t, &g)
		line, err := json.Marshal(g)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(line))
	}
	if lines == nil {
		t.Fatalf("there is no family %q", *makeGoldens)
	}
	const origin = "llama.cpp by engine/golden/llama.py (CPU, 1 thread, F32 KV cache, flash attention off)"
	data := fmt.Sprintf("{\n\"madeWith\": %q,\n\"models\": [\n%s\n]\n}\n", origin, strings.Join(lines, ",\n"))
	if err := os.WriteFile(filepath.Join("testdata/golden", *makeGoldens+".json"), []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

// ask fills in llama.cpp's results.
func ask(t *testing.T, g *infertest.Golden) {
	data, err := infertest.Bytes(g.Spec)
	if err != nil {
		t.Fatal(err)
	}
	g.SHA256 = fmt.Sprintf("%x", sha256.Sum256(data))
	file, err := gguf.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	step := oracle(t, path)
	for _, ids := range infertest.GoldenPrompts(m.Config.Vocab) {
		run := infertest.GoldenRun{IDs: decide(m, ids), Ties: []int{}}
		logits := step(run.IDs, 0)
		run.Logits = logits
		for i := range 8 {
			best := make([]int32, len(logits))
			for id := range best {
				best[id] = int32(id)
			}
			slices.SortStableFunc(best, func(a, b int32) int { return cmp.Compare(logits[b], logits[a]) })
			if logits[best[0]]-logits[best[1]] < g.Near() {
				run.Ties = append(run.Ties, i)
			}
			run.Greedy = append(run.Greedy, best[0])
			logits = step(best[:1], len(run.IDs)+i)
		}
		all := slices.Concat(run.IDs, run.Greedy[:len(run.Greedy)-1])
		for i, x := range infertest.RoutingMargins(m, all)[len(run.IDs)-1:] {
			if x < margin && !slices.Contains(run.Ties, i) {
				run.Ties = append(run.Ties, i)
			}
		}
		slices.Sort(run.Ties)
		g.Runs = append(g.Runs, run)
	}
	t.Logf("%s: ties %v %v %v", g.Name, g.Runs[0].Ties, g.Runs[1].Ties, g.Runs[2].Ties)
}

// margin is the gap between the router's logits below which rounding may choose another expert. Their standard
// deviation is 1.
const margin = 0.12

// decide shortens a prompt for a mixture of experts, and changes its tokens until the experts of each are chosen clearly.
func decide(m *model.Model, ids []int32) []int32 {
	if m.Config.Experts == 0 {
		return ids
	}
	ids = ids[:min(len(ids), 40)]
	for i := range ids {
		for infertest.RoutingMargins(m, ids[:i+1])[i] < margin {
			ids[i] = (ids[i] + 1) % int32(m.Config.Vocab)
		}
	}
	return ids
}

// oracle opens a model with llama.cpp. The function returns the logits after tokens, of which the first stands at pos.
func oracle(t *testing.T, path string) func(tokens []int32, pos int) []float32 {
	command := append(strings.Fields(*llama), path)
	cmd := exec.Command(command[0], command[1:]...) // the test's context ends before its cleanup
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	answers := bufio.NewReader(out)
	return func(tokens []int32, pos int) []float32 {
		t.Helper()
		line, err := json.Marshal(map[string]any{"pos": pos, "tokens": tokens})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.Write(append(line, '\n')); err != nil {
			t.Fatal(err)
		}
		text, err := answers.ReadString('\n')
		if err != nil && err != io.EOF {
			t.Fatal(err)
		}
		raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
		logits := make([]float32, len(raw)/4)
		if err == nil {
			err = binary.Read(bytes.NewReader(raw), binary.LittleEndian, logits)
		}
		if err != nil || len(logits) == 0 {
			t.Fatalf("%d logits, %v", len(logits), err)
		}
		return logits
	}
}
