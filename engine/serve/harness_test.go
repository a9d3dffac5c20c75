package serve_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/chat"
	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/model"
	"github.com/rouse-dev/rouse/engine/serve"
	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// parrot is a model that repeats the user: the last message of a
// conversation, or the first line of a plain prompt.
type parrot struct {
	*infertest.Fake
	tok     *tokenizer.Tokenizer
	latency time.Duration

	mu   sync.Mutex
	fail error // of the next step

	damaged bool // its output is not a number
}

// Forward implements infer.Inferencer.
func (p *parrot) Forward(ctx context.Context, b *infer.Batch) (infer.Result, error) {
	out, err := p.Fake.Forward(ctx, b)
	for _, logits := range out.Logits {
		if p.damaged && len(logits) > 0 {
			logits[len(logits)-1] = float32(math.NaN())
		}
	}
	return out, err
}

func newParrot(t testing.TB) *parrot {
	t.Helper()
	tok, err := tokenizer.FromGGUF(infertest.Open(t, infertest.Spec{}))
	if err != nil {
		t.Fatal(err)
	}
	p := &parrot{tok: tok}
	p.Fake = &infertest.Fake{
		Shape: model.Config{Arch: "fake", Vocab: tok.Size(), Context: 256},
		Next:  p.next,
		Before: func(context.Context, *infer.Batch) error {
			time.Sleep(p.latency)
			p.mu.Lock()
			defer p.mu.Unlock()
			err := p.fail
			p.fail = nil
			return err
		},
	}
	return p
}

func (p *parrot) failNext(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail = err
}

// next returns the next token of a sequence.
func (p *parrot) next(sequence []int32) int32 {
	end := p.tok.Encode("<|im_end|>", true)[0]
	said, made := "", len(sequence)
	if !strings.Contains(p.raw(sequence), "\n") {
		return p.tok.Encode("\n", false)[0]
	}
	for n := range sequence {
		text := p.raw(sequence[:n+1])
		if before, ok := strings.CutSuffix(text, "<|im_end|>\n<|im_start|>assistant\n"); ok {
			said, made = before[strings.LastIndex(before, "<|im_start|>user\n")+len("<|im_start|>user\n"):], len(sequence)-n-1
		} else if before, ok := strings.CutSuffix(text, "\n"); ok && !strings.Contains(text, "<|im_start|>") && made == len(sequence) {
			said, made = before, len(sequence)-n-1
		}
	}
	if answer := p.tok.Encode(said, false); made < len(answer) {
		return answer[made]
	}
	return end
}

// raw returns the text of tokens with the names of control tokens in it.
func (p *parrot) raw(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		if piece := p.tok.Piece(id); len(piece) > 0 {
			b.Write(piece)
		} else {
			b.WriteString(p.tok.Token(id))
		}
	}
	return b.String()
}

// client talks to a server over memory.
type client struct {
	t *testing.T
	http.Client
	engine *engine.Engine
	model  *parrot
	stop   context.CancelFunc // of the server
	done   chan struct{}      // closed when Serve has returned
	err    error              // what it returned
}

// start serves a parrot until the test ends.
func start(t *testing.T, cfg serve.Config, latency time.Duration) *client {
	t.Helper()
	return startWith(t, cfg, latency, toolNames+chat.ChatML)
}

// toolNames is a place for tools in a template, in few tokens: a parrot's context is small.
const toolNames = "{% for f in tools or [] %}{{ f.function.name }} {% endfor %}"

// chatML is the template of models without one.
const chatML = chat.ChatML

// startWith is start with a chat template.
func startWith(t *testing.T, cfg serve.Config, latency time.Duration, source string) *client {
	t.Helper()
	p := newParrot(t)
	p.latency = latency
	return startModel(t, cfg, p, source)
}

// startModel is startWith for a model.
func startModel(t *testing.T, cfg serve.Config, p *parrot, source string) *client {
	t.Helper()
	cfg.Model = "parrot.gguf"
	e, err := infertest.Engine(p, p.tok, engine.Config{Seats: max(cfg.MaxSeqs, 4)})
	if err != nil {
		t.Fatal(err)
	}
	template, err := chat.New(source, "", "")
	if err != nil {
		t.Fatal(err)
	}
	l := newMemoryListener()
	run, stopEngine := context.WithCancel(context.Background())
	engineDone := make(chan error, 1)
	go func() { engineDone <- e.Run(run) }()
	ctx, stop := context.WithCancel(context.Background())
	c := &client{t: t, engine: e, model: p, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.err = serve.Serve(ctx, l, serve.NewServer(e, template, cfg), stopEngine)
	}()
	transport := &http.Transport{DialContext: l.dial}
	c.Transport = transport
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		stop()
		<-c.done
		if c.err != nil {
			t.Errorf("serve: %v", c.err)
		}
		stopEngine()
		if err := <-engineDone; err != nil {
			t.Errorf("engine: %v", err)
		}
	})
	return c
}

// do sends a request and returns the answer with its body.
func (c *client) do(method, path, body string) (*http.Response, string) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, "http://engine"+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	resp, err := c.Do(r)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatalf("%s %s: read the answer: %v", method, path, err)
	}
	return resp, string(data)
}

// post is do for a call that must succeed.
func (c *client) post(path, body string) string {
	c.t.Helper()
	resp, data := c.do("POST", path, body)
	if resp.StatusCode != http.StatusOK {
		c.t.Fatalf("POST %s %s: status %d: %s", path, body, resp.StatusCode, data)
	}
	return data
}

// memoryListener hands out the ends of pipes.
type memoryListener struct {
	conns  chan net.Conn // dial sends, Accept receives; unbuffered: a dial that returns was accepted
	closed chan struct{}
	once   sync.Once
}

func newMemoryListener() *memoryListener {
	return &memoryListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *memoryListener) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "memory"} }

func (l *memoryListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-l.closed:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, fmt.Errorf("dial: %w", context.Cause(ctx))
	}
}
