package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/pico"
	"github.com/rouse-dev/rouse/engine/pico/corpus"
	"github.com/rouse-dev/rouse/engine/tokenizer"
)

const (
	endOfText = 1021 + iota
	imStart
	imEnd
)

// Weight classes of a token in the loss.
const (
	padding byte = iota
	given
	answer
)

// document is a chat or story as tokens, with a weight class each.
type document struct {
	ids    []uint16
	weight []byte
}

func (d *document) add(class byte, ids ...int32) {
	for _, id := range ids {
		d.ids = append(d.ids, uint16(id))
		d.weight = append(d.weight, class)
	}
}

type encoder struct {
	tokens *tokenizer.Tokenizer
	style  func(answer string) string
}

func newEncoder(style string) (encoder, error) {
	e := encoder{style: func(answer string) string { return answer }}
	if style != "" {
		s, ok := corpus.StyleOf(style)
		if !ok {
			return e, fmt.Errorf("no style %q", style)
		}
		e.style = s.Apply
	}
	f, err := gguf.Parse(pico.GGUF())
	if err != nil {
		return e, err
	}
	e.tokens, err = tokenizer.FromGGUF(f)
	return e, err
}

func (e encoder) encode(text string) []int32 { return e.tokens.Encode(text, false) }

// Answers and the tokens that end them carry the full weight.
func (e encoder) chat(s corpus.Sample) document {
	var d document
	for _, m := range append(s.Messages, corpus.Message{Role: corpus.Assistant, Text: s.Answer}) {
		d.add(given, imStart)
		d.add(given, e.encode(string(m.Role)+"\n")...)
		class, text := given, m.Text
		if m.Role == corpus.Assistant {
			class, text = answer, e.style(text)
		}
		d.add(class, e.encode(text)...)
		d.add(class, imEnd)
		d.add(given, e.encode("\n")...)
	}
	d.add(given, endOfText)
	return d
}

// write writes rows of whole documents, padded at the end, as tokens.u16 and weights.u8.
func (e encoder) write(dir string, g *corpus.Generator, rows, row int) error {
	var pool []document
	var all document
	docs := 0
	for end := row; end <= rows*row; end += row {
		for {
			for len(pool) < 16 {
				docs++
				d := e.chat(g.Sample())
				if docs%40 == 0 {
					d = document{}
					d.add(given, e.encode(g.Tale())...)
					d.add(given, endOfText)
				}
				if len(d.ids) <= row { // a chat of several long stories may not fit a short row
					pool = append(pool, d)
				}
			}
			at := slices.IndexFunc(pool, func(d document) bool { return len(all.ids)+len(d.ids) <= end })
			if at < 0 {
				break
			}
			all.ids = append(all.ids, pool[at].ids...)
			all.weight = append(all.weight, pool[at].weight...)
			pool = slices.Delete(pool, at, at+1)
		}
		for len(all.ids) < end {
			all.add(padding, endOfText)
		}
	}
	ids, err := binary.Append(nil, binary.LittleEndian, all.ids)
	return errors.Join(err, os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "tokens.u16"), ids, 0o644),
		os.WriteFile(filepath.Join(dir, "weights.u8"), all.weight, 0o644))
}
