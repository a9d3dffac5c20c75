package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os"
	"text/template"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer/cpu"
	"github.com/rouse-dev/rouse/engine/pico"
	"github.com/rouse-dev/rouse/engine/pico/corpus"

	"github.com/rouse-dev/rouse/engine/tokenizer"
)

//go:embed card.md.tmpl
var cardTemplate string

// examSeed draws the questions of the card.
const examSeed = 2026

// row is one line of the card's table.
type row struct {
	Skill, Prompt, Answer string
	Mark                  corpus.Mark
}

// card is the data of the template.
type card struct {
	SHA256       string
	Bytes, Asked int
	Parameters   int
	Seed         uint64
	Rows         []row
	Talks        corpus.Mark
}

// writeCard examines the embedded model with the engine's own forward pass.
func writeCard(ctx context.Context, path string, n int) error {
	f, err := gguf.Parse(pico.GGUF())
	if err != nil {
		return err
	}
	tok, err := tokenizer.FromGGUF(f)
	if err != nil {
		return err
	}
	runner, err := cpu.New(f, cpu.Config{Sequences: 16})
	if err != nil {
		return err
	}
	defer runner.Close()
	m := corpus.Model{Inferencer: runner, Tokens: tok}
	c := card{SHA256: pico.SHA256, Bytes: len(pico.GGUF()), Asked: n, Seed: examSeed}
	for _, t := range f.Tensors() {
		c.Parameters += t.Len()
	}
	for _, skill := range corpus.Skills {
		questions := corpus.Questions(skill, examSeed, n)
		mark, err := m.Grade(ctx, questions)
		if err != nil {
			return fmt.Errorf("grade %s: %w", skill, err)
		}
		fmt.Printf("%-8s %5.1f %% right, %d exact of %d; first wrong: %s\n", skill, mark.Percent(), mark.Exact, n, mark.Wrong)
		task := corpus.Parse(questions[0].Prompt())
		c.Rows = append(c.Rows, row{string(skill), task.Prompt(), task.Answer(), mark})
	}
	if c.Talks, err = m.Grade(ctx, corpus.Talks(examSeed, n)); err != nil {
		return fmt.Errorf("grade chats: %w", err)
	}
	fmt.Printf("%-8s %5.1f %% right; first wrong: %s\n", "chats", c.Talks.Percent(), c.Talks.Wrong)
	var out bytes.Buffer
	if err := template.Must(template.New("card").Parse(cardTemplate)).Execute(&out, c); err != nil {
		return fmt.Errorf("fill the model card: %w", err)
	}
	if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the model card: %w", err)
	}
	return nil
}
