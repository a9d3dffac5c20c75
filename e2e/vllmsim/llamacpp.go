package vllmsim

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/rouse-dev/rouse/e2e/vllmsim/words"
)

// llamaKind is the type that llama-server gives an error.
func llamaKind(status int) string {
	switch status {
	case http.StatusBadRequest:
		return "invalid_request_error"
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusNotImplemented:
		return "not_supported_error"
	case http.StatusServiceUnavailable:
		return "unavailable_error"
	}
	return "server_error"
}

// llamaRoutes are llama-server's.
func (s *Server) llamaRoutes(mux router) {
	for path, h := range map[string]func(http.ResponseWriter, *http.Request, injected){
		"/v1/chat/completions": s.chat, "/chat/completions": s.chat, "/v1/completions": s.completions, "/v1/embeddings": s.embeddings, "/embeddings": s.embeddings,
		"/v1/rerank": s.rerank, "/rerank": s.rerank, "/v1/messages": s.messages, "/v1/responses": s.responses, "/completion": s.completionNative, "/completions": s.completionNative,
	} {
		mux.HandleFunc("POST "+path, s.generating(h))
	}
	mux.HandleFunc("GET /v1/models", s.models)
	mux.HandleFunc("GET /models", s.models)
	ok := func(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, map[string]any{"status": "ok"}) }
	mux.HandleFunc("GET /health", ok)
	mux.HandleFunc("GET /v1/health", ok)
	mux.HandleFunc("GET /props", func(w http.ResponseWriter, _ *http.Request) {
		write(w, http.StatusOK, map[string]any{"total_slots": s.cfg.MaxSeqs, "model_path": s.cfg.Model, "model_alias": s.cfg.Names[0], "chat_template": "",
			"default_generation_settings": map[string]any{"n_ctx": s.cfg.MaxModelLen}, "build_info": "b0-vllmsim"})
	})
	mux.HandleFunc("GET /slots", s.slots)
	mux.HandleFunc("GET /lora-adapters", s.scales)
	mux.HandleFunc("POST /lora-adapters", s.setScales)
	mux.HandleFunc("POST /tokenize", s.llamaTokenize)
	mux.HandleFunc("POST /detokenize", func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Tokens []words.Token `json:"tokens"`
		}
		if err := read(r, &body); err != nil {
			s.fail(w, err)
			return
		}
		write(w, http.StatusOK, map[string]any{"content": words.Decode(body.Tokens)})
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if !s.cfg.Metrics {
			s.fail(w, &failure{status: http.StatusNotImplemented, message: "This server does not support metrics endpoint. Start it with `--metrics`"})
			return
		}
		s.metrics.handler().ServeHTTP(w, r)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		s.fail(w, &failure{status: http.StatusNotFound, message: "File Not Found"})
	})
}

// slots lists what each slot does.
func (s *Server) slots(w http.ResponseWriter, r *http.Request) {
	if !s.cfg.Slots {
		s.fail(w, &failure{status: http.StatusNotImplemented, message: "This server does not support slots endpoint. Start it with `--slots`"})
		return
	}
	s.engine.mu.Lock()
	all := s.engine.batch.All()
	slots := make([]any, 0, s.cfg.MaxSeqs)
	idle := s.cfg.MaxSeqs
	for i := range s.cfg.MaxSeqs {
		slot := map[string]any{"id": i, "n_ctx": s.cfg.MaxModelLen, "is_processing": false}
		if i < len(all) && all[i].Running() {
			slot["is_processing"] = true
			slot["next_token"] = []any{map[string]any{"n_decoded": all[i].Generated}}
			if !s.cfg.OldMetrics {
				slot["n_prompt_tokens"] = all[i].Prompt + all[i].Generated // what the slot holds
			}
			idle--
		}
		slots = append(slots, slot)
	}
	s.engine.mu.Unlock()
	if idle == 0 && r.URL.Query().Get("fail_on_no_slot") != "" {
		s.fail(w, &failure{status: http.StatusServiceUnavailable, message: "no slot available"})
		return
	}
	write(w, http.StatusOK, slots)
}

// scales lists the adapters that were given at the start; there is no way to add one later.
func (s *Server) scales(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []any{}
	for i, a := range s.adapters {
		scale := 0.0
		if i == s.scaled-1 {
			scale = 1
		}
		list = append(list, map[string]any{"id": i, "path": a.Path, "scale": scale})
	}
	write(w, http.StatusOK, list)
}

// setScales makes the adapter with the greatest scale speak, for every request.
func (s *Server) setScales(w http.ResponseWriter, r *http.Request) {
	var body []scale
	if err := read(r, &body); err != nil {
		s.fail(w, err)
		return
	}
	s.mu.Lock()
	scaled, err := s.loudest(body)
	if err == nil {
		s.scaled = scaled
	}
	s.mu.Unlock()
	if err != nil {
		s.fail(w, err)
		return
	}
	write(w, http.StatusOK, map[string]any{"success": true})
}

// scale is how much of an adapter is applied.
type scale struct {
	ID    int     `json:"id"`
	Scale float64 `json:"scale"`
}

// loudest is the adapter with the greatest scale, counted from 1; 0 for none. s.mu is held.
func (s *Server) loudest(scales []scale) (int, error) {
	loudest, best := 0, 0.0
	for _, one := range scales {
		if one.ID < 0 || one.ID >= len(s.adapters) {
			return 0, bad("lora", "invalid adapter id %d", one.ID)
		}
		if one.Scale > best {
			loudest, best = one.ID+1, one.Scale
		}
	}
	return loudest, nil
}

// scaledAdapter is the adapter that a request's own scales choose.
func (s *Server) scaledAdapter(scales []scale) (Adapter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, err := s.loudest(scales)
	if err != nil || i == 0 {
		return Adapter{}, err
	}
	return s.adapters[i-1], nil
}

func (s *Server) llamaTokenize(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Content string `json:"content"`
	}
	if err := read(r, &body); err != nil {
		s.fail(w, err)
		return
	}
	write(w, http.StatusOK, map[string]any{"tokens": words.Encode(body.Content)})
}

// completionNative answers /completion, llama-server's own API.
func (s *Server) completionNative(w http.ResponseWriter, r *http.Request, ill injected) {
	var body struct {
		Prompt      json.RawMessage `json:"prompt"`
		Max         *int            `json:"n_predict"`
		Stream      bool            `json:"stream"`
		Temperature *float64        `json:"temperature"`
		Seed        *int64          `json:"seed"`
		Stop        json.RawMessage `json:"stop"`
	}
	err := read(r, &body)
	var a ask
	if err == nil {
		if body.Max != nil && *body.Max < 0 {
			body.Max = nil
		}
		a, err = sampling{MaxTokens: body.Max, Temperature: body.Temperature, Seed: body.Seed, Stop: body.Stop, Stream: body.Stream}.ask(s.cfg.Surface)
	}
	if err == nil {
		a.prompts, err = prompts(body.Prompt)
	}
	var j *job
	var cancel func()
	if err == nil {
		j, cancel, err = s.submitFirst(&a, ill)
	}
	if err != nil {
		s.fail(w, err)
		return
	}
	defer cancel()
	s.llamaCompletion(w, r, &a, j, ill)
}

func (s *Server) llamaCompletion(w http.ResponseWriter, r *http.Request, a *ask, j *job, ill injected) {
	ev, text, sent := s.events(w, ill), "", 0
	for p := range s.follow(r, []*job{j}) {
		if p.err != nil {
			if ev.started {
				ev.stop(p.err)
			} else {
				s.fail(w, p.err)
			}
			return
		}
		for ; a.stream && sent < len(p.tokens); sent++ {
			now := j.shown(a, p.tokens[:sent+1], p.over && sent+1 == len(p.tokens))
			delta := now[min(len(text), len(now)):]
			text = now
			if err := ev.send("", map[string]any{"index": 0, "content": delta, "stop": false}); err != nil {
				return
			}
			if err := ev.sent(r); err != nil {
				return
			}
		}
		if !p.over {
			continue
		}
		last := map[string]any{"index": 0, "content": "", "stop": true, "model": a.name, "tokens_predicted": len(p.tokens), "tokens_evaluated": j.seq.Prompt,
			"stop_type": map[string]string{"stop": "eos", "length": "limit", "abort": "none"}[j.reason], "stopping_word": j.stopped,
			"timings": s.engine.timings(j)}
		if a.stream {
			_ = ev.send("", last) // the client has left
			return
		}
		if err := s.delay(r, ill, len(p.tokens)); err != nil {
			panic(http.ErrAbortHandler)
		}
		last["content"] = j.shown(a, p.tokens, true)
		write(w, http.StatusOK, last)
	}
}

// rayRoutes are those of an application on Ray Serve that has one OpenAI endpoint.
func (s *Server) rayRoutes(mux router) {
	mux.HandleFunc("POST /v1/chat/completions", s.generating(s.chat))
	mux.HandleFunc("GET /-/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("success")) })
	mux.HandleFunc("GET /-/routes", func(w http.ResponseWriter, _ *http.Request) {
		write(w, http.StatusOK, map[string]any{"/": "default"})
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "Path "+strconv.Quote(r.URL.Path)+" not found. Please ping http://.../-/routes for route table.", http.StatusNotFound)
	})
}

// timings say how long a job took, as llama-server does in every whole answer.
func (e *engine) timings(j *job) map[string]any {
	e.mu.Lock()
	defer e.mu.Unlock()
	millis := func(from, to time.Time) float64 { return max(0, float64(to.Sub(from).Microseconds())/1000) }
	return map[string]any{
		"prompt_n": j.seq.Prompt - j.seq.Cached, "prompt_ms": millis(j.begun, j.first),
		"predicted_n": j.seq.Generated, "predicted_ms": millis(j.first, j.last),
	}
}
