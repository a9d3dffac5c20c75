package main

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/model"
)

// run is a prompt and its greedy continuation. Of a large vocabulary it has the best logits instead of all: these would
// be a megabyte.
type run struct {
	Prompt string   `json:"prompt"`
	IDs    []int32  `json:"ids"`
	Logits string   `json:"logits,omitempty"` // after the last id: Base64 of little-endian float32
	NLL    float64  `json:"nll,omitempty"`    // the sum of -ln p of all ids but the first
	Best   []scored `json:"best,omitempty"`
	Greedy []int32  `json:"greedy"`
	Text   string   `json:"text,omitempty"`
	Ties   []tie    `json:"ties,omitempty"`
}

// document is a held-out chat with its answer, and the sum of -ln p of its tokens except the first.
type document struct {
	IDs []int32 `json:"ids"`
	NLL float64 `json:"nll"`
}

// nearTie is the gap between the two highest logits below which rounding may decide.
const nearTie = 0.05

// runModel computes the prompts, or the perplexity of the documents, of a file.
func runModel(model, path string) error {
	sum, err := fileSum(model)
	if err != nil {
		return err
	}
	o, err := openOracle(model, false)
	if err != nil {
		return err
	}
	defer o.close()
	head := map[string]any{"madeWith": origin, "sha256": sum}
	if done, err := update(path, "runs", head, o.prompt); done || err != nil {
		return err
	}
	var total float64
	n := 0
	_, err = update(path, "documents", head, func(d *document) (err error) {
		d.NLL, err = o.nll(d.IDs)
		total, n = total+d.NLL, n+len(d.IDs)-1
		head["perplexity"] = math.Exp(total / float64(n))
		return err
	})
	return err
}

// prompt continues one prompt: a chat up to its end, and other texts as far as before. After its end token the shipped
// model's input is unlike its training, and small errors grow.
func (o *oracle) prompt(r *run) (err error) {
	text, steps, chat := r.Prompt, cmp.Or(len(r.Greedy), 40), strings.HasSuffix(r.Prompt, "assistant\n")
	if chat {
		steps = 48
	}
	if r.Best != nil {
		text = "<bos>" + text
	}
	if r.IDs, err = o.tokenize(text, true); err != nil {
		return err
	}
	logits, err := o.greedy(r, steps, chat, nearTie)
	if err != nil {
		return err
	}
	if r.Best == nil {
		b, err := binary.Append(nil, binary.LittleEndian, logits)
		r.Logits = base64.StdEncoding.EncodeToString(b)
		return err
	}
	r.Best, r.Text, r.Ties = highest(logits)[:len(r.Best)], "", nil
	r.NLL, err = o.nll(r.IDs)
	return err
}

// makeModels computes the prompts of every generated model, a file for each family.
func makeModels(dir string) error {
	goldens, err := infertest.Goldens()
	if err != nil {
		return err
	}
	files := map[string][]infertest.Golden{}
	for _, g := range goldens {
		if err := ask(&g); err != nil {
			return fmt.Errorf("%s: %w", g.Name, err)
		}
		family, _, _ := strings.Cut(g.Name, "/")
		files[family] = append(files[family], g)
		fmt.Println(g.Name)
	}
	for family, models := range files {
		if err := write(filepath.Join(dir, family+".json"), map[string]any{"madeWith": origin}, "models", models); err != nil {
			return err
		}
	}
	return nil
}

// ask fills in llama.cpp's results.
func ask(g *infertest.Golden) error {
	f, err := os.CreateTemp("", "golden-*.gguf")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	if err := infertest.Write(f, g.Spec); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if g.SHA256, err = fileSum(f.Name()); err != nil {
		return err
	}
	o, err := openOracle(f.Name(), false)
	if err != nil {
		return err
	}
	defer o.close()
	file, err := gguf.Open(f.Name())
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	m, err := model.Load(file)
	if err != nil {
		return err
	}
	var runs []infertest.GoldenRun
	for _, ids := range infertest.GoldenPrompts(o.model.NumVocab()) {
		r := run{IDs: decide(m, ids)}
		logits, err := o.greedy(&r, 8, false, g.Near())
		if err != nil {
			return err
		}
		runs = append(runs, infertest.GoldenRun{IDs: r.IDs, Logits: logits, Greedy: r.Greedy, Ties: ties(m, &r)})
	}
	g.Runs = runs
	return nil
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

// ties returns the steps that rounding decides, by the logits or by the choice of experts.
func ties(m *model.Model, r *run) []int {
	out := []int{}
	for _, t := range r.Ties {
		out = append(out, t.Step)
	}
	all := append(r.IDs[:len(r.IDs):len(r.IDs)], r.Greedy[:len(r.Greedy)-1]...)
	for i, x := range infertest.RoutingMargins(m, all)[len(r.IDs)-1:] {
		if x < margin && !slices.Contains(out, i) {
			out = append(out, i)
		}
	}
	slices.Sort(out)
	return out
}

// answer is a running Ollama's answer to a prompt of one user message at temperature 0.
type answer struct {
	User string `json:"user"`
	Text string `json:"text"`
}

// askOllama asks the model name, which `ollama create` has made from the file model; README.md says how.
func askOllama(url, name, model, path string) error {
	sum, err := fileSum(model)
	if err != nil {
		return err
	}
	head := map[string]any{"madeWith": "Ollama v0.17.4 over its HTTP API, temperature 0, repeat_penalty 1, 1 thread", "sha256": sum}
	_, err = update(path, "answers", head, func(a *answer) error {
		body, err := json.Marshal(map[string]any{
			"model": name, "stream": false,
			"messages": []map[string]string{{"role": "user", "content": a.User}},
			"options":  map[string]any{"temperature": 0, "num_predict": 48},
		})
		if err != nil {
			return err
		}
		resp, err := http.Post(url+"/api/chat", "application/json", bytes.NewReader(body))
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		data, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s %w", resp.Status, data, err)
		}
		var reply struct{ Message struct{ Content string } }
		err = json.Unmarshal(data, &reply)
		a.Text = reply.Message.Content
		return err
	})
	return err
}
