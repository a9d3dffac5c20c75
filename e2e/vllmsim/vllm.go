package vllmsim

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// router takes routes.
type router interface {
	Handle(pattern string, h http.Handler)
	HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request))
}

// surface is the routes of the server that is simulated.
func (s *Server) surface() http.Handler {
	mux := http.NewServeMux()
	switch s.cfg.Surface {
	case SGLang:
		s.sglangRoutes(mux)
	case LlamaCpp:
		s.llamaRoutes(mux)
	case RayServe:
		s.rayRoutes(mux)
	case VLLM:
		s.vllmRoutes(mux)
	}
	if s.cfg.DevMode {
		mux.HandleFunc("/vllmsim/faults", s.faults)
		mux.HandleFunc("GET /vllmsim/state", s.state)
	}
	if s.cfg.Surface == LlamaCpp || s.cfg.Surface == RayServe {
		return mux
	}
	// FastAPI's words for what is not there.
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, pattern := mux.Handler(r)
		if pattern == "" {
			probe := *r
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				probe.Method = method
				if _, other := mux.Handler(&probe); other != "" {
					write(w, http.StatusMethodNotAllowed, map[string]any{"detail": "Method Not Allowed"})
					return
				}
			}
			write(w, http.StatusNotFound, map[string]any{"detail": "Not Found"})
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func (s *Server) vllmRoutes(mux router) {
	for path, h := range map[string]func(http.ResponseWriter, *http.Request, injected){
		"/v1/chat/completions": s.chat, "/v1/completions": s.completions, "/v1/responses": s.responses, "/v1/messages": s.messages,
		"/v1/embeddings": s.embeddings, "/v1/score": s.score, "/score": s.score, "/v1/rerank": s.rerank, "/v2/rerank": s.rerank, "/rerank": s.rerank,
	} {
		mux.HandleFunc("POST "+path, s.generating(h))
	}
	mux.HandleFunc("POST /v1/messages/count_tokens", s.countTokens)
	mux.HandleFunc("POST /tokenize", s.tokenize)
	mux.HandleFunc("POST /detokenize", s.detokenize)
	mux.HandleFunc("GET /v1/models", s.models)
	mux.HandleFunc("GET /health", s.health)
	mux.HandleFunc("GET /ping", s.health)
	mux.HandleFunc("POST /ping", s.health)
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		write(w, http.StatusOK, map[string]any{"version": Version})
	})
	mux.HandleFunc("GET /load", func(w http.ResponseWriter, _ *http.Request) {
		write(w, http.StatusOK, map[string]any{"server_load": max(0, s.serving.Load()-1)})
	})
	mux.Handle("GET /metrics", s.metrics.handler())
	mux.HandleFunc("POST /pause", s.pauseCall)
	mux.HandleFunc("POST /resume", func(w http.ResponseWriter, _ *http.Request) {
		s.engine.mu.Lock()
		s.engine.pause = unpaused
		s.engine.mu.Unlock()
		s.engine.poke()
		write(w, http.StatusOK, map[string]any{"status": "resumed"})
	})
	mux.HandleFunc("GET /is_paused", func(w http.ResponseWriter, _ *http.Request) {
		s.engine.mu.Lock()
		defer s.engine.mu.Unlock()
		write(w, http.StatusOK, map[string]any{"is_paused": s.engine.pause != unpaused})
	})
	if s.cfg.LoRA && s.cfg.RuntimeLoRA {
		mux.HandleFunc("POST /v1/load_lora_adapter", s.loadLoRA)
		mux.HandleFunc("POST /v1/unload_lora_adapter", s.unloadLoRA)
	}
	if s.cfg.DevMode {
		s.devRoutes(mux)
	}
}

// devRoutes are there with VLLM_SERVER_DEV_MODE=1 alone.
func (s *Server) devRoutes(mux router) {
	mux.HandleFunc("POST /sleep", func(w http.ResponseWriter, r *http.Request) {
		level, err := query(r, "level", 1)
		mode := r.URL.Query().Get("mode")
		if mode == "" {
			mode = "abort"
		}
		if err == nil {
			err = s.sleep(r.Context(), level, mode)
		}
		s.done(w, err)
	})
	mux.HandleFunc("POST /wake_up", func(w http.ResponseWriter, r *http.Request) {
		tags := r.URL.Query()["tags"]
		logf(s.cfg.Log, "INFO", "api_router.py:43", "wake up the engine with tags: %v", tags)
		s.done(w, s.wake(r.Context(), tags))
	})
	mux.HandleFunc("GET /is_sleeping", func(w http.ResponseWriter, _ *http.Request) {
		write(w, http.StatusOK, map[string]any{"is_sleeping": s.engine.sleeping()})
	})
	mux.HandleFunc("POST /collective_rpc", s.collectiveRPC)
	mux.HandleFunc("POST /reset_prefix_cache", func(w http.ResponseWriter, r *http.Request) {
		s.engine.mu.Lock()
		reset := s.engine.batch.Reset()
		if truth(r.URL.Query().Get("reset_external")) {
			s.engine.forgetOffloaded()
		}
		s.engine.mu.Unlock()
		if !reset {
			logf(s.cfg.Log, "WARNING", "block_pool.py:378", "Failed to reset prefix cache because some blocks are not freed yet")
		}
		write(w, http.StatusOK, map[string]any{"success": reset})
	})
	for _, path := range []string{"POST /reset_mm_cache", "POST /reset_encoder_cache"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	}
	mux.HandleFunc("GET /server_info", func(w http.ResponseWriter, _ *http.Request) {
		write(w, http.StatusOK, map[string]any{"vllm_config": fmt.Sprintf("model='%s', served_model_name=%s, max_seq_len=%d", s.cfg.Model, s.cfg.Names[0], s.cfg.MaxModelLen)})
	})
}

// done answers an administrative call: 200 without a body, or the error.
func (s *Server) done(w http.ResponseWriter, err error) {
	if err != nil {
		s.fail(w, err)
		return
	}
	w.WriteHeader(http.StatusOK)
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	s.engine.mu.Lock()
	dead := s.engine.dead
	s.engine.mu.Unlock()
	if dead {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusOK)
}

// card describes a model. parent is null for a base model.
func (s *Server) card(id, root string, parent any) map[string]any {
	c := map[string]any{"id": id, "object": "model", "created": s.begun.Unix(), "owned_by": string(s.cfg.Surface)}
	if s.cfg.Surface == LlamaCpp {
		return c
	}
	c["root"], c["parent"] = root, parent
	if parent == nil || s.cfg.Surface == SGLang {
		c["max_model_len"] = s.cfg.MaxModelLen
	} else {
		c["max_model_len"] = nil
	}
	return c
}

func (s *Server) cards() []any {
	var all []any
	for _, name := range s.cfg.Names {
		all = append(all, s.card(name, s.cfg.Model, nil))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.adapters {
		all = append(all, s.card(a.Name, a.Path, s.cfg.Names[0]))
	}
	return all
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	write(w, http.StatusOK, map[string]any{"object": "list", "data": s.cards()})
}

// model answers for one name. SGLang has such a path; vLLM has none.
func (s *Server) model(w http.ResponseWriter, r *http.Request) {
	for _, c := range s.cards() {
		if card, is := c.(map[string]any); is && card["id"] == r.PathValue("id") {
			write(w, http.StatusOK, card)
			return
		}
	}
	s.fail(w, &failure{status: http.StatusNotFound, kind: "NotFoundError", message: fmt.Sprintf("The model `%s` does not exist.", r.PathValue("id")), param: "model"})
}

func (s *Server) pauseCall(w http.ResponseWriter, r *http.Request) {
	mode := r.URL.Query().Get("mode")
	if mode == "" {
		mode = "abort"
	}
	ctx := s.outlive(r.Context())
	if err := s.engine.begin(ctx); err != nil {
		s.fail(w, err)
		return
	}
	defer s.engine.finish()
	if err := s.engine.halt(ctx, mode); err != nil {
		s.fail(w, bad("mode", "%v", err))
		return
	}
	if r.URL.Query().Get("clear_cache") != "false" {
		s.engine.mu.Lock()
		s.engine.batch.Reset()
		s.engine.mu.Unlock()
	}
	write(w, http.StatusOK, map[string]any{"status": "paused"})
}

// collectiveRPC knows reload_weights.
func (s *Server) collectiveRPC(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Method string `json:"method"`
	}
	if err := read(r, &body); err != nil {
		s.fail(w, err)
		return
	}
	switch body.Method {
	case "":
		write(w, http.StatusBadRequest, map[string]any{"detail": "Missing 'method' in request body"})
	case "reload_weights":
		if err := s.reload(r.Context()); err != nil {
			s.fail(w, err)
			return
		}
		results := []any{}
		for range s.cfg.TensorParallel {
			results = append(results, nil)
		}
		write(w, http.StatusOK, map[string]any{"results": results})
	default:
		s.fail(w, said("Call to collective_rpc method failed: 'Worker' object has no attribute '%s'", body.Method))
	}
}

// loadLoRA loads an adapter; an absolute path must exist.
func (s *Server) loadLoRA(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Name    string `json:"lora_name"`
		Path    string `json:"lora_path"`
		InPlace bool   `json:"load_inplace"`
	}
	if err := read(r, &body); err != nil {
		s.fail(w, err)
		return
	}
	invalid := func(format string, args ...any) {
		s.fail(w, &failure{status: http.StatusBadRequest, kind: "InvalidUserInput", message: fmt.Sprintf(format, args...)})
	}
	if body.Name == "" || body.Path == "" {
		invalid("Both 'lora_name' and 'lora_path' must be provided.")
		return
	}
	if !present(body.Path) {
		s.fail(w, &failure{status: http.StatusNotFound, kind: "NotFoundError", message: fmt.Sprintf("Loading lora %s failed: No adapter found for %s", body.Name, body.Path)})
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.adapters, func(a Adapter) bool { return a.Name == body.Name })
	switch {
	case at >= 0 && !body.InPlace:
		invalid("The lora adapter '%s' has already been loaded. If you want to load the adapter in place, set 'load_inplace' to True.", body.Name)
		return
	case at >= 0:
		s.adapters[at] = Adapter{Name: body.Name, Path: body.Path}
	default:
		s.adapters = append(s.adapters, Adapter{Name: body.Name, Path: body.Path})
	}
	logf(s.cfg.Log, "INFO", "serving_models.py:180", "Loaded new LoRA adapter: name '%s', path '%s'", body.Name, body.Path)
	fmt.Fprintf(w, "Success: LoRA adapter '%s' added successfully.", body.Name)
}

// present says whether an adapter can be loaded from path: a folder, or the name of a repository.
func present(path string) bool {
	if !filepath.IsAbs(path) && !strings.HasPrefix(path, ".") {
		return strings.Count(path, "/") == 1
	}
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func (s *Server) unloadLoRA(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Name string `json:"lora_name"`
	}
	if err := read(r, &body); err != nil {
		s.fail(w, err)
		return
	}
	if body.Name == "" {
		s.fail(w, &failure{status: http.StatusBadRequest, kind: "InvalidUserInput", message: "'lora_name' needs to be provided to unload a LoRA adapter."})
		return
	}
	if !s.forget(body.Name) {
		s.fail(w, &failure{status: http.StatusNotFound, kind: "NotFoundError", message: fmt.Sprintf("The lora adapter '%s' cannot be found.", body.Name)})
		return
	}
	fmt.Fprintf(w, "Success: LoRA adapter '%s' removed successfully.", body.Name)
}

// forget takes an adapter away and says whether it was there.
func (s *Server) forget(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.adapters)
	s.adapters = slices.DeleteFunc(s.adapters, func(a Adapter) bool { return a.Name == name })
	return len(s.adapters) < n
}

// faults lets tests break the server: GET lists, POST {"faults":[…]} replaces, DELETE clears.
func (s *Server) faults(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Faults []string `json:"faults"`
	}
	switch r.Method {
	case http.MethodGet:
	case http.MethodPost, http.MethodDelete:
		if r.Method == http.MethodPost {
			if err := read(r, &body); err != nil {
				s.fail(w, err)
				return
			}
		}
		if err := s.Faults.Set(body.Faults...); err != nil {
			s.fail(w, bad("faults", "%v", err))
			return
		}
		s.engine.mu.Lock()
		s.engine.hung = slices.Contains(body.Faults, "hang-engine")
		s.engine.mu.Unlock()
		s.engine.poke()
	default:
		write(w, http.StatusMethodNotAllowed, map[string]any{"detail": "Method Not Allowed"})
		return
	}
	write(w, http.StatusOK, map[string]any{"faults": s.Faults.List()})
}

// state is what tests may want to know and no real server tells.
func (s *Server) state(w http.ResponseWriter, _ *http.Request) {
	held := s.memory.held()
	e := s.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	l, c := e.batch.Load(), e.batch.Counts()
	write(w, http.StatusOK, map[string]any{
		"asleep": s.sleepingTags(), "level": e.level, "paused": e.pause != unpaused, "garbage": e.garbage, "wakes": e.woken, "hung": e.hung,
		"device_bytes": held, "weights_bytes": s.weights, "kv_bytes": s.kv, "running": l.Running, "waiting": l.Waiting,
		"stale_hits": c.Stale, "preemptions": c.Preemptions, "seconds": time.Since(s.begun).Seconds(),
	})
}
