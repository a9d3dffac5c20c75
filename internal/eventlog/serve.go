package eventlog

import (
	"net/http"
	"strconv"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/cloudevent"
)

// Serve writes the events whose subjects are wanted, as lines of structured JSON, until
// the client has those that it asked for (see [Parameters]), or leaves.
func (l *Log) Serve(w http.ResponseWriter, r *http.Request, wanted func(subject string) bool) {
	n, follow := Parameters(r, Kept)
	w.Header().Set("Content-Type", "application/x-ndjson")
	rc := http.NewResponseController(w)
	_ = rc.Flush() // the header, before the first event comes
	_ = l.Follow(r.Context(), n, follow, func(e api.Event) error {
		if !wanted(e.Subject) {
			return nil
		}
		line, err := cloudevent.Encode(e)
		if err != nil {
			return err
		}
		if _, err := w.Write(append(line, '\n')); err != nil {
			return err
		}
		return rc.Flush()
	}) // only the client's own leaving ends it
}

// Parameters reads what a client asks of something that grows: ?tail=N of its end,
// usual without it, and with ?follow=true what comes after.
func Parameters(r *http.Request, usual int) (n int, follow bool) {
	q := r.URL.Query()
	n = usual
	if v, err := strconv.Atoi(q.Get("tail")); err == nil {
		n = v
	}
	return n, q.Get("follow") == "true"
}
