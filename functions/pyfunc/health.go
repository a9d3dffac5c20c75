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

// keptStatuses is the number of statuses in a health check.
const keptStatuses = 50

// timeLayout is Python's format of a time.
const timeLayout = "2006-01-02 15:04:05.000000"

// entry is one status of a health check.
type entry struct {
	At     string `json:"datetime_utc"`
	Status string `json:"status"`
}

// history holds the instance's reports.
type history struct {
	mu        sync.Mutex // guards the fields below
	entries   []entry    // the last keptStatuses, the newest last
	last      api.InstanceStatus
	lastAwake time.Time // the time of the last report of awake
}

// Observe adds a report of the instance to the health checks. It does not
// block. It ignores reports that come out of order or change nothing.
func (h *Handler) Observe(s api.InstanceStatus) {
	now := time.Now().UTC()
	past := &h.history
	past.mu.Lock()
	defer past.mu.Unlock()
	last := past.last
	if last.State != "" && !s.Supersedes(last) {
		return
	}
	if last.State == api.Awake || s.State == api.Awake {
		past.lastAwake = now
	}
	past.last = s
	if s.State == last.State && s.Restarts == last.Restarts && s.Level == last.Level {
		return
	}
	if text := statusText(last, s); text != "" {
		past.entries = append(past.entries, entry{now.Format(timeLayout), text})
		past.entries = slices.Delete(past.entries, 0, max(0, len(past.entries)-keptStatuses))
	}
}

// statusText returns a change of state in the words of mlflow-extensions, or in a
// similar form if they have none.
func statusText(last, s api.InstanceStatus) string {
	first, again := "", ""
	switch s.State {
	case api.Starting:
		first, again = "Process is starting.", "Process is not running. Respawning."
	case api.Awake:
		first, again = "Spawn Server Proc Finished.", "Health check passed after respawn."
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
	if s.Restarts > 0 || last.State == api.Unhealthy {
		return again
	}
	return first
}

// health returns the answer to HEALTH_CHECK.
func (h *Handler) health(now time.Time) string {
	answer := struct {
		Status    string  `json:"status"`
		PID       int     `json:"worker_pid"`
		Engine    string  `json:"engine_name"`
		Heartbeat string  `json:"health_check_last_heartbeat"`
		Statuses  []entry `json:"health_check_thread_last_50_status"`
		Note      string  `json:"note"`
	}{PID: os.Getpid(), Engine: h.cfg.Engine, Note: "heartbeat is updated at a frequency but can pause when server is being respawned"}
	s := h.cfg.Status()
	h.history.mu.Lock()
	beat := h.history.lastAwake
	answer.Statuses = append([]entry{}, h.history.entries...)
	h.history.mu.Unlock()
	if s.State != "" {
		answer.Status = "UNAVAILABLE"
	}
	if s.Ready() { // the supervisor says that it is healthy now
		answer.Status, beat = "AVAILABLE", now
	}
	if !beat.IsZero() {
		answer.Heartbeat = beat.UTC().Format(timeLayout)
	}
	raw, _ := json.Marshal(answer) // strings and numbers always marshal
	return string(raw)
}
