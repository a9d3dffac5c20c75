package agent

import (
	"net/http"
	"sync/atomic"
)

// watching records whether an answer has begun.
type watching struct {
	http.ResponseWriter
	begun atomic.Bool
}

// WriteHeader implements [http.ResponseWriter].
func (w *watching) WriteHeader(status int) {
	if status >= http.StatusOK {
		w.begun.Store(true)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (w *watching) Write(p []byte) (int, error) {
	w.begun.Store(true)
	return w.ResponseWriter.Write(p)
}

// Unwrap supports [http.ResponseController].
func (w *watching) Unwrap() http.ResponseWriter { return w.ResponseWriter }
