package vllmsim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
)

type simulated struct {
	host  string
	port  int
	flags func(*Command, flags)
	// patterns of net/http; admin exists in dev mode only
	routes, admin func(*Server) map[string]http.HandlerFunc
	// of paths that need no key
	open    func(path string) bool
	failure func(*failure) any
	metrics func(Config) metricNames
}

var servers = map[Surface]simulated{
	VLLM: {"", 8000, vllmFlags, vllmRoutes, vllmAdmin, func(p string) bool { return !strings.HasPrefix(p, "/v1") }, openAIFailure, vllmMetrics},
	SGLang: {"127.0.0.1", 30000, sglangFlags, sglangRoutes, nil,
		func(p string) bool { return strings.HasPrefix(p, "/health") || strings.HasPrefix(p, "/metrics") },
		func(f *failure) any {
			return object{"object": "error", "message": f.message, "type": f.kind, "param": f.paramOrNull(), "code": f.status}
		}, sglangMetrics},
	LlamaCpp: {"127.0.0.1", 8080, llamaFlags, llamaRoutes, nil,
		func(p string) bool { return strings.HasPrefix(p, "/health") || strings.HasPrefix(p, "/metrics") }, llamaFailure, llamaMetrics},
	RayServe: {"127.0.0.1", 8265, rayFlags, rayRoutes, nil, func(string) bool { return false }, openAIFailure, vllmMetrics},
}

func openAIFailure(f *failure) any {
	return object{"error": object{"message": f.message, "type": f.kind, "param": f.paramOrNull(), "code": f.status}}
}

func llamaFailure(f *failure) any {
	kind := map[int]string{
		http.StatusBadRequest: "invalid_request_error", http.StatusUnauthorized: "authentication_error", http.StatusNotFound: "not_found_error",
		http.StatusNotImplemented: "not_supported_error", http.StatusServiceUnavailable: "unavailable_error",
	}[f.status]
	return object{"error": object{"code": f.status, "message": f.message, "type": cmp.Or(kind, "server_error")}}
}

// Unknown paths get FastAPI's error.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range s.kind.routes(s) {
		mux.HandleFunc(pattern, h)
	}
	if s.cfg.DevMode && s.kind.admin != nil {
		for pattern, h := range s.kind.admin(s) {
			mux.HandleFunc(pattern, h)
		}
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		write(w, http.StatusNotFound, object{"detail": "Not Found"})
	})
	return mux
}

func vllmRoutes(s *Server) map[string]http.HandlerFunc {
	routes := map[string]http.HandlerFunc{
		"POST /v1/chat/completions": s.generating(chat), "POST /v1/completions": s.generating(completions),
		"POST /v1/responses": s.generating(responses), "POST /v1/messages": s.generating(messages),
		"POST /detokenize": s.detokenize, "GET /v1/models": s.models, "GET /health": s.health, "GET /metrics": s.metrics.handler().ServeHTTP,
	}
	if s.cfg.LoRA && s.cfg.RuntimeLoRA {
		routes["POST /v1/load_lora_adapter"], routes["POST /v1/unload_lora_adapter"] = s.vllmLoRA, s.vllmLoRA
	}
	return routes
}

func vllmAdmin(s *Server) map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"POST /sleep": func(w http.ResponseWriter, r *http.Request) {
			level, err := query(r, "level", 1)
			if err == nil {
				err = s.sleep(r.Context(), level, r.URL.Query().Get("mode"))
			}
			s.done(w, err)
		},
		"POST /wake_up": func(w http.ResponseWriter, r *http.Request) { s.done(w, s.wake(r.Context(), r.URL.Query()["tags"])) },
		"GET /is_sleeping": func(w http.ResponseWriter, _ *http.Request) {
			write(w, http.StatusOK, object{"is_sleeping": s.engine.sleeping()})
		},
		"POST /collective_rpc": s.collectiveRPC,
		"POST /reset_prefix_cache": func(w http.ResponseWriter, _ *http.Request) {
			write(w, http.StatusOK, object{"success": s.engine.resetCache()})
		},
	}
}

// Every key opens all routes.
func sglangRoutes(s *Server) map[string]http.HandlerFunc {
	routes := map[string]http.HandlerFunc{
		"POST /v1/chat/completions": s.generating(chat), "POST /v1/completions": s.generating(completions),
		"GET /v1/models": s.models, "GET /health": s.health,
		"GET /server_info": func(w http.ResponseWriter, _ *http.Request) {
			write(w, http.StatusOK, object{"model_path": s.cfg.Model, "served_model_name": s.cfg.Names[0], "enable_memory_saver": s.cfg.Sleep,
				"enable_weights_cpu_backup": s.cfg.WeightsBackup})
		},
		"POST /flush_cache": func(w http.ResponseWriter, _ *http.Request) {
			if !s.engine.resetCache() {
				http.Error(w, "Flush cache failed.", http.StatusBadRequest)
			}
		},
		"POST /release_memory_occupation": s.releaseMemory, "POST /resume_memory_occupation": s.resumeMemory,
		"POST /update_weights_from_disk": func(w http.ResponseWriter, r *http.Request) {
			if err := s.reload(r.Context()); err != nil {
				s.fail(w, err)
				return
			}
			write(w, http.StatusOK, object{"success": true, "message": "Succeeded to update model weights.", "num_paused_requests": 0})
		},
	}
	if s.cfg.LoRA {
		routes["POST /load_lora_adapter"], routes["POST /unload_lora_adapter"] = s.sglangLoRA, s.sglangLoRA
	}
	if s.cfg.Metrics {
		routes["GET /metrics"] = s.metrics.handler().ServeHTTP
	}
	return routes
}

func llamaRoutes(s *Server) map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"POST /v1/chat/completions": s.generating(chat), "POST /v1/completions": s.generating(completions), "POST /completion": s.generating(llamaCompletion),
		"GET /v1/models": s.models, "GET /health": s.health, "GET /slots": s.slots, "POST /lora-adapters": s.setScales,
		"GET /metrics": func(w http.ResponseWriter, r *http.Request) {
			if !s.cfg.Metrics {
				s.fail(w, &failure{status: http.StatusNotImplemented, message: "This server does not support metrics endpoint. Start it with `--metrics`"})
				return
			}
			s.metrics.handler().ServeHTTP(w, r)
		},
	}
}

// Ray's dashboard takes applications; each has one OpenAI endpoint.
func rayRoutes(s *Server) map[string]http.HandlerFunc {
	var there atomic.Value // an object
	there.Store(object{})
	return map[string]http.HandlerFunc{
		"POST /v1/chat/completions":    s.generating(chat),
		"GET /api/serve/applications/": func(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, there.Load()) },
		"PUT /api/serve/applications/": func(w http.ResponseWriter, r *http.Request) {
			var all struct {
				HTTP struct {
					Port int `json:"port"`
				} `json:"http_options"`
				Applications []object `json:"applications"`
			}
			apps := object{}
			_ = json.NewDecoder(r.Body).Decode(&all) // what is not understood declares nothing
			for _, app := range all.Applications {
				apps[app["name"].(string)] = object{"status": "RUNNING", "deployed_app_config": app}
			}
			if old := there.Swap(object{"controller_info": object{"node_id": "1"}, "applications": apps}); len(old.(object)) > 0 {
				return
			}
			l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", all.HTTP.Port))
			if s.done(w, err); err == nil {
				go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { //nolint:errcheck // to the end of the process
					http.StripPrefix("/"+strings.Split(r.URL.Path, "/")[1], s).ServeHTTP(w, r)
				}))
			}
		},
	}
}

func (s *Server) done(w http.ResponseWriter, err error) {
	if err != nil {
		s.fail(w, err)
	}
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	if s.engine.isDead() {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if s.cfg.Surface == LlamaCpp {
		write(w, http.StatusOK, object{"status": "ok"})
	}
}

// parent is null for the model.
func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	var all []any
	add := func(id, root string, parent any) {
		card := object{"id": id, "object": "model", "created": s.begun.Unix(), "owned_by": string(s.cfg.Surface)}
		if s.cfg.Surface != LlamaCpp {
			card["root"], card["parent"], card["max_model_len"] = root, parent, s.cfg.MaxModelLen
		}
		all = append(all, card)
	}
	for _, name := range s.cfg.Names {
		add(name, s.cfg.Model, nil)
	}
	s.mu.Lock()
	for _, a := range s.adapters {
		add(a.Name, a.Path, s.cfg.Names[0])
	}
	s.mu.Unlock()
	write(w, http.StatusOK, object{"object": "list", "data": all})
}

func (s *Server) collectiveRPC(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Method string `json:"method"`
	}
	err := read(r, &body)
	if err == nil && body.Method != "reload_weights" {
		err = said("Call to collective_rpc method failed: 'Worker' object has no attribute '%s'", body.Method)
	}
	if err == nil {
		err = s.reload(r.Context())
	}
	if err != nil {
		s.fail(w, err)
		return
	}
	write(w, http.StatusOK, object{"results": []any{nil}})
}

func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Tokens []Token `json:"tokens"`
	}
	if err := read(r, &body); err != nil {
		s.fail(w, err)
		return
	}
	write(w, http.StatusOK, object{"prompt": Decode(body.Tokens)})
}

type adapterBody struct {
	Name string `json:"lora_name"`
	Path string `json:"lora_path"`
}

// done is false if there is one of that name already, or none.
func (s *Server) lora(r *http.Request) (body adapterBody, done bool, err error) {
	if err = read(r, &body); err != nil {
		return body, false, err
	}
	if strings.Contains(r.URL.Path, "unload") {
		return body, s.removeAdapter(body.Name), nil
	}
	return body, body.Name != "" && body.Path != "" && present(body.Path) && s.addAdapter(body), nil
}

func (s *Server) vllmLoRA(w http.ResponseWriter, r *http.Request) {
	body, done, err := s.lora(r)
	did := "added"
	if strings.Contains(r.URL.Path, "unload") {
		did = "removed"
	}
	switch {
	case err != nil || done:
	case did == "removed":
		err = &failure{status: http.StatusNotFound, kind: "NotFoundError", message: fmt.Sprintf("The lora adapter '%s' cannot be found.", body.Name)}
	case body.Name == "" || body.Path == "":
		err = &failure{status: http.StatusBadRequest, kind: "InvalidUserInput", message: "Both 'lora_name' and 'lora_path' must be provided."}
	case !present(body.Path):
		err = &failure{status: http.StatusNotFound, kind: "NotFoundError", message: fmt.Sprintf("Loading lora %s failed: No adapter found for %s", body.Name, body.Path)}
	default:
		err = &failure{status: http.StatusBadRequest, kind: "InvalidUserInput", message: fmt.Sprintf("The lora adapter '%s' has already been loaded. If you want to load the adapter in place, set 'load_inplace' to True.", body.Name)}
	}
	if err != nil {
		s.fail(w, err)
		return
	}
	fmt.Fprintf(w, "Success: LoRA adapter '%s' %s successfully.", body.Name, did)
}

func (s *Server) sglangLoRA(w http.ResponseWriter, r *http.Request) {
	body, done, err := s.lora(r)
	failed, status := "", http.StatusOK
	switch {
	case err != nil:
		s.fail(w, err)
		return
	case !done:
		failed, status = fmt.Sprintf("LoRA adapter %s is not there, or is loaded already.", body.Name), http.StatusBadRequest
	}
	write(w, status, object{"success": failed == "", "error_message": failed})
}

// present reports whether an adapter can be loaded from a folder or repository.
func present(path string) bool {
	if !filepath.IsAbs(path) && !strings.HasPrefix(path, ".") {
		return strings.Count(path, "/") == 1
	}
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// adapter returns an index, or -1. s.mu is held.
func (s *Server) adapter(name string) int {
	return slices.IndexFunc(s.adapters, func(a Adapter) bool { return a.Name == name })
}

func (s *Server) addAdapter(a adapterBody) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.adapter(a.Name) >= 0 {
		return false
	}
	s.adapters = append(s.adapters, Adapter{Name: a.Name, Path: a.Path})
	return true
}

func (s *Server) removeAdapter(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.adapters)
	s.adapters = slices.DeleteFunc(s.adapters, func(a Adapter) bool { return a.Name == name })
	return len(s.adapters) < n
}

func (s *Server) slots(w http.ResponseWriter, _ *http.Request) {
	s.engine.mu.Lock()
	all := s.engine.batch.All()
	slots := make([]any, s.cfg.MaxSeqs)
	for i := range slots {
		slot := object{"id": i, "n_ctx": s.cfg.MaxModelLen, "is_processing": false}
		if i < len(all) && all[i].Running() {
			slot["is_processing"], slot["n_prompt_tokens"] = true, all[i].Prompt+all[i].Generated
		}
		slots[i] = slot
	}
	s.engine.mu.Unlock()
	write(w, http.StatusOK, slots)
}

type scale struct {
	ID    int     `json:"id"`
	Scale float64 `json:"scale"`
}

// The adapter with the greatest scale speaks, for every request.
func (s *Server) setScales(w http.ResponseWriter, r *http.Request) {
	var body []scale
	err := read(r, &body)
	if err == nil {
		s.mu.Lock()
		var scaled int
		if scaled, err = s.loudest(body); err == nil {
			s.scaled = scaled
		}
		s.mu.Unlock()
	}
	if err != nil {
		s.fail(w, err)
		return
	}
	write(w, http.StatusOK, object{"success": true})
}

// loudest returns the index of the adapter with the greatest scale, negative for none. s.mu is held.
func (s *Server) loudest(scales []scale) (int, error) {
	loudest, best := -1, 0.0
	for _, one := range scales {
		if one.ID < 0 || one.ID >= len(s.adapters) {
			return -1, bad("lora", "invalid adapter id %d", one.ID)
		}
		if one.Scale > best {
			loudest, best = one.ID, one.Scale
		}
	}
	return loudest, nil
}

// If anything runs or waits, SGLang's scheduler dies.
func (s *Server) releaseMemory(w http.ResponseWriter, r *http.Request) {
	e, ctx := s.engine, s.outlive(r.Context())
	tags, err := tagsOf(r)
	if err == nil {
		err = e.takeTurn(ctx)
	}
	if err != nil {
		s.fail(w, err)
		return
	}
	defer e.endTurn()
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
	s.done(w, s.release(ctx, level, tags))
}

func (s *Server) resumeMemory(w http.ResponseWriter, r *http.Request) {
	tags, err := tagsOf(r)
	if err == nil {
		sleeping := s.sleepingTags()
		if tags = slices.DeleteFunc(tags, func(t string) bool { return !slices.Contains(sleeping, t) }); len(tags) > 0 {
			err = s.wake(r.Context(), tags)
		}
	}
	s.done(w, err)
}

// tagsOf reads {"tags":[…]}; none means all.
func tagsOf(r *http.Request) ([]string, error) {
	var body struct {
		Tags []string `json:"tags"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil && r.ContentLength != 0 {
		return nil, bad("", "%v", err)
	}
	if len(body.Tags) == 0 {
		return []string{tagWeights, tagKV}, nil
	}
	return slices.DeleteFunc(body.Tags, func(t string) bool { return t != tagWeights && t != tagKV }), nil
}
