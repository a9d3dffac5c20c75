package cloudevent

import (
	"net/http"
	"strconv"

	"github.com/rouse-dev/rouse/api"
)

// Serve writes the events with wanted subjects as lines of structured JSON, as [Parameters] asks for.
func (l *Log) Serve(w http.ResponseWriter, r *http.Request, wanted func(subject string) bool) {
	n, follow := Parameters(r, Kept)
	w.Header().Set("Content-Type", "application/x-ndjson")
	rc := http.NewResponseController(w)
	_ = rc.Flush() // the header, before the first event
	_ = l.Follow(r.Context(), n, follow, func(e api.Event) error {
		if !wanted(e.Subject) {
			return nil
		}
		line, err := Encode(e)
		if err != nil {
			return err
		}
		if _, err := w.Write(append(line, '\n')); err != nil {
			return err
		}
		return rc.Flush()
	}) // the client has left
}

// Parameters returns those of a request for a log: ?tail=N lines, default usual, and ?follow=true.
func Parameters(r *http.Request, usual int) (n int, follow bool) {
	q := r.URL.Query()
	n = usual
	if v, err := strconv.Atoi(q.Get("tail")); err == nil {
		n = v
	}
	return n, q.Get("follow") == "true"
}
