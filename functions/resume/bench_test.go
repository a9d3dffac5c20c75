package resume

import (
	"io"
	"strings"
	"testing"
)

// BenchmarkEvents measures the cost of an event of a stream.
func BenchmarkEvents(b *testing.B) {
	const first = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":[1,2,3]}` + "\n\n"
	const one = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null,"token_ids":[1234]}]}` + "\n\n"
	b.ReportAllocs()
	e := newEvents(io.NopCloser(io.MultiReader(strings.NewReader(first), strings.NewReader(strings.Repeat(one, b.N)))), true)
	if n, err := io.Copy(io.Discard, e); err != nil || n == 0 {
		b.Fatal(n, err)
	}
}

// BenchmarkQualify measures the cost of a request whose stream begins.
func BenchmarkQualify(b *testing.B) {
	body := []byte(`{"model":"m","stream":true,"temperature":0.7,"messages":[{"role":"user","content":"` + strings.Repeat("a text of some length ", 200) + `"}]}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, why := qualify(pathChat, body); why != "" {
			b.Fatal(why)
		}
	}
}
