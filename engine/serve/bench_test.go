package serve_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/chat"
	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/infer/cpu"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/model"
	"github.com/rouse-dev/rouse/engine/pico"
	"github.com/rouse-dev/rouse/engine/serve"
	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// instant is a model that costs nothing, to measure everything else.
type instant struct {
	infertest.Fake
	vocab  int
	logits [][]float32
}

func (m *instant) Config() model.Config { return model.Config{Vocab: m.vocab, Context: 4096} }

func (m *instant) Forward(_ context.Context, b *infer.Batch) (infer.Result, error) {
	m.logits = m.logits[:0]
	row := make([]float32, m.vocab)
	row['x'] = 1
	for range b.Items {
		m.logits = append(m.logits, row)
	}
	return infer.Result{Logits: m.logits, Hidden: make([][]float32, len(b.Items))}, nil
}

// bench makes a server whose engine runs until the benchmark ends.
func bench(b *testing.B, inf infer.Inferencer, tok *tokenizer.Tokenizer) *serve.Server {
	b.Helper()
	e, err := infertest.Engine(inf, tok, engine.Config{})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		<-done
	})
	template, err := chat.New("", "", "")
	if err != nil {
		b.Fatal(err)
	}
	return serve.NewServer(e, template, serve.Config{Model: "bench"})
}

const benchBody = `{"model":"bench","messages":[{"role":"user","content":"convert 3 kg to g"}],"temperature":0,"max_tokens":1}`

func instantServer(b *testing.B) *serve.Server {
	tok, err := tokenizer.FromGGUF(infertest.Open(b, infertest.Spec{}))
	if err != nil {
		b.Fatal(err)
	}
	m := &instant{vocab: tok.Size()}
	m.Count = 4096
	return bench(b, m, tok)
}

func picoServer(b *testing.B) *serve.Server {
	f, err := gguf.Parse(pico.GGUF())
	if err != nil {
		b.Fatal(err)
	}
	tok, err := tokenizer.FromGGUF(f)
	if err != nil {
		b.Fatal(err)
	}
	runner, err := cpu.New(f, cpu.Config{})
	if err != nil {
		b.Fatal(err)
	}
	return bench(b, runner, tok)
}

// BenchmarkChatOneToken measures a whole chat request for one token: the handler
// alone, over a Unix socket with Go's client, and with the shipped model.
func BenchmarkChatOneToken(b *testing.B) {
	handler := func(b *testing.B, s *serve.Server) {
		b.ReportAllocs()
		for b.Loop() {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(benchBody)))
			if w.Code != http.StatusOK {
				b.Fatal(w.Body)
			}
		}
	}
	socket := func(b *testing.B, s *serve.Server) {
		path := filepath.Join(b.TempDir(), "s")
		l, _, err := serve.Listen("unix:" + path)
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- serve.Serve(ctx, l, s, func() {}) }()
		transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", path) }}
		client := http.Client{Transport: transport}
		b.ReportAllocs()
		for b.Loop() {
			resp, err := client.Post("http://engine/v1/chat/completions", "application/json", strings.NewReader(benchBody))
			if err != nil {
				b.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				b.Fatal(err)
			}
			resp.Body.Close()
		}
		transport.CloseIdleConnections()
		cancel()
		<-done
	}
	b.Run("instant/handler", func(b *testing.B) { handler(b, instantServer(b)) })
	b.Run("instant/socket", func(b *testing.B) { socket(b, instantServer(b)) })
	b.Run("pico/handler", func(b *testing.B) { handler(b, picoServer(b)) })
	b.Run("pico/socket", func(b *testing.B) { socket(b, picoServer(b)) })
}

// BenchmarkStream measures one token of a stream, with 8 clients at once.
func BenchmarkStream(b *testing.B) {
	s := instantServer(b)
	body := strings.Replace(benchBody, `"max_tokens":1`, `"max_tokens":1000,"stream":true`, 1)
	b.SetParallelism(2)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(body)))
			if w.Code != http.StatusOK {
				b.Fatal(w.Body)
			}
		}
	})
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/token")
}
