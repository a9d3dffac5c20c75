package serve

import (
	"net/http"
	"strconv"

	"github.com/rouse-dev/rouse/engine"
)

// health answers GET /health and /ping. A sleeping model is healthy.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) error {
	if err := s.engine.Stats().Failure; err != nil {
		return errorf(http.StatusServiceUnavailable, codeUnhealthy, "the last step failed: %v", err)
	}
	return writeJSON(w, struct{}{})
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, map[string]string{"version": s.cfg.Version})
}

// load returns the number of unfinished requests, as vLLM does.
func (s *Server) load(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, map[string]int{"server_load": s.engine.Stats().Open})
}

// isSleeping is true until a wake has generated its token.
func (s *Server) isSleeping(w http.ResponseWriter, _ *http.Request) error {
	state := s.engine.Stats().State
	return writeJSON(w, map[string]bool{"is_sleeping": state == engine.Asleep || state == engine.Waking})
}

// sleep answers once the model is asleep, with the number of conversation tokens it keeps. A client that leaves earlier
// cancels the sleep.
func (s *Server) sleep(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	level := 1
	if text := query.Get("level"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return badRequest("level", "level is %s: want 1 or 2", quote(text))
		}
		level = n
	}
	mode := engine.SleepWait
	if text := query.Get("mode"); text != "" {
		mode = engine.SleepMode(text)
	}
	if err := s.engine.Sleep(r.Context(), level, mode); err != nil {
		return err
	}
	s.log.Info("asleep", "level", level, "mode", mode)
	stats := s.engine.Stats()
	kept := 0
	if stats.KeptBytes > 0 {
		kept = stats.BlocksCached * s.engine.BlockSize()
	}
	return writeJSON(w, map[string]any{"is_sleeping": true, "level": stats.Level, "kept_tokens": kept})
}

func (s *Server) wakeUp(w http.ResponseWriter, r *http.Request) error {
	token, err := s.engine.Wake(r.Context())
	if err != nil {
		return err
	}
	s.log.Info("awake", "token", token)
	return writeJSON(w, map[string]int32{"token": token})
}
