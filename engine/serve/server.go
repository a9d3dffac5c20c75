package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/chat"
	"github.com/rouse-dev/rouse/engine/sample"
	"github.com/rouse-dev/rouse/internal/inbound"
)

// Server serves one engine. It is safe for many goroutines, and starts none.
type Server struct {
	cfg        Config
	engine     *engine.Engine
	template   *chat.Template
	guard      func(string) string // makes special tokens in a client's text plain
	metrics    *metrics
	grammars   *grammars
	toolFormat *toolFormat
	thoughts   *thoughts // nil: no reasoning
	stops      []string  // marks of a turn's end that are no tokens
	created    int64
	door       *inbound.Door
	long       *turns // for long texts that are only tokenized
	about      *about // nil: not from a file
	mark       string // of the model, for resumed streams
	log        *slog.Logger
	handler    http.Handler
	logDamaged func()
}

// NewServer returns a server of an engine, whose Run may start later.
func NewServer(e *engine.Engine, t *chat.Template, cfg Config) *Server {
	cfg = cfg.withDefaults()
	atOnce := e.Seats()
	if cfg.MaxAdapters > 0 {
		atOnce = min(atOnce, cfg.MaxAdapters)
	}
	s := &Server{
		cfg: cfg, engine: e, template: t, guard: e.Tokenizer().Guard, metrics: newMetrics(e.Stats, metricsConfig{model: cfg.Names[0], blockSize: e.BlockSize(), prefix: !cfg.NoPrefix && !e.Model().Stateful(), atOnce: atOnce}),
		created: time.Now().Unix(), log: cfg.Log, door: inbound.New(inbound.Config{MaxBody: cfg.MaxBody}), grammars: newGrammars(e.Tokenizer()), long: newTurns(),
		toolFormat: newToolFormat(cfg.ToolParser, t.Source(), e.Tokenizer(), newHarmony(t.Source(), e.Tokenizer())),
	}
	s.thoughts = newThoughts(t.Source(), e.Tokenizer())
	if t.Source() == chat.ChatML && !slices.Contains(e.Tokenizer().Ends(), "<|im_end|>") { // not a chat model
		s.stops = []string{"<|im_end|>", "<|im_start|>"}
	}
	s.logDamaged = sync.OnceFunc(func() { s.log.Error("the model is damaged: its output is not a number", "model", cfg.Model) })
	s.handler = s.routes()
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// handler may return an error if it has written nothing.
type handler func(w http.ResponseWriter, r *http.Request) error

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	methods := map[string]string{}
	for _, route := range []struct {
		method, path string
		handler      handler
	}{
		{"POST", "/v1/chat/completions", s.chatCompletions},
		{"POST", "/v1/completions", s.completions},
		{"POST", "/v1/embeddings", s.embeddings},
		{"POST", "/v1/score", s.score},
		{"POST", "/score", s.score},
		{"POST", "/v1/rerank", s.rerank},
		{"POST", "/v2/rerank", s.rerank},
		{"POST", "/rerank", s.rerank},
		{"POST", "/v1/load_lora_adapter", s.loadAdapter},
		{"POST", "/v1/unload_lora_adapter", s.unloadAdapter},
		{"GET", "/v1/models", s.models},
		{"GET", "/v1/models/{id...}", s.model},
		{"POST", "/api/show", s.show},
		{"POST", "/tokenize", s.tokenize},
		{"POST", "/detokenize", s.detokenize},
		{"GET", "/tokenizer_info", s.tokenizerInfo},
		{"GET", "/health", s.health},
		{"GET", "/ping", s.health},
		{"GET", "/version", s.version},
		{"GET", "/load", s.load},
		{"POST", "/sleep", s.sleep},
		{"POST", "/wake_up", s.wakeUp},
		{"GET", "/is_sleeping", s.isSleeping},
	} {
		mux.Handle(route.method+" "+route.path, s.wrap(route.handler))
		methods[route.path] = route.method
	}
	mux.Handle("GET /metrics", s.metrics.handler())
	methods["/metrics"] = "GET"
	mux.Handle("/", s.wrap(func(w http.ResponseWriter, r *http.Request) error { return notThere(w, r, methods) }))
	return mux
}

func (s *Server) wrap(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id := r.Header.Get("X-Request-Id"); id != "" {
			w.Header().Set("X-Request-Id", id)
		}
		err := h(w, r)
		if err == nil {
			return
		}
		known := toError(err)
		switch {
		case errors.Is(err, sample.ErrDamaged):
			s.logDamaged()
		case known.Status >= http.StatusInternalServerError && !errors.Is(err, engine.ErrAsleep):
			s.log.Warn("request failed", "method", r.Method, "path", r.URL.Path, "status", known.Status, "error", err)
		}
		if errors.Is(err, context.Canceled) && r.Context().Err() != nil && w.Header()[usageHeader] == nil {
			w.WriteHeader(known.Status) // it left, or closed only its sending side
			return
		}
		writeError(w, known)
	})
}

func notThere(w http.ResponseWriter, r *http.Request, methods map[string]string) error {
	if m := methods[r.URL.Path]; m != "" {
		w.Header().Set("Allow", m)
		return errorf(http.StatusMethodNotAllowed, "", "%s %s: want %s", r.Method, quote(r.URL.Path), m)
	}
	return errorf(http.StatusNotFound, codeUnknownPath, "there is nothing at %s", quote(r.URL.Path))
}

// modelName accepts a name of the model, an adapter, or "".
func (s *Server) modelName(name string) (model, adapter string, err error) {
	if name == "" {
		return s.cfg.Names[0], "", nil
	}
	if slices.Contains(s.cfg.Names, name) {
		return name, "", nil
	}
	for _, a := range s.engine.Adapters() {
		if a.Name == name {
			return name, name, nil
		}
	}
	// Not every client may know the adapters.
	e := errorf(http.StatusNotFound, codeModelNotFound, "the model %s does not exist here: GET /v1/models lists what does", quote(name))
	e.Param = "model"
	return "", "", e
}

const (
	// tenantHeader is set by the proxy in front.
	tenantHeader = "X-Rouse-Tenant"
	// usageHeader tells it the tokens of the prompt, the cached and the generated ones of a request that failed or was
	// left.
	usageHeader = "X-Rouse-Usage"
)

func (u usage) tell(w http.ResponseWriter) {
	w.Header().Set(usageHeader, fmt.Sprint(u.prompt, u.cached, u.completion))
}

func tenant(r *http.Request) string { return r.Header.Get(tenantHeader) }
