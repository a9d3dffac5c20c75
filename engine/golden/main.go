// Command golden asks llama.cpp for the answers in files that the engine's tests read, and writes them into these files.
// What is asked stands in the files themselves: a text, a prompt, a conversation's tokens. Run it by hand when one of
// these or the shipped model has changed; README.md says how.
//
//	golden -tokens FILE…   ids of texts, for each pre-tokenizer
//	golden -model GGUF FILE…   logits and continuations of prompts, or the perplexity of conversations
//	golden -model GGUF -ollama URL -name NAME FILE   a running Ollama's answers, as a second reference
//	golden -quant FILE   values of decoded blocks of each tensor type
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
)

func main() {
	if err := execute(); err != nil {
		fmt.Fprintln(os.Stderr, "golden:", err)
		os.Exit(1)
	}
}

func execute() error {
	tokens := flag.Bool("tokens", false, "compute the ids of the texts in the files")
	quant := flag.Bool("quant", false, "write what random blocks of every tensor type decode to")
	model := flag.String("model", "", "model to run for the prompts in the file")
	ollama := flag.String("ollama", "", "address of a running Ollama to ask the prompts in the file")
	name := flag.String("name", "pico", "name of the model there")
	flag.Parse()
	slog.SetLogLoggerLevel(slog.LevelError + 1) // llama.cpp's log follows the default logger's level
	for _, path := range flag.Args() {
		var err error
		switch {
		case *tokens:
			err = encodeTexts(path)
		case *quant:
			err = decodeBlocks(path)
		case *ollama != "":
			err = askOllama(*ollama, *name, *model, path)
		case *model != "":
			err = runModel(*model, path)
		default:
			err = errors.New("nothing to do: see -h")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// origin is written into every file that llama.cpp has answered.
const origin = "llama.cpp as in github.com/ollama/ollama v0.17.4 (CPU, 1 thread, F32 KV cache, flash attention off)"

// update calls answer for each element of a file's list, and writes the file again, with head's fields changed. answer
// may set fields of head. It returns false if the file has no such list.
func update[T any](path, list string, head map[string]any, answer func(*T) error) (bool, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	var fields map[string]json.RawMessage
	var elements []*T
	if err := json.Unmarshal(data, &fields); err != nil {
		return false, err
	}
	if fields[list] == nil {
		return false, nil
	}
	if err := json.Unmarshal(fields[list], &elements); err != nil {
		return false, err
	}
	for i, e := range elements {
		if err := answer(e); err != nil {
			return false, fmt.Errorf("%s %d: %w", list, i, err)
		}
	}
	all := map[string]any{}
	for k, v := range fields {
		all[k] = v
	}
	maps.Copy(all, head)
	delete(all, list)
	return true, write(path, all, list, elements)
}

// write writes head's fields, and then the list with one element a line.
func write[T any](path string, head map[string]any, list string, elements []T) error {
	var b bytes.Buffer
	lines := json.NewEncoder(&b)
	lines.SetEscapeHTML(false)
	var err error
	add := func(before string, v any) {
		b.WriteString(before)
		err = errors.Join(err, lines.Encode(v))
		b.Truncate(len(bytes.TrimSpace(b.Bytes())))
	}
	b.WriteString("{")
	for _, k := range slices.Sorted(maps.Keys(head)) {
		add(fmt.Sprintf("\n%q: ", k), head[k])
		b.WriteString(",")
	}
	fmt.Fprintf(&b, "\n%q: [", list)
	for i, e := range elements {
		if i > 0 {
			b.WriteString(",")
		}
		add("\n", e)
	}
	b.WriteString("\n]\n}\n")
	return errors.Join(err, os.WriteFile(path, b.Bytes(), 0o644))
}

// fileSum returns the SHA-256 of a file.
func fileSum(path string) (string, error) {
	data, err := os.ReadFile(path)
	return fmt.Sprintf("%x", sha256.Sum256(data)), err
}
