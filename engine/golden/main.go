// Command golden computes reference results with llama.cpp, and writes them into files that the engine's tests read: the
// ids of hard texts for each pre-tokenizer, logits after prompts, greedy continuations. Run it by hand when the set of
// models or texts changes; README.md says how.
//
//	golden -tokens DIR           vocabularies and ids for engine/tokenizer/testdata
//	golden -quant FILE           decoded blocks of each tensor type, for engine/gguf/testdata
//	golden -models DIR           logits and continuations of generated models, for engine/infer/infertest/testdata/golden
//	golden -model FILE -o FILE   logits and continuations of ChatML prompts for a GGUF file
//	golden -model FILE -perplexity -o FILE   how well the shipped model predicts held-out chats
//	golden -model FILE -named -o FILE   the same for a public model, with only the best logits
//	golden -model FILE -ollama URL -name NAME -o FILE   a running Ollama's answers, as a second reference
package main

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/rouse-dev/rouse/engine/tokenizer"
)

func main() {
	if err := execute(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "golden:", err)
		os.Exit(1)
	}
}

func execute(args []string) error {
	flags := flag.NewFlagSet("golden", flag.ContinueOnError)
	tokens := flags.String("tokens", "", "write vocabularies and the ids of hard texts into this folder")
	models := flags.String("models", "", "write logits and continuations of every generated model into this folder")
	perplexity := flags.Bool("perplexity", false, "with -model and -o: perplexity of the shipped model's held-out chats")
	named := flags.Bool("named", false, "with -model and -o: the best logits and continuations of texts that are no chats")
	only := flags.String("only", "", "with -models: only models whose names begin so")
	quant := flags.String("quant", "", "write what random blocks of every tensor type decode to into this file")
	model := flags.String("model", "", "GGUF file to run")
	out := flags.String("o", "", "file to write")
	ollama := flags.String("ollama", "", "address of a running Ollama to ask")
	name := flags.String("name", "pico", "name of the model there")
	if err := flags.Parse(args); err != nil {
		return err
	}
	slog.SetLogLoggerLevel(slog.LevelError + 1) // llama.cpp's log follows the default logger's level
	switch {
	case *tokens != "":
		return makeTokens(*tokens)
	case *models != "":
		return makeModels(*models, *only)
	case *quant != "":
		return makeQuant(*quant)
	case *model != "" && *out != "" && *ollama != "":
		return askOllama(*ollama, *name, *model, *out)
	case *model != "" && *out != "" && *perplexity:
		return makePerplexity(*model, *out)
	case *model != "" && *out != "" && *named:
		return makeNamed(*model, *out)
	case *model != "" && *out != "":
		return makeModel(*model, *out)
	}
	return errors.New("nothing to do: see -h")
}

// makeTokens trains one vocabulary of each kind and encodes all texts with each pre-tokenizer.
func makeTokens(dir string) error {
	random := randomTexts(220)
	corpus := append(slices.Clone(texts), random...)
	bpe, spm := trainBPE(corpus, 1400), trainSPM(corpus, 500)
	if err := writeJSON(filepath.Join(dir, "vocab-bpe.json"), map[string]any{"vocab": bpe}, nil); err != nil {
		return err
	}
	for _, pre := range []string{"", "gpt-2", "smollm", "llama-bpe", "dbrx", "qwen2", "tekken", "gpt-4o"} {
		v := bpe
		v.Pre = pre
		if pre == "llama-bpe" || pre == "tekken" { // these families add a beginning of text by default
			v.BOS = v.EOS
		}
		name := "golden-" + pre + ".json"
		if pre == "" {
			name = "golden-none.json"
		}
		if err := encodeAll(filepath.Join(dir, name), "vocab-bpe.json", v, corpus); err != nil {
			return err
		}
	}
	no := false
	spaceless := spm
	spaceless.AddSpacePrefix = &no
	for _, g := range []struct {
		name, vocab string
		v           tokenizer.Vocab
	}{
		{"spm", "vocab-spm.json", spm}, {"spm-noprefix", "vocab-spm.json", spaceless},
		{"gemma", "vocab-gemma.json", gemmaVocab(spm)}, {"phi3", "vocab-phi3.json", phi3Vocab(spm)},
	} {
		if err := writeJSON(filepath.Join(dir, g.vocab), map[string]any{"vocab": g.v}, nil); err != nil {
			return err
		}
		if err := encodeAll(filepath.Join(dir, "golden-"+g.name+".json"), g.vocab, g.v, corpus); err != nil {
			return err
		}
	}
	return nil
}

// encodeAll writes the ids of all texts with v.
func encodeAll(path, vocab string, v tokenizer.Vocab, corpus []string) error {
	file := filepath.Join(os.TempDir(), fmt.Sprintf("golden-%d.gguf", os.Getpid()))
	defer func() { _ = os.Remove(file) }()
	if err := writeVocab(file, v); err != nil {
		return err
	}
	o, err := openOracle(file, true)
	if err != nil {
		return err
	}
	var cases []any
	add := func(text string, special bool) error {
		ids, err := o.tokenize(text, special)
		if err != nil {
			return fmt.Errorf("%q: %w", text, err)
		}
		cases = append(cases, newEncoded(text, special, ids))
		return nil
	}
	for _, text := range slices.Concat(corpus, casedTexts, specialTexts) {
		if err := add(text, false); err != nil {
			return err
		}
	}
	for _, text := range specialTexts {
		if err := add(text, true); err != nil {
			return err
		}
	}
	ends := []int32{}
	for id := range v.Tokens {
		if o.model.TokenIsEog(id) {
			ends = append(ends, int32(id))
		}
	}
	head := map[string]any{"vocab": vocab, "pre": v.Pre, "bos": v.BOS, "addBOS": o.model.AddBOSToken(), "ends": ends}
	if v.AddSpacePrefix != nil {
		head["addSpacePrefix"] = *v.AddSpacePrefix
	}
	fmt.Println(path, len(cases))
	return writeJSON(path, head, map[string][]any{"cases": cases})
}

// makeModel runs prompts of the shipped model's skills through a GGUF file.
func makeModel(model, out string) error {
	sum, err := fileSum(model)
	if err != nil {
		return err
	}
	o, err := openOracle(model, false)
	if err != nil {
		return err
	}
	var runs []any
	for _, p := range picoPrompts {
		text := "<|im_start|>user\n" + p + "<|im_end|>\n<|im_start|>assistant\n"
		ids, err := o.tokenize(text, true)
		if err != nil {
			return err
		}
		r, err := o.run(ids, 48, true, nearTie)
		if err != nil {
			return err
		}
		r.Prompt = text
		runs = append(runs, r)
	}
	// After the end token the model's input is unlike its training, and small errors grow.
	for _, p := range []string{"the cat", "once upon a time there was a dog and 12 + 30 =", ""} {
		ids, err := o.tokenize("<|im_start|>"+p, true)
		if err != nil {
			return err
		}
		r, err := o.run(ids, 40, false, nearTie)
		if err != nil {
			return err
		}
		r.Prompt = "<|im_start|>" + p
		runs = append(runs, r)
	}
	head := map[string]any{"sha256": sum}
	return writeJSON(out, head, map[string][]any{"runs": runs})
}

// picoPrompts are one or two requests for each skill of the shipped model.
var picoPrompts = []string{
	"echo alpha delta sierra", "reverse red green blue", "upper hello world", "count one two three four", "sort pear apple fig",
	"add 12 30", "convert 5 km to m", "json name=alice item=lamp", "story cat boat", "help", "What can you do?", "Привет 😀",
}

// fileSum returns the SHA-256 of a file.
func fileSum(path string) (string, error) {
	data, err := os.ReadFile(path)
	return fmt.Sprintf("%x", sha256.Sum256(data)), err
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
