package serve_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/chat"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/engine/serve"
)

// reader takes an answer and keeps its status only, or its first bytes.
type reader struct {
	header http.Header
	status int
	size   int
	most   int // bytes in one write
	head   []byte
}

func (r *reader) Header() http.Header    { return r.header }
func (r *reader) WriteHeader(status int) { r.status = status }
func (r *reader) Write(data []byte) (int, error) {
	r.size += len(data)
	r.most = max(r.most, len(data))
	if len(r.head) < 300 {
		r.head = append(r.head, data[:min(len(data), 300)]...)
	}
	return len(data), nil
}

// face returns a server whose model has a context of 256 tokens.
func face(t *testing.T) (*serve.Server, *parrot) {
	t.Helper()
	p := newParrot(t)
	e, err := infertest.Engine(p, p.tok, engine.Config{Seats: 4})
	if err != nil {
		t.Fatal(err)
	}
	template, err := chat.New("", "", "")
	if err != nil {
		t.Fatal(err)
	}
	return serve.NewServer(e, template, serve.Config{Model: "parrot.gguf"}), p
}

// measure sends a body, and returns the memory that the answer allocated.
func measure(t *testing.T, s http.Handler, path string, body io.Reader) (r *reader, allocated int) {
	t.Helper()
	r = &reader{header: http.Header{}, status: http.StatusOK}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s.ServeHTTP(r, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, body))
	runtime.ReadMemStats(&after)
	return r, int(after.TotalAlloc - before.TotalAlloc)
}

// TestLongAnswers checks that an answer that is much longer than its request is written in pieces, and its memory
// does not grow with it.
func TestLongAnswers(t *testing.T) {
	s, p := face(t)
	longest := 0
	for id := range p.tok.Size() {
		if len(p.tok.Piece(int32(id))) > len(p.tok.Piece(int32(longest))) {
			longest = id
		}
	}
	ids := strings.Repeat(fmt.Sprintf("%d,", longest), 1<<20)
	text := strings.Repeat("a", 1<<20)
	for _, test := range []struct {
		path, body string
		size       int // of the answer, at least
	}{
		{"/detokenize", `{"tokens":[` + strings.TrimSuffix(ids, ",") + `]}`, len(p.tok.Piece(int32(longest))) << 20},
		{"/tokenize", `{"prompt":"` + text + `","return_token_strs":true}`, 1 << 20},
	} {
		r, took := measure(t, s, test.path, strings.NewReader(test.body))
		if r.status != http.StatusOK || r.size < test.size {
			t.Fatalf("%s: %d with %d bytes, want 200 with at least %d: %s", test.path, r.status, r.size, test.size, r.head)
		}
		// the body while it grows, what is parsed, and the tokens
		if most := 8*len(test.body) + 24<<20; took > most || r.most > 1<<17 {
			t.Errorf("%s: %d bytes for a body of %d and an answer of %d in writes of %d, want at most %d", test.path, took, len(test.body), r.size, r.most, most)
		}
	}
}

// TestDetokenizePieces checks that a text written in pieces is complete, with any characters at their ends.
func TestDetokenizePieces(t *testing.T) {
	s, p := face(t)
	text := strings.Repeat("x漢\U0001f600é\"<\n ", 9000)
	for _, cut := range []int{0, 1, 2} {
		ids := p.tok.Encode(text, false)
		ids = ids[:len(ids)-cut]
		body, err := json.Marshal(map[string]any{"tokens": ids})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/detokenize", strings.NewReader(string(body))))
		var got struct{ Prompt string }
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if want := strings.ToValidUTF8(p.tok.Decode(ids), "\ufffd"); strings.ToValidUTF8(got.Prompt, "\ufffd") != want && !slices.Equal([]rune(got.Prompt), []rune(p.tok.Decode(ids))) {
			t.Errorf("without the last %d tokens: got %d bytes that end in %q, want %d that end in %q", cut, len(got.Prompt), got.Prompt[len(got.Prompt)-20:], len(want), want[len(want)-20:])
		}
	}
}

// TestManyValues checks that a body of many small values is refused before they are decoded.
func TestManyValues(t *testing.T) {
	s, _ := face(t)
	many := func(value string) string { return strings.Repeat(value+",", 16<<20/(len(value)+1)) + value }
	for path, body := range map[string]string{
		"/v1/chat/completions": `{"messages":[` + many("{}") + `]}`,
		"/v1/completions":      `{"prompt":[` + many("[]") + `]}`,
		"/v1/embeddings":       `{"input":["x"],"unknown":[` + many(`""`) + `]}`,
	} {
		r, took := measure(t, s, path, strings.NewReader(body))
		if r.status != http.StatusRequestEntityTooLarge || took > 4*len(body) {
			t.Errorf("%s: %d with %d bytes for a body of %d, want 413: %s", path, r.status, took, len(body), r.head)
		}
	}
}

// TestPromptOfTokens checks that many token ids take only a few times their final memory, and that refused ones are
// not decoded to a text first.
func TestPromptOfTokens(t *testing.T) {
	s, _ := face(t)
	ids := strings.TrimSuffix(strings.Repeat("65,", 4<<20), ",")
	for _, body := range []string{`{"prompt":[` + ids + `],"echo":true}`, `{"prompt":[[` + ids + `]],"n":128}`} {
		r, took := measure(t, s, "/v1/completions", strings.NewReader(body))
		if r.status != http.StatusBadRequest || took > 12*len(body) {
			t.Errorf("%d with %d bytes for a body of %d, want 400: %s", r.status, took, len(body), r.head)
		}
	}
}

// TestManyBiases checks that the list of biases is limited like the other lists.
func TestManyBiases(t *testing.T) {
	s, _ := face(t)
	var b strings.Builder
	for id := range 1025 {
		fmt.Fprintf(&b, `,"%d":1`, id)
	}
	r, _ := measure(t, s, "/v1/completions", strings.NewReader(`{"prompt":"a","logit_bias":{`+b.String()[1:]+`}}`))
	if want := "logit_bias"; r.status != http.StatusBadRequest || !strings.Contains(string(r.head), "1024") {
		t.Errorf("got %d %s, want 400 about %s", r.status, r.head, want)
	}
}
