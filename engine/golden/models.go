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
	"strings"
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
