package pyfunc

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// keptStatuses is how many statuses a health check has.
const keptStatuses = 50

// timeLayout is how Python writes a time.
const timeLayout = "2006-01-02 15:04:05.000000"

// entry is one status of a health check.
type entry struct {
	At     string `json:"datetime_utc"`
	Status string `json:"status"`
}

// history is what the instance has reported.
type history struct {
	mu        sync.Mutex // guards what follows
	entries   []entry    // the last keptStatuses, the newest last
	last      api.InstanceStatus
	lastAwake time.Time // when it was last seen awake
}

// Observe takes a report of the instance for the health checks. It does not
// block; reports that come out of order, and those that change nothing, are left out.
func (h *Handler) Observe(s api.InstanceStatus) {
	now := time.Now().UTC()
	h.history.mu.Lock()
	defer h.history.mu.Unlock()
	last := h.history.last
	if last.State != "" && !s.Supersedes(last) {
		return
	}
	if last.State == api.Awake || s.State == api.Awake {
		h.history.lastAwake = now
	}
	h.history.last = s
	text := statusText(last, s)
	if text == "" {
		return
	}
	h.history.entries = append(h.history.entries, entry{now.Format(timeLayout), text})
	if extra := len(h.history.entries) - keptStatuses; extra > 0 {
		h.history.entries = slices.Delete(h.history.entries, 0, extra)
	}
}

// statusText is a change of state in the words of mlflow-extensions, or in the
// same manner where it has none; empty: nothing changed.
func statusText(last, s api.InstanceStatus) string {
	if s.State == last.State && s.Restarts == last.Restarts && s.Level == last.Level {
		return ""
	}
	again := s.Restarts > 0 || last.State == api.Unhealthy
	switch s.State {
	case api.Starting:
		if again {
			return "Process is not running. Respawning."
		}
		return "Process is starting."
	case api.Awake:
		if again {
			return "Health check passed after respawn."
		}
		return "Spawn Server Proc Finished."
	case api.Unhealthy:
		if s.PID == 0 {
			return "Process is not running."
		}
		return fmt.Sprintf("Health check failed after respawn. Attempt: %d", s.Restarts)
	case api.Asleep:
		return fmt.Sprintf("Process is asleep at level %d.", s.Level)
	case api.Draining:
		return "Process is draining."
	case api.Gone:
		return "Process does not exist."
	}
	return ""
}

// health is the answer to HEALTH_CHECK.
func (h *Handler) health(now time.Time) string {
	s := h.cfg.Status()
	h.history.mu.Lock()
	beat, entries := h.history.lastAwake, slices.Clone(h.history.entries)
	h.history.mu.Unlock()
	answer := struct {
		Status    string  `json:"status"`
		PID       int     `json:"worker_pid"`
		Engine    string  `json:"engine_name"`
		Heartbeat string  `json:"health_check_last_heartbeat"`
		Statuses  []entry `json:"health_check_thread_last_50_status"`
		Note      string  `json:"note"`
	}{
		Status: "UNAVAILABLE", PID: os.Getpid(), Engine: h.cfg.Engine, Statuses: append([]entry{}, entries...),
		Note: "heartbeat is updated at a frequency but can pause when server is being respawned",
	}
	switch {
	case s.Ready(): // the supervisor stands for it at this moment
		answer.Status, answer.Heartbeat = "AVAILABLE", now.UTC().Format(timeLayout)
	case !beat.IsZero():
		answer.Heartbeat = beat.UTC().Format(timeLayout)
	}
	if s.State == "" {
		answer.Status = ""
	}
	raw, _ := json.Marshal(answer) // strings and numbers always marshal
	return string(raw)
}
