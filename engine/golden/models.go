package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/model"
)

// greedySteps is the number of recorded tokens of a generated model's continuation.
const greedySteps = 8

// makeModels generates every model of infertest.GoldenSpecs whose name begins with only. It writes llama.cpp's
// results, a file for each family.
func makeModels(dir, only string) error {
	tmp, err := os.MkdirTemp("", "golden")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	files := map[string][]any{}
	for _, g := range infertest.GoldenSpecs() {
		if !strings.HasPrefix(g.Name, only) {
			continue
		}
		if err := ask(&g, filepath.Join(tmp, "model.gguf")); err != nil {
			return fmt.Errorf("%s: %w", g.Name, err)
		}
		family, _, _ := strings.Cut(g.Name, "/")
		files[family] = append(files[family], g)
		fmt.Println(g.Name)
	}
	for family, models := range files {
		if err := writeJSON(filepath.Join(dir, family+".json"), map[string]any{}, map[string][]any{"models": models}); err != nil {
			return err
		}
	}
	return nil
}

// ask fills in llama.cpp's results.
func ask(g *infertest.Golden, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := infertest.Write(f, g.Spec); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if g.SHA256, err = fileSum(path); err != nil {
		return err
	}
	o, err := openOracle(path, false)
	if err != nil {
		return err
	}
	defer o.close()
	file, err := gguf.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	m, err := model.Load(file)
	if err != nil {
		return err
	}
	for _, ids := range infertest.GoldenPrompts(o.model.NumVocab()) {
		ids = decide(m, ids)
		r, err := o.run(ids, greedySteps, false, g.Near())
		if err != nil {
			return err
		}
		g.Runs = append(g.Runs, infertest.GoldenRun{IDs: ids, Logits: r.first, Greedy: r.Greedy, Ties: ties(m, &r)})
	}
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
	if m.Config.Experts == 0 {
		return out
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
