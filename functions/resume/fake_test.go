package resume

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// fake is a vLLM with a detokenizer that holds incomplete characters back, and a model with one answer. The IDs of its tokens are
// firstToken plus their index in says; those of a prompt are its bytes.
type fake struct {
	interval int    // tokens per event
	deaf     bool   // too old to report IDs
	cut      int    // the connection ends after so many bytes; 0: it does not
	instead  string // in place of the third event; empty: unchanged
	prompt   string // of a template in front of every prompt

	mu     sync.Mutex // guards bodies
	bodies []map[string]any
}

const firstToken = 5000

// says is the model's answer, token by token; the last is the end.
var says = []string{"The", " ", "caf", "\xc3", "\xa9", " is", " open", " \xf0", "\x9f", "\x99", "\x82", "\xe2", "\x82\xac", ".", ""}

// known reports whether all tokens exist.
func known(tokens []int64) bool {
	return !slices.ContainsFunc(tokens, func(t int64) bool { return t < 0 || t >= firstToken+int64(len(says)) || t > 0xff && t < firstToken })
}

func text(tokens []int64) (out string) {
	for _, t := range tokens {
		if t >= firstToken {
			out += says[t-firstToken]
		} else {
			out += string([]byte{byte(t)})
		}
	}
	return out
}

// detokenized returns a text as a detokenizer would.
func detokenized(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	var ask struct {
		Messages []struct{ Content string }
		Prompt   any
		Tokens   []int64
		Stream   bool
		Most     *int `json:"max_tokens"`
		Chat     *int `json:"max_completion_tokens"`
		Ids      bool `json:"return_token_ids"`
		Options  struct {
			Usage      bool `json:"include_usage"`
			Continuous bool `json:"continuous_usage_stats"`
		} `json:"stream_options"`
	}
	if len(raw) > 0 {
		all := map[string]any{}
		if json.Unmarshal(raw, &ask) != nil || json.Unmarshal(raw, &all) != nil {
			http.Error(w, "{}", http.StatusBadRequest)
			return
		}
		f.mu.Lock()
		f.bodies = append(f.bodies, all)
		f.mu.Unlock()
	}
	ask.Ids = ask.Ids && !f.deaf
	switch r.URL.Path {
	case "/v1/models":
		_, _ = io.WriteString(w, `{"data":[{"id":"m","max_model_len":12000}]}`)
		return
	case "/detokenize":
		if !known(ask.Tokens) {
			http.Error(w, `{"error":{"message":"no such token","code":400}}`, http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"prompt": detokenized(text(ask.Tokens))})
		return
	}
	chat := r.URL.Path == pathChat
	var ids []int64
	switch p := ask.Prompt.(type) {
	case []any:
		for _, n := range p {
			ids = append(ids, int64(n.(float64)))
		}
	case string:
		ids = bytesOf(p)
	default:
		ids = bytesOf(f.prompt + "user: " + ask.Messages[0].Content)
	}
	if !known(ids) {
		http.Error(w, `{"error":{"message":"no such token","code":400}}`, http.StatusBadRequest)
		return
	}
	most := 16
	if chat {
		most = 12000 - len(ids)
	}
	if ask.Most = cmp.Or(ask.Chat, ask.Most); ask.Most != nil {
		most = *ask.Most
	}
	a := &fakeAnswer{fake: f, chat: chat, ids: ids, tell: ask.Ids, most: most}
	if !ask.Stream {
		_, _ = io.WriteString(w, a.whole())
		return
	}
	out := strings.Join(a.events(ask.Options.Usage, ask.Options.Continuous), "")
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	_, _ = io.WriteString(w, out)
}

// RoundTrip implements [http.RoundTripper], without a network.
func (f *fake) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	resp := w.Result()
	if f.cut > 0 && f.cut < w.Body.Len() && strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(w.Body.Bytes()[:f.cut]), cutter{}))
	}
	return resp, nil
}

// cutter is the end of a cut connection.
type cutter struct{}

func (cutter) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func bytesOf(text string) (ids []int64) {
	for _, b := range []byte(text) {
		ids = append(ids, int64(b))
	}
	return ids
}

// fakeAnswer is one of its answers.
type fakeAnswer struct {
	*fake
	chat, tell bool
	ids        []int64
	most       int
}

// made returns the tokens of the answer, and why it ends.
func (a *fakeAnswer) made() (tokens []int64, finish string) {
	from := int64(0)
	for _, t := range a.ids {
		if t >= firstToken {
			from++
		}
	}
	for at := from; at < int64(len(says)); at++ {
		if tokens = append(tokens, firstToken+at); at == int64(len(says))-1 {
			return tokens, "stop"
		}
		if len(tokens) == a.most {
			return tokens, "length"
		}
	}
	return tokens, "stop"
}

func (a *fakeAnswer) list(tokens []int64) any {
	if !a.tell {
		return nil
	}
	return tokens
}

func (a *fakeAnswer) whole() string {
	raw, _ := json.Marshal(map[string]any{"prompt_token_ids": a.list(a.ids), "choices": []any{map[string]any{"index": 0, "prompt_token_ids": a.list(a.ids)}},
		"usage": map[string]any{"prompt_tokens_details": map[string]int{"cached_tokens": 4}}})
	return string(raw)
}

// events returns the events of a stream.
func (a *fakeAnswer) events(usage, continuous bool) (out []string) {
	tokens, finish := a.made()
	held, sent := "", 0
	name := "cmpl-"
	if a.chat {
		name = "chatcmpl-"
	}
	count := func() map[string]any {
		return map[string]any{"prompt_tokens": len(a.ids), "completion_tokens": sent, "total_tokens": len(a.ids) + sent, "prompt_tokens_details": map[string]int{"cached_tokens": 4}}
	}
	event := func(choices []any, more map[string]any) {
		c := map[string]any{"id": fmt.Sprint(name, "a:b;", len(a.ids)), "created": len(a.ids), "model": "m", "choices": choices, "object": "text_completion"}
		if a.chat {
			c["object"] = "chat.completion.chunk"
		}
		if continuous {
			c["usage"] = count()
		}
		for k, v := range more {
			c[k] = v
		}
		raw, _ := json.Marshal(c)
		out = append(out, "data: "+string(raw)+"\n\n")
		if a.instead != "" && len(out) == 3 {
			out = append(out[:2], a.instead)
		}
	}
	first := map[string]any{}
	if a.chat {
		if a.tell {
			first["prompt_token_ids"] = a.ids
		}
		event([]any{map[string]any{"index": 0, "delta": map[string]any{"role": "assistant", "content": ""}, "finish_reason": nil, "logprobs": nil}}, first)
	}
	for len(tokens) > 0 {
		n := min(a.interval, len(tokens))
		chunk := tokens[:n]
		tokens = tokens[n:]
		delta := ""
		for _, t := range chunk {
			if held += text([]int64{t}); utf8.ValidString(held) { // else its text needs the bytes of the next token
				delta, held = delta+held, ""
			}
		}
		c := map[string]any{"index": 0, "finish_reason": nil, "logprobs": nil, "token_ids": a.list(chunk)}
		if a.chat {
			c["delta"] = map[string]any{"content": delta}
		} else {
			c["text"], c["stop_reason"] = delta, nil
			if sent == 0 {
				c["prompt_token_ids"] = a.list(a.ids)
			}
		}
		sent += n
		if len(tokens) == 0 {
			c["finish_reason"], c["stop_reason"] = finish, nil
		}
		event([]any{c}, nil)
	}
	if usage {
		event([]any{}, map[string]any{"usage": count()})
	}
	return append(out, "data: [DONE]\n\n")
}

// served returns a transport to f, and its address.
func served(t *testing.T, f *fake, change ...func(*Config)) (*Transport, string) {
	t.Helper()
	if f.interval == 0 {
		f.interval = 1
	}
	cfg := Config{Next: f, Model: func() Model {
		return Model{Name: "m", Path: "m", Starts: 1, Args: []string{"--generation-config", "vllm"}}
	}}
	for _, c := range change {
		c(&cfg)
	}
	return New(cfg), "http://vllm"
}
