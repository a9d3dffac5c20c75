package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
)

const (
	maxReaders = 2000             // each has a goroutine, but no queue
	beat       = 15 * time.Second // interval of comments, to detect a broken connection
	stalled    = 30 * time.Second // a reader that accepts nothing is dropped
	batch      = 200              // functions in one event
)

// watch keeps no queue for a reader, which takes what is newer than its version whenever it can.
func (s *Admin) watch(w http.ResponseWriter, r *http.Request) {
	leave, ok := s.board.join()
	if !ok {
		w.Header().Set("Retry-After", "10")
		api.WriteError(w, api.Errorf(http.StatusServiceUnavailable, "", "%d readers watch already: close some pages", maxReaders))
		return
	}
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // a buffering proxy would delay events
	out := stream{w: w, rc: http.NewResponseController(w)}
	beats := time.NewTicker(beat)
	defer beats.Stop()
	told := uint64(0)
	for out.err == nil {
		news, changed := s.board.since(told)
		told = news.version
		if news.whole {
			out.event(admin.WatchServer, s.cfg.Info())
		}
		news.write(&out)
		out.flush()
		select {
		case <-changed:
		case <-beats.C:
			out.print(": still here\n\n")
		case <-r.Context().Done():
			return
		}
	}
}

// stream writes nothing after an error.
type stream struct {
	w   http.ResponseWriter
	rc  *http.ResponseController
	err error
}

func (o *stream) event(name string, data any) {
	raw, err := json.Marshal(data)
	if err != nil {
		o.err = fmt.Errorf("event %s: %w", name, err)
		return
	}
	o.print("event: %s\ndata: %s\n\n", name, raw)
}

func (o *stream) print(format string, args ...any) {
	if o.err == nil {
		_ = o.rc.SetWriteDeadline(time.Now().Add(stalled)) // else the server's own deadlines apply
		_, o.err = fmt.Fprintf(o.w, format, args...)
	}
}

func (o *stream) flush() {
	if o.err == nil {
		o.err = o.rc.Flush()
	}
}

func (n news) write(out *stream) {
	for k := 0; k < len(n.functions); k += batch {
		out.event(admin.WatchFunctions, n.functions[k:min(k+batch, len(n.functions))])
	}
	if len(n.gone) > 0 {
		out.event(admin.WatchGone, n.gone)
	}
	if n.devices != nil {
		out.event(admin.WatchDevices, n.devices)
	}
	if len(n.decisions) > 0 {
		out.event(admin.WatchDecisions, n.decisions)
	}
	if n.whole {
		out.event(admin.WatchReady, struct{}{})
	}
}

// look reads all functions, or only the named ones.
func (s *Admin) look(ctx context.Context, names []api.FunctionName) (all []admin.Summary, gone []api.FunctionName) {
	if names == nil {
		here := map[api.FunctionName]bool{}
		for _, v := range s.cfg.Decider.List() {
			here[v.Function.ServiceName()] = true
			all = append(all, admin.Summarize(v))
		}
		for _, far := range s.cfg.Far(ctx, "") {
			if !here[far.Function.Function.Name] {
				v := admin.Summarize(far.Function)
				v.Clusters = append([]string{}, far.Clusters...)
				all = append(all, v)
			}
		}
		return all, nil
	}
	for _, name := range names {
		if v, found := s.cfg.Decider.Status(name); found {
			all = append(all, admin.Summarize(v))
		} else if len(s.cfg.Far(ctx, name)) == 0 {
			gone = append(gone, name)
		}
	}
	return all, gone
}
