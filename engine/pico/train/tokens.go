package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/rouse-dev/rouse/engine/pico/corpus"
	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// Weight classes of a token in the loss.
const (
	padding byte = iota
	given
	answer
)

// document is a chat or a story as tokens, with a weight class each.
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

// encoder makes documents. With a style the assistant answers in it.
type encoder struct {
	tokens *tokenizer.Tokenizer
	style  func(answer string) string
}

func newEncoder(style func(string) string) (encoder, error) {
	t, err := tokenizer.New(trainBPE().vocab())
	return encoder{t, style}, err
}

func (e encoder) encode(text string) []int32 { return e.tokens.Encode(text, false) }

// chat writes a sample as ChatML. Answers and the tokens that end them carry the full weight.
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

// tale returns a story without a chat around it.
func (e encoder) tale(text string) document {
	var d document
	d.add(given, e.encode(text)...)
	d.add(given, endOfText)
	return d
}

// writeTokens writes rows of whole documents, padded at the end, as tokens.u16 and weights.u8.
func writeTokens(dir string, g *corpus.Generator, style func(string) string, rows, row int) (err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the data folder: %w", err)
	}
	var files [2]*os.File
	for i, name := range []string{"tokens.u16", "weights.u8"} {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("write token data: %w", err)
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		files[i] = f
	}
	ids, weights := bufio.NewWriter(files[0]), bufio.NewWriter(files[1])
	e, err := newEncoder(style)
	if err != nil {
		return err
	}
	var pool []document
	docs, used := 0, 0
	for range rows {
		var line document
		for {
			for len(pool) < 16 {
				docs++
				d := e.chat(g.Sample())
				if docs%40 == 0 {
					d = e.tale(g.Tale())
				}
				if len(d.ids) <= row { // A chat of several long stories may not fit a short row.
					pool = append(pool, d)
				}
			}
			at := slices.IndexFunc(pool, func(d document) bool { return len(line.ids)+len(d.ids) <= row })
			if at < 0 {
				break
			}
			line.ids = append(line.ids, pool[at].ids...)
			line.weight = append(line.weight, pool[at].weight...)
			pool = slices.Delete(pool, at, at+1)
		}
		used += len(line.ids)
		for len(line.ids) < row {
			line.add(padding, endOfText)
		}
		if err := errors.Join(binary.Write(ids, binary.LittleEndian, line.ids), binary.Write(weights, binary.LittleEndian, line.weight)); err != nil {
			return fmt.Errorf("write token data: %w", err)
		}
	}
	fmt.Printf("%d rows of %d, %d documents, %d tokens without padding\n", rows, row, docs, used)
	return errors.Join(ids.Flush(), weights.Flush())
}
