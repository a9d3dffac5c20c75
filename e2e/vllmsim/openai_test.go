package vllmsim

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	oairesponses "github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
)

// official is the official client of a server.
func official(t *testing.T, cfg Config) (openai.Client, *Server) {
	t.Helper()
	s := start(t, cfg)
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return openai.NewClient(option.WithBaseURL(h.URL+"/v1"), option.WithAPIKey("key"), option.WithMaxRetries(0)), s
}

func ask4(prompt string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: "sim/tiny-1b", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(prompt)}}
}

func TestOfficialChat(t *testing.T) {
	c, _ := official(t, Config{APIKeys: []string{"key"}})
	p := ask4("hello")
	p.MaxCompletionTokens = openai.Int(7)
	p.Logprobs, p.TopLogprobs = openai.Bool(true), openai.Int(2)
	whole, err := c.Chat.Completions.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	choice := whole.Choices[0]
	if u := whole.Usage; choice.FinishReason != "length" || u.CompletionTokens != 7 || u.TotalTokens != u.PromptTokens+7 || len(choice.Logprobs.Content) != 7 || len(choice.Logprobs.Content[0].TopLogprobs) != 2 {
		t.Errorf("%+v", whole)
	}
	p.StreamOptions.IncludeUsage = openai.Bool(true)
	stream := c.Chat.Completions.NewStreaming(t.Context(), p)
	acc := openai.ChatCompletionAccumulator{}
	chunks := 0
	for stream.Next() {
		chunks++
		acc.AddChunk(stream.Current())
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if got := acc.Choices[0]; got.Message.Content != choice.Message.Content || got.FinishReason != "length" || acc.Usage.TotalTokens != whole.Usage.TotalTokens || chunks != 1+7+1 {
		t.Errorf("streamed %q (%s, %d tokens, %d chunks), whole %q", got.Message.Content, got.FinishReason, acc.Usage.TotalTokens, chunks, choice.Message.Content)
	}
}

func TestOfficialErrors(t *testing.T) {
	c, _ := official(t, Config{MaxModelLen: 64})
	p := ask4("hello")
	p.Model = "nobody"
	_, err := c.Chat.Completions.New(t.Context(), p)
	var failed *openai.Error
	if !errors.As(err, &failed) || failed.StatusCode != 404 || failed.Type != "NotFoundError" || !strings.Contains(failed.Message, "`nobody` does not exist") || !strings.Contains(failed.RawJSON(), `"code":404`) {
		t.Errorf("unknown model: %v", err)
	}
	_, err = c.Chat.Completions.New(t.Context(), ask4(strings.Repeat("word ", 100)))
	if !errors.As(err, &failed) || failed.StatusCode != 400 || !strings.Contains(failed.Message, "maximum context length is 64 tokens") {
		t.Errorf("too long: %v", err)
	}
	s := start(t, Config{APIKeys: []string{"key"}})
	if w := get(s, "/v1/models"); w.Code != http.StatusUnauthorized || strings.TrimSpace(w.Body.String()) != `{"error":"Unauthorized"}` {
		t.Errorf("without a key: %d %s", w.Code, w.Body)
	}
	if w := get(s, "/health"); w.Code != http.StatusOK {
		t.Errorf("health without a key: %d", w.Code)
	}
}

func TestOfficialOthers(t *testing.T) {
	c, _ := official(t, Config{Names: []string{"one", "two"}, LoRA: true, Adapters: []Adapter{{Name: "sql", Path: "org/sql"}}})
	models, err := c.Models.List(t.Context())
	if err != nil || len(models.Data) != 3 || models.Data[2].ID != "sql" || !strings.Contains(models.Data[2].RawJSON(), `"parent":"one"`) {
		t.Errorf("models %+v, %v", models, err)
	}
	text, err := c.Completions.New(t.Context(), openai.CompletionNewParams{Model: "one", Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("hello")}})
	if err != nil || text.Usage.CompletionTokens != 16 || text.Choices[0].Text == "" {
		t.Errorf("completion %+v, %v", text, err)
	}
	p := oairesponses.ResponseNewParams{Model: shared.ResponsesModel("one"), Input: oairesponses.ResponseNewParamsInputUnion{OfString: openai.String("hello")}}
	whole, err := c.Responses.New(t.Context(), p)
	if err != nil || whole.OutputText() == "" || whole.Status != "completed" || whole.Usage.OutputTokens == 0 {
		t.Fatalf("response %+v, %v", whole, err)
	}
	stream, text2, last := c.Responses.NewStreaming(t.Context(), p), "", ""
	for stream.Next() {
		last = stream.Current().Type
		if last == "response.output_text.delta" {
			text2 += stream.Current().Delta
		}
	}
	if stream.Err() != nil || text2 != whole.OutputText() || last != "response.completed" {
		t.Errorf("streamed %q, %v, ended with %s; want %q", text2, stream.Err(), last, whole.OutputText())
	}
}

func TestTextsAreDeterministic(t *testing.T) {
	cfg := Config{LoRA: true, MaxLoRAs: 2, Adapters: []Adapter{{Name: "sql", Path: "org/sql"}, {Name: "med", Path: "org/med"}}}
	a, b := start(t, cfg), start(t, cfg)
	base := answer(t, a, "hello")
	if other := answer(t, b, "hello"); other != base {
		t.Errorf("two servers answer %q and %q", base, other)
	}
	for _, tt := range []struct {
		more string
		same bool
	}{
		{`,"seed":5`, true}, // temperature 0 is greedy
		{`,"temperature":1,"seed":5`, false}, {`,"temperature":1,"seed":6`, false}, {`,"model":"sql"`, false}, {`,"model":"med"`, false},
	} {
		one, two := answer(t, a, "hello", tt.more), answer(t, b, "hello", tt.more)
		if one != two || (one == base) != tt.same {
			t.Errorf("%s: %q and %q; base %q", tt.more, one, two, base)
		}
	}
	if got := answer(t, a, "hello", `,"model":"sql"`); !strings.HasPrefix(got, "sql: ") {
		t.Errorf("an adapter says %q", got)
	}
}

func TestFieldsOfRequests(t *testing.T) {
	s := start(t, Config{})
	full := answer(t, s, "hello")
	words := strings.Fields(full)
	stop := words[3]
	for _, tt := range []struct{ name, more, want string }{
		{"stop", `,"stop":"` + stop + `"`, full[:strings.Index(full, stop)]},
		{"stop as a list", `,"stop":["` + stop + `","never"]`, full[:strings.Index(full, stop)]},
		{"one token", `,"max_tokens":1`, words[0]},
		{"parts", `,"max_tokens":2`, strings.Join(words[:2], " ")},
	} {
		if got := answer(t, s, "hello", tt.more); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		stream := post(s, "/v1/chat/completions", `{"temperature":0,"stream":true,"messages":[{"role":"user","content":"hello"}]`+tt.more+`}`)
		if got := deltas(t, stream.Body.String()); got != tt.want {
			t.Errorf("%s, streamed: %q, want %q", tt.name, got, tt.want)
		}
	}
	if got := strings.Count(answer(t, s, "hello", `,"min_tokens":300,"max_tokens":400`), " "); got < 200 {
		t.Errorf("min_tokens 300 gives %d words", got)
	}
}

// deltas joins the texts of a stream, which must end as OpenAI's do.
func deltas(t *testing.T, body string) (text string) {
	t.Helper()
	if !strings.HasSuffix(body, "data: [DONE]\n\n") {
		t.Errorf("the stream ends with %q", body[max(0, len(body)-60):])
	}
	for _, event := range strings.Split(body, "\n\n") {
		var chunk struct {
			Choices []struct{ Delta struct{ Content string } }
		}
		if json.Unmarshal([]byte(strings.TrimPrefix(event, "data: ")), &chunk) == nil && len(chunk.Choices) > 0 {
			text += chunk.Choices[0].Delta.Content
		}
	}
	return text
}

func TestBadRequests(t *testing.T) {
	s := start(t, Config{MaxModelLen: 100})
	chat := `"messages":[{"role":"user","content":"hi"}]`
	for _, tt := range []struct{ path, body string }{
		{"/v1/chat/completions", `{`}, {"/v1/chat/completions", `[]`}, {"/v1/chat/completions", `{}`}, {"/v1/chat/completions", `{"messages":[{"content":"x"}]}`},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":5}]}`},
		{"/v1/chat/completions", `{` + chat + `,"max_tokens":-5}`}, {"/v1/chat/completions", `{` + chat + `,"max_tokens":"x"}`},
		{"/v1/chat/completions", `{` + chat + `,"temperature":9}`}, {"/v1/chat/completions", `{` + chat + `,"stop":5}`},
		{"/v1/chat/completions", `{` + chat + `,"stream_options":{"include_usage":true}}`}, {"/v1/chat/completions", `{` + chat + `,"top_logprobs":99}`},
		{"/v1/chat/completions", `{` + chat + `,"max_tokens":5,"min_tokens":6}`}, {"/v1/chat/completions", `{` + chat + `,"max_tokens":1000}`},
		{"/v1/completions", `{}`}, {"/v1/completions", `{"prompt":""}`}, {"/v1/completions", `{"prompt":{}}`}, {"/v1/completions", `{"prompt":"a","logprobs":-1}`},
		{"/v1/responses", `{}`}, {"/v1/messages", `{}`}, {"/detokenize", `{"tokens":"x"}`},
	} {
		w := post(s, tt.path, tt.body)
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), `"message":"`) {
			t.Errorf("%s %s: %d %s, want 400 that says why", tt.path, tt.body, w.Code, w.Body)
		}
	}
	if st := s.engine.batch.Load(); st.Running+st.Waiting != 0 {
		t.Errorf("%+v is left", st)
	}
}

func FuzzRequests(f *testing.F) {
	f.Add("/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],"stream":true,"stop":["a",""],"logprobs":true}`)
	f.Add("/v1/completions", `{"prompt":[1,2,3],"max_tokens":3,"logprobs":5}`)
	f.Add("/v1/responses", `{"input":[{"role":"user","content":"x"}],"stream":true}`)
	f.Add("/v1/messages", `{"messages":[{"role":"user","content":"x"}],"max_tokens":3,"system":"s"}`)
	f.Add("/collective_rpc", `{"method":"x"}`)
	f.Fuzz(func(t *testing.T, path, body string) {
		if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, " \x00\r\n%?#") || !printable(path) {
			t.Skip()
		}
		s := start(t, Config{MaxModelLen: 256, DevMode: true})
		if w := post(s, path, body); w.Code == 0 || w.Code >= 500 && path != "/collective_rpc" {
			t.Errorf("%s %s: %d %s", path, body, w.Code, w.Body)
		}
	})
}

func printable(s string) bool {
	for _, r := range s {
		if r < '!' || r > '~' {
			return false
		}
	}
	return true
}
