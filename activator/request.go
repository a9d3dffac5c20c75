package activator

import (
	"cmp"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/activator/forward"
	"github.com/rouse-dev/rouse/activator/parse"
	"github.com/rouse-dev/rouse/activator/peer"
	"github.com/rouse-dev/rouse/activator/queue"
	"github.com/rouse-dev/rouse/activator/route"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/inbound"
	"github.com/rouse-dev/rouse/internal/waketrace"
)

// request is one client's request. It does not change once its function is found.
type request struct {
	in   *http.Request
	id   string
	peer peer.Peer
	body *inbound.Body
	parse.Request
	style    api.Stream    // format of the streamed answer
	plain    bool          // its function is no model server
	ollama   bool          // in Ollama's API
	adapter  api.ModelName // empty: the model itself
	prompts  bool          // its prompt can be cached
	via      *forward.Via  // nil: it reaches instances directly
	arrived  time.Time     // its header
	begun    time.Time     // its body was complete
	deadline time.Time     // the client's; zero: none
	due      time.Time     // its first token; zero: unspecified
}

// With mustName, a body of a kind that can't name a model is an error.
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

// commented reports whether the client reads comments. A front door writes its own.
func (r *request) commented() bool {
	return r.Stream && r.style != api.StreamPlain && r.via == nil && r.peer.Turn.Client == 0
}

// headerTimeout limits the time until the answer is complete: seconds, or a Go duration.
const headerTimeout = "X-Request-Timeout"

func (r *request) timeLimit() (time.Duration, error) {
	d, err := TimeLimit(r.in.Header)
	if d > 0 {
		r.deadline = r.begun.Add(d)
	}
	return d, err
}

// TimeLimit returns the time limit in a client's header; 0: none.
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

// headerSession and headerAffinity name the conversation or user whose instance a request should return to, before
// the body. OpenCode sends the second, and Fireworks documents it.
const (
	headerSession  = "X-Session-Id"
	headerAffinity = "X-Session-Affinity"
)

// preferInstances tells the queue which instances are best, unless there is only one: hashing a long prompt takes
// time.
func (c *call) preferInstances() {
	if c.preferred || !c.f.Several() {
		return
	}
	c.preferred = true
	p, tenant := &c.req.Prompt, c.req.peer.Tenant()
	if c.req.prompts {
		c.want.Prefix = route.ChainOf(route.SaltOf(tenant, string(c.req.adapter), string(p.Salt)), p.System, p.Tools, p.Messages)
	}
	if c.want.Prefix.Len() > 0 {
		c.want.Prompt = len(p.System) + len(p.Tools) + len(p.Messages)
	}
	if session := cmp.Or(c.req.in.Header.Get(headerSession), c.req.in.Header.Get(headerAffinity), string(p.Session)); session != "" {
		c.want.Session = uint64(route.SaltOf(tenant, session))
	}
}

const maxPicks = 4096

// picks are the last choices of instances. Of a request they hold only its id.
type picks struct {
	mu   sync.Mutex // guards all below
	ring []api.Pick
	all  int
}

func (p *picks) add(c *call, s *queue.Slot) {
	one := api.Pick{Request: c.req.id, Function: c.f.Name, Instance: s.Instance, Activator: c.a.cfg.Name, At: time.Now(), After: c.sent.last, Fallback: c.insteadOf, Choice: s.Choice}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ring) < maxPicks {
		p.ring = append(p.ring, one)
	}
	c.sent.pick = p.all % maxPicks
	p.ring[c.sent.pick] = one
	p.all++
}

// ended records the GPU time that c used.
func (p *picks) ended(c *call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := c.sent.pick; n < len(p.ring) && p.ring[n].Request == c.req.id {
		p.ring[n].GPUSeconds = c.want.GPUSeconds
	}
}

// Picks returns the instances chosen for a request, in order, among the last choices. Several: an instance gave it
// back, or clients reuse its id.
func (a *Activator) Picks(request string) []api.Pick {
	p, found := &a.picks, []api.Pick{}
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := range p.ring {
		if one := p.ring[(p.all+n)%len(p.ring)]; one.Request == request {
			found = append(found, one)
		}
	}
	return found
}

// A request for an API that a runtime certainly lacks is refused before it wakes an instance. Only the runtime
// knows about APIs that depend on its version, options or model, and those of commands, images and handlers.

// certain are the runtimes whose APIs are known.
var certain = []string{api.RuntimeEngine, api.RuntimeVLLM, api.RuntimeSGLang, api.RuntimeLlamaCpp, api.RuntimeOllama}

// lacksPath refuses a request for a path that f's runtime certainly lacks.
func lacksPath(f *queue.Function, path string) *api.Error {
	spec := f.Spec()
	kind, handled := spec.Runtime.Kind, len(spec.Handler) > 0
	known, _ := api.FindPath("", path)
	kinds := known.Runtimes
	if kinds == nil || handled || !slices.Contains(certain, kind) || slices.Contains(kinds, kind) {
		return nil
	}
	if instead := known.Instead; instead != "" {
		return &api.Error{Status: http.StatusNotImplemented, Code: api.CodeUnknownPath, NoRetry: true,
			Message: "the model runs on " + kind + ", which does not speak Ollama's API: instead of " + path + " use " + instead}
	}
	return &api.Error{Status: http.StatusNotFound, Code: api.CodeUnknownPath, NoRetry: true,
		Message: "the model runs on " + kind + ", which has no " + path + ": only " + strings.Join(kinds, ", ") + ", or a command, may have it"}
}

// lacks is lacksPath, but nil if another variant may have the path.
func (t *target) lacks(picked *queue.Function, path string) *api.Error {
	refused := lacksPath(picked, path)
	if refused != nil && slices.ContainsFunc(t.variants, func(v *target) bool { return lacksPath(v.first(), path) == nil }) {
		return nil
	}
	return refused
}

// operations maps paths to OpenTelemetry's operations. Other paths have no span.
var operations = map[string]string{
	"/v1/chat/completions": "chat", "/v1/messages": "chat", "/v1/responses": "chat", "/api/chat": "chat",
	"/v1/completions": "text_completion", "/api/generate": "text_completion",
	"/v1/embeddings": "embeddings", "/api/embed": "embeddings", "/api/embeddings": "embeddings",
}

// traceRequest exports a finished request's span, if its client traces it or it waited for a wake.
func (c *call) traceRequest() {
	if c.a.deps.Traces == nil {
		return
	}
	r, answer, parent := &c.req, &c.reply, c.want.Woken()
	if parent.Zero() {
		parent = api.TraceFrom(r.in.Header)
	}
	operation := operations[r.in.URL.Path]
	if operation == "" || parent.Zero() || parent.Unsampled {
		return
	}
	span := waketrace.Request{Operation: operation, Model: r.Model, Instance: answer.instance, Status: answer.status, Code: answer.code, Began: r.arrived, Ended: time.Now()}
	if span.Server = r.in.Host; span.Server != "" {
		if host, _, err := net.SplitHostPort(span.Server); err == nil {
			span.Server = host
		}
	}
	if c.f != nil {
		spec := c.f.Spec()
		span.Function, span.Provider, span.Served = c.f.Name, spec.Runtime.Kind, string(spec.Model)
		switch span.Provider {
		case api.RuntimeEngine:
			span.Provider = "rouse"
		case api.RuntimeCommand, api.RuntimeHTTP:
			span.Provider = "" // unknown
		}
	}
	span.Resumed, span.Moved = c.sent.resumed, c.sent.moved
	used := c.used()
	span.Input, span.Cached, span.Output = used.input, used.cached, used.output
	c.a.tracer.Request(parent, span)
}
