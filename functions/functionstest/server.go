package functionstest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// server sleeps as vLLM does: after level 2 the weights must be reloaded, in the documented order, before it generates again.
type server struct {
	options
	generations, running, left atomic.Int64

	mu     sync.Mutex // guards the fields below
	level  int        // 0: awake
	tags   map[string]bool
	stale  bool // woken from level 2, weights not reloaded
	cached bool // the prefix cache holds results of the lost weights
}

func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", s.models)
	if !s.NoCompletions {
		mux.HandleFunc("POST /v1/completions", s.generate)
	}
	mux.HandleFunc("POST /v1/chat/completions", s.generate)
	mux.HandleFunc("POST /v1/responses", s.generate)
	mux.HandleFunc("POST /v1/messages", s.generate)
	mux.HandleFunc("POST /v1/audio/", digest)
	mux.HandleFunc("POST /v1/images/", digest)
	mux.HandleFunc("GET /v1/realtime", echo)
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, map[string]any{"generations": s.generations.Load(), "running": s.running.Load(), "left": s.left.Load()})
	})
	if s.Sleeps {
		mux.HandleFunc("POST /sleep", s.fallAsleep)
		mux.HandleFunc("POST /wake_up", s.wakeUp)
		mux.HandleFunc("POST /collective_rpc", s.reload)
		mux.HandleFunc("POST /reset_prefix_cache", s.resetCache)
		mux.HandleFunc("GET /is_sleeping", func(w http.ResponseWriter, _ *http.Request) {
			s.mu.Lock()
			defer s.mu.Unlock()
			reply(w, map[string]any{"is_sleeping": s.level > 0})
		})
	}
	if s.NeverReady {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { refuse(w, 503, "still loading") })
	}
	return mux
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"message": message, "type": "fake", "param": nil, "code": status}})
}

func (s *server) models(w http.ResponseWriter, _ *http.Request) {
	reply(w, map[string]any{"object": "list", "data": []any{map[string]any{"id": s.Model, "object": "model", "owned_by": "fake"}}})
}

func (s *server) fallAsleep(w http.ResponseWriter, r *http.Request) {
	level, err := strconv.Atoi(r.FormValue("level"))
	if err != nil || s.running.Load() > 0 {
		refuse(w, 500, fmt.Sprintf("cannot sleep: level %q, %d requests run", r.FormValue("level"), s.running.Load()))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.level, s.tags = max(s.level, level), map[string]bool{}
	s.stale = s.level == 2
	s.cached = s.stale
}

func (s *server) wakeUp(w http.ResponseWriter, r *http.Request) {
	if s.WakeFails {
		refuse(w, 500, "out of memory at the wake")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	tags := r.URL.Query()["tags"]
	if len(tags) == 0 {
		tags = []string{"weights", "kv_cache"}
		if s.Announce { // the engine reloads its weights itself
			s.stale, s.cached = false, false
		}
	}
	for _, t := range tags {
		if t == "kv_cache" && s.stale {
			refuse(w, 500, "kv_cache before reload_weights")
			return
		}
		s.tags[t] = true
	}
	if s.tags["weights"] && s.tags["kv_cache"] {
		s.level = 0
	}
}

func (s *server) reload(w http.ResponseWriter, r *http.Request) {
	var call struct{ Method string }
	if err := json.NewDecoder(r.Body).Decode(&call); err != nil || call.Method != "reload_weights" {
		refuse(w, 400, "want the method reload_weights")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.tags["weights"] {
		refuse(w, 500, "reload_weights before the weights are awake")
		return
	}
	s.stale = false
}

func (s *server) resetCache(http.ResponseWriter, *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cached = false
}

type request struct {
	Model     string `json:"model"`
	MaxTokens *int   `json:"max_tokens"`
	Stream    bool   `json:"stream"`
}

func echo(w http.ResponseWriter, _ *http.Request) {
	conn, both, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	_, _ = io.Copy(conn, both)
}

func digest(w http.ResponseWriter, r *http.Request) {
	sum := sha256.New()
	n, err := io.Copy(sum, r.Body)
	if err != nil {
		refuse(w, 400, err.Error())
		return
	}
	reply(w, map[string]any{"type": r.Header.Get("Content-Type"), "bytes": n, "sha256": hex.EncodeToString(sum.Sum(nil))})
}

func (s *server) generate(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get(HeaderFault) == "digest" {
		digest(w, r)
		return
	}
	n := s.generations.Add(1)
	s.running.Add(1)
	defer s.running.Add(-1)
	var req request
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		refuse(w, 400, err.Error())
		return
	}
	fault := faults(r.Header.Get(HeaderFault))
	if s.ExitAfter > 0 && n > int64(s.ExitAfter) {
		fmt.Println("CUDA error: exits as told")
		os.Exit(4)
	}
	s.mu.Lock()
	level, garbage := s.level, s.stale || s.cached
	s.mu.Unlock()
	switch {
	case level > 0:
		refuse(w, 500, fmt.Sprintf("asleep at level %d", level))
		return
	case garbage:
		refuse(w, 500, "the weights are garbage, or the cache is")
		return
	case s.Model != "any" && req.Model != s.Model && !slices.Contains(s.Names, req.Model):
		refuse(w, 404, fmt.Sprintf("no model %q", req.Model))
		return
	}
	if fault.hang || (s.HangAfter > 0 && n > int64(s.HangAfter)) {
		<-r.Context().Done()
		s.left.Add(1)
		return
	}
	if fault.exit >= 0 {
		os.Exit(fault.exit)
	}
	time.Sleep(fault.delay)
	if fault.status != 0 {
		refuse(w, fault.status, "a failure as told")
		return
	}
	tokens := 16
	if req.MaxTokens != nil {
		tokens = *req.MaxTokens
	}
	a := &answer{w: w, r: r, fault: fault, style: r.URL.Path, tokens: tokens}
	if !a.write(req.Stream) {
		s.left.Add(1)
	}
}

type fault struct {
	hang                bool
	delay, pause        time.Duration
	cut, eof, exitAfter int
	stall               int // the token before which a stream stops; -1: none
	status, exit        int
}

func faults(header string) fault {
	f := fault{cut: -1, eof: -1, exit: -1, exitAfter: -1, stall: -1}
	for _, word := range strings.Split(header, ",") {
		key, value, _ := strings.Cut(strings.TrimSpace(word), "=")
		n, _ := strconv.Atoi(value)
		d, _ := time.ParseDuration(value)
		switch key {
		case "hang":
			f.hang = true
		case "delay":
			f.delay = d
		case "pause":
			f.pause = d
		case "cut":
			f.cut = n
		case "eof":
			f.eof = n
		case "stall":
			f.stall = n
		case "status":
			f.status = n
		case "exit":
			f.exit = n
		case "exit-after":
			f.exitAfter = n
		}
	}
	return f
}
