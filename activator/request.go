package activator

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/activator/forward"
	"github.com/rouse-dev/rouse/activator/parse"
	"github.com/rouse-dev/rouse/activator/peer"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/inbound"
)

// request is one client's request. It does not change once its function is found.
type request struct {
	in   *http.Request
	id   string
	peer peer.Peer
	body *inbound.Body
	parse.Request
	style    api.Stream    // the format of the streamed answer
	plain    bool          // its function is no model server
	ollama   bool          // it is in Ollama's own API
	adapter  api.ModelName // the adapter to load; empty: the model itself
	prompts  bool          // its prompt can be cached
	via      *forward.Via  // how it reaches instances; nil: directly
	arrived  time.Time     // when its header arrived
	begun    time.Time     // when the body was complete
	deadline time.Time     // set by the client; zero: none
	due      time.Time     // when its first token is due; zero: unspecified
}

// parse extracts the needed fields of the body. With mustName, a body of a kind that can't name a model is an error.
func (r *request) parse(mustName bool) *api.Error {
	path, media := r.in.URL.Path, r.in.Header.Get("Content-Type")
	known, _ := api.FindPath("", path)
	isJSON := known.Model == "json" && r.ollama == (known.Instead != "") ||
		path == "/v1/images/edits" && !strings.HasPrefix(media, "multipart/") // OpenAI's is a form or JSON, Ollama's JSON
	r.style = api.EventsOf(path)
	r.prompts = known.Stream != api.StreamPlain
	var bad *api.Error
	switch {
	case isJSON && r.in.Method == http.MethodPost:
		r.Request, bad = parse.JSON(r.body.Object())
	case path == pathInvocations:
		if named, err := parse.JSON(r.body.Object()); err == nil { // a body that it can't read may be CSV, which MLflow must refuse
			r.Model = named.Model
		}
	case strings.HasPrefix(media, "multipart/form-data"):
		r.Request, bad = parse.Form(media, r.body.Bytes())
	case mustName:
		return api.BadRequest("", "the Content-Type is %s: want multipart/form-data", quoteName(media))
	}
	if bad != nil {
		return bad
	}
	if r.ollama && r.Model == "" {
		r.Model = oldName(r.body.Bytes())
	}
	if r.via != nil && r.via.Model != "" {
		r.Model = r.via.Model
	}
	return nil
}

// commented reports whether the client reads server-sent comments. A front door writes its own.
func (r *request) commented() bool {
	return r.Stream && r.style != api.StreamPlain && r.via == nil && r.peer.Turn.Client == 0
}

// headerTimeout limits the time until the answer is complete: seconds, or a Go duration.
const headerTimeout = "X-Request-Timeout"

// timeLimit returns the client's time limit, 0 without one, and sets the deadline.
func (r *request) timeLimit() (time.Duration, error) {
	d, err := TimeLimit(r.in.Header)
	if d > 0 {
		r.deadline = r.begun.Add(d)
	}
	return d, err
}

// TimeLimit returns the time limit of a client's header, 0 without one.
func TimeLimit(h http.Header) (time.Duration, error) {
	v := h.Get(headerTimeout)
	if v == "" {
		return 0, nil
	}
	d, err := api.ParseDuration(v)
	if seconds, err2 := strconv.ParseFloat(v, 64); err2 == nil {
		d, err = time.Duration(min(seconds, 1e9)*float64(time.Second)), nil
	}
	if err != nil || d <= 0 {
		return 0, api.BadRequest("", "the header %s is %s: want seconds, or a duration such as 1m30s", headerTimeout, quoteName(v))
	}
	return d, nil
}
