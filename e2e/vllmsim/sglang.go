package vllmsim

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/e2e/vllmsim/words"
)

// sglangRoutes are SGLang's. Everything is open to everybody, as there.
func (s *Server) sglangRoutes(mux router) {
	for path, h := range map[string]func(http.ResponseWriter, *http.Request, injected){
		"/v1/chat/completions": s.chat, "/v1/completions": s.completions, "/v1/embeddings": s.embeddings, "/v1/rerank": s.rerank, "/generate": s.generateNative,
		"/v1/responses": s.responses, "/v1/messages": s.messages,
	} {
		mux.HandleFunc("POST "+path, s.generating(h))
	}
	mux.HandleFunc("GET /v1/models", s.models)
	mux.HandleFunc("GET /v1/models/{id...}", s.model)
	mux.HandleFunc("GET /health", s.probe)
	mux.HandleFunc("GET /health_generate", s.probe)
	mux.HandleFunc("GET /ping", s.health)
	info := func(w http.ResponseWriter, _ *http.Request) {
		write(w, http.StatusOK, map[string]any{"model_path": s.cfg.Model, "tokenizer_path": s.cfg.Model, "is_generation": true, "weight_version": "default"})
	}
	mux.HandleFunc("GET /get_model_info", info)
	mux.HandleFunc("GET /model_info", info)
	mux.HandleFunc("GET /get_server_info", s.serverInfo)
	mux.HandleFunc("GET /server_info", s.serverInfo)
	mux.HandleFunc("/flush_cache", s.flushCache)
	mux.HandleFunc("/release_memory_occupation", s.releaseMemory)
	mux.HandleFunc("/resume_memory_occupation", s.resumeMemory)
	mux.HandleFunc("POST /update_weights_from_disk", func(w http.ResponseWriter, r *http.Request) {
		if err := s.reload(r.Context()); err != nil {
			s.fail(w, err)
			return
		}
		write(w, http.StatusOK, map[string]any{"success": true, "message": "Succeeded to update model weights.", "num_paused_requests": 0})
	})
	mux.HandleFunc("POST /pause_generation", s.pauseGeneration)
	mux.HandleFunc("POST /continue_generation", func(w http.ResponseWriter, _ *http.Request) {
		s.engine.mu.Lock()
		s.engine.pause = unpaused
		s.engine.mu.Unlock()
		s.engine.poke()
		write(w, http.StatusOK, map[string]any{"message": "Generation continued successfully.", "status": "ok"})
	})
	if s.cfg.LoRA {
		mux.HandleFunc("POST /load_lora_adapter", s.sglangLoRA)
		mux.HandleFunc("POST /unload_lora_adapter", s.sglangLoRA)
	}
	if s.cfg.Metrics {
		mux.Handle("GET /metrics", s.metrics.handler())
	}
}

func (s *Server) serverInfo(w http.ResponseWriter, _ *http.Request) {
	write(w, http.StatusOK, map[string]any{
		"model_path": s.cfg.Model, "served_model_name": s.cfg.Names[0], "enable_memory_saver": s.cfg.Sleep,
		"enable_weights_cpu_backup": s.cfg.WeightsBackup, "version": "0.5.9",
		"internal_states": []any{map[string]any{"model_path": s.cfg.Model}},
	})
}

// probe generates one token, which is what SGLang calls health.
func (s *Server) probe(w http.ResponseWriter, r *http.Request) {
	a := ask{n: 1, max: 1, logprobs: -1, prompts: [][]words.Token{words.Encode("a")}}
	jobs, err := s.jobs(&a, injectedOf(nil))
	if err == nil {
		var cancel func()
		if cancel, err = s.submit(jobs); err == nil {
			defer cancel()
		}
	}
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	// The patience of SGLang's own probe.
	ctx, cancel := context.WithTimeout(r.Context(), 20*time.Second)
	defer cancel()
	for p := range s.follow(r.WithContext(ctx), jobs) {
		if p.err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
	}
	if ctx.Err() != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusOK)
}

func (s *Server) flushCache(w http.ResponseWriter, _ *http.Request) {
	s.engine.mu.Lock()
	flushed := s.engine.batch.Reset()
	s.engine.mu.Unlock()
	if !flushed {
		http.Error(w, "Flush cache failed.", http.StatusBadRequest)
		return
	}
	fmt.Fprintln(w, "Cache flushed.\nPlease check backend logs for more details. (When there are running or waiting requests, the operation will not be performed.)")
}

// tags reads {"tags":[…]}; none means all.
func (s *Server) tags(r *http.Request) ([]string, error) {
	var body struct {
		Tags []string `json:"tags"`
	}
	if r.ContentLength != 0 {
		if err := read(r, &body); err != nil {
			return nil, err
		}
	}
	known := []string{tagWeights, tagKV}
	if s.cfg.GraphsSaved {
		known = append(known, tagGraphs)
	}
	if len(body.Tags) == 0 {
		return known, nil
	}
	return slices.DeleteFunc(body.Tags, func(t string) bool { return !slices.Contains(known, t) }), nil
}

// releaseMemory asserts that nothing runs or waits: else the scheduler dies, and the server with it.
func (s *Server) releaseMemory(w http.ResponseWriter, r *http.Request) {
	released, err := s.tags(r)
	if err != nil {
		s.fail(w, err)
		return
	}
	e, ctx := s.engine, s.outlive(r.Context())
	if err := e.begin(ctx); err != nil {
		s.fail(w, err)
		return
	}
	defer e.finish()
	if _, hang := s.Faults.happens("hang-sleep"); hang {
		s.fail(w, forever(ctx, e))
		return
	}
	if _, fail := s.Faults.happens("fail-sleep"); fail {
		s.fail(w, fmt.Errorf("release_memory_occupation: a fault as told"))
		return
	}
	e.mu.Lock()
	busy := len(e.jobs) > 0
	if busy {
		e.die("AssertionError: release_memory_occupation should be called only when server is idle.")
	}
	e.batch.Reset()
	e.mu.Unlock()
	if busy {
		s.fail(w, errDead)
		return
	}
	level := 2
	if s.cfg.WeightsBackup {
		level = 1
	}
	s.done(w, s.release(ctx, level, released))
}

func (s *Server) resumeMemory(w http.ResponseWriter, r *http.Request) {
	back, err := s.tags(r)
	if err != nil {
		s.fail(w, err)
		return
	}
	s.engine.mu.Lock()
	sleeping := s.sleepingTags()
	s.engine.mu.Unlock()
	back = slices.DeleteFunc(back, func(t string) bool { return !slices.Contains(sleeping, t) })
	if len(back) == 0 {
		w.WriteHeader(http.StatusOK)
		return
	}
	s.done(w, s.wake(r.Context(), back))
}

func (s *Server) pauseGeneration(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Mode string `json:"mode"`
	}
	if r.ContentLength != 0 {
		if err := read(r, &body); err != nil {
			s.fail(w, err)
			return
		}
	}
	mode := map[string]string{"": "abort", "abort": "abort", "retract": "keep", "in_place": "keep"}[body.Mode]
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
	write(w, http.StatusOK, map[string]any{"message": "Generation paused successfully.", "status": "ok"})
}

// sglangLoRA loads or unloads an adapter and answers in SGLang's way.
func (s *Server) sglangLoRA(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Name string `json:"lora_name"`
		Path string `json:"lora_path"`
	}
	if err := read(r, &body); err != nil {
		s.fail(w, err)
		return
	}
	failed := ""
	if r.URL.Path == "/unload_lora_adapter" {
		if !s.forget(body.Name) {
			failed = fmt.Sprintf("LoRA adapter %s is not loaded.", body.Name)
		}
	} else {
		s.mu.Lock()
		switch {
		case body.Name == "" || !present(body.Path):
			failed = fmt.Sprintf("Failed to load LoRA adapter %s from %s: no adapter found.", body.Name, body.Path)
		case slices.ContainsFunc(s.adapters, func(a Adapter) bool { return a.Name == body.Name }):
			failed = fmt.Sprintf("LoRA adapter %s is already loaded.", body.Name)
		default:
			s.adapters = append(s.adapters, Adapter{Name: body.Name, Path: body.Path})
		}
		s.mu.Unlock()
	}
	loaded := map[string]string{}
	s.mu.Lock()
	for _, a := range s.adapters {
		loaded[a.Name] = a.Path
	}
	s.mu.Unlock()
	status := http.StatusOK
	if failed != "" {
		status = http.StatusBadRequest
	}
	write(w, status, map[string]any{"success": failed == "", "error_message": failed, "loaded_adapters": loaded})
}

// generateNative answers /generate, SGLang's own API.
func (s *Server) generateNative(w http.ResponseWriter, r *http.Request, ill injected) {
	var body struct {
		Text     json.RawMessage `json:"text"`
		Input    json.RawMessage `json:"input_ids"`
		Stream   bool            `json:"stream"`
		LoRAPath string          `json:"lora_path"`
		Params   struct {
			Max         *int            `json:"max_new_tokens"`
			Min         int             `json:"min_new_tokens"`
			Temperature *float64        `json:"temperature"`
			Stop        json.RawMessage `json:"stop"`
			IgnoreEOS   bool            `json:"ignore_eos"`
		} `json:"sampling_params"`
	}
	if err := read(r, &body); err != nil {
		s.fail(w, err)
		return
	}
	if body.Params.Max == nil {
		body.Params.Max = new(int)
		*body.Params.Max = 128
	}
	p := sampling{LoRAPath: body.LoRAPath, MaxTokens: body.Params.Max, MinTokens: body.Params.Min, Temperature: body.Params.Temperature, Stop: body.Params.Stop, IgnoreEOS: body.Params.IgnoreEOS, Stream: body.Stream}
	a, err := p.ask(s.cfg.Surface)
	if err == nil {
		if len(body.Text) == 0 {
			body.Text = body.Input
		}
		a.prompts, err = prompts(body.Text)
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
	s.native(w, r, &a, j, ill)
}

// native sends what /generate answers: events hold the whole text so far.
func (s *Server) native(w http.ResponseWriter, r *http.Request, a *ask, j *job, ill injected) {
	id, ev, sent := s.id(r, ""), s.events(w, ill), 0
	body := func(tokens []words.Token, over bool) map[string]any {
		var reason any
		if over {
			reason = map[string]any{"type": j.reason}
		}
		return map[string]any{"text": j.shown(a, tokens, over), "output_ids": tokens, "meta_info": map[string]any{
			"id": id, "finish_reason": reason, "prompt_tokens": j.seq.Prompt, "completion_tokens": len(tokens), "cached_tokens": j.seq.Cached, "weight_version": "default"}}
	}
	for p := range s.follow(r, []*job{j}) {
		if p.err != nil {
			if ev.started {
				ev.stop(p.err)
			} else {
				s.fail(w, p.err)
			}
			return
		}
		if a.stream {
			for ; sent < len(p.tokens); sent++ {
				if err := ev.send("", body(p.tokens[:sent+1], p.over && sent+1 == len(p.tokens))); err != nil {
					return
				}
				if err := ev.sent(r); err != nil {
					return
				}
			}
		}
		if p.over && !a.stream {
			if err := s.delay(r, ill, len(p.tokens)); err != nil {
				panic(http.ErrAbortHandler)
			}
			write(w, http.StatusOK, body(p.tokens, true))
		}
	}
	if a.stream && r.Context().Err() == nil {
		_ = ev.raw("data: [DONE]\n\n") // the client has left
	}
}
