package runtime_test

import (
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
)

// A server is asked in every way until it shows that its model works, and then only in that way.
func TestProbeWays(t *testing.T) {
	chat := `POST /v1/chat/completions {"max_tokens":1,"messages":[{"content":"a","role":"user"}],"model":"m","temperature":0}`
	embed, rank := `POST /v1/embeddings {"input":"a","model":"m"}`, `POST /v1/rerank {"documents":["a"],"model":"m","query":"a"}`
	const refusal = `{"error":{"message":"The model does not support Completions API","type":"BadRequestError","code":400}}`
	for name, tt := range map[string]struct {
		answers map[string]answer
		calls   []string // of the first probe
		again   []string // of the second
		fails   string
	}{
		"generates": {map[string]answer{"POST /v1/completions": {200, token}}, []string{probed("m")}, []string{probed("m")}, ""},
		"embeds": {map[string]answer{"POST /v1/completions": {400, refusal}, "POST /v1/chat/completions": {501, "not here"}, "POST /v1/embeddings": {200, `{"data":[{"embedding":[0.1]}]}`}},
			[]string{probed("m"), chat, embed}, []string{embed}, ""},
		"ranks in SGLang's way": {map[string]answer{"POST /v1/rerank": {200, `[{"score":0.25,"document":"a","index":0}]`}},
			[]string{probed("m"), chat, embed, rank}, []string{rank}, ""},
		"ranks": {map[string]answer{"POST /v1/rerank": {200, `{"results":[{"index":0,"relevance_score":-1.5}]}`}},
			[]string{probed("m"), chat, embed, rank}, []string{rank}, ""},
		"embeds nothing": {map[string]answer{"POST /v1/embeddings": {200, `{"data":[{"embedding":[]}]}`}},
			[]string{probed("m"), chat, embed}, []string{probed("m"), chat, embed}, "no embedding"},
		"nothing at all": {nil, []string{probed("m"), chat, embed, rank}, []string{probed("m"), chat, embed, rank}, "/v1/completions answers 404"},
		"loading":        {map[string]answer{"POST /v1/completions": {503, "loading"}}, []string{probed("m")}, []string{probed("m")}, "503: loading"},
		"bad request":    {map[string]answer{"POST /v1/completions": {400, "max_tokens"}}, []string{probed("m")}, []string{probed("m")}, "400: max_tokens"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			for call, a := range tt.answers {
				f.on(call, a.status, a.body)
			}
			r := adapter(t, api.Runtime{Kind: api.RuntimeVLLM, Model: "x"})
			for _, calls := range [][]string{tt.calls, tt.again} {
				err := r.Probe(t.Context(), f.endpoint())
				if (err == nil) != (tt.fails == "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
					t.Errorf("probe: %v, want %q", err, tt.fails)
				}
				f.asked(calls...)
			}
		})
	}
}

// Clients may use the function's name if the server has another.
func TestCommandRequest(t *testing.T) {
	f := newFake(t).on("GET /v1/models", 200, `{"data":[{"id":"its own \"name\""}]}`).on("POST /v1/completions", 200, token)
	r := adapter(t, api.Runtime{Kind: api.RuntimeCommand, Model: "/models/x", Command: []string{program(t, "srv")}})
	const body = `{ "model" : "n", "messages":[{"model":"n"}],"x":1e400 }`
	if got := request(t, r, "/v1/chat/completions", body); got != body {
		t.Errorf("before the first probe: %s", got)
	}
	if err := r.Probe(t.Context(), f.endpoint()); err != nil {
		t.Fatal(err)
	}
	if got, want := request(t, r, "/v1/chat/completions", body), `{ "model" : "its own \"name\"", "messages":[{"model":"n"}],"x":1e400 }`; got != want {
		t.Errorf("request: %s, want %s", got, want)
	}
	for _, body := range []string{``, `{"model":"other"}`, `{"model":`, `--boundary`, `{"model":["m"]}`} {
		if got := request(t, r, "/v1/chat/completions", body); got != body {
			t.Errorf("%q becomes %q", body, got)
		}
	}
	if _, err := r.Launch(""); err != nil {
		t.Fatal(err)
	}
	if got := request(t, r, "/v1/chat/completions", body); got != body {
		t.Errorf("after another launch: %s", got)
	}
}
