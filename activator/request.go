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

// request does not change once its function is found.
type request struct {
	in   *http.Request
	id   string
	peer peer.Peer
	body *inbound.Body
	parse.Request
	style    api.Stream
	plain    bool
	ollama   bool
	adapter  api.ModelName
	prompts  bool         // its prompt can be cached
	via      *forward.Via // nil: it reaches instances directly
	arrived  time.Time
	begun    time.Time
	deadline time.Time
	due      time.Time // first token
}

// mustName: a body of a kind that can't name a model is an error.
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

// A front door writes its own comments.
func (r *request) commented() bool {
	return r.Stream && r.style != api.StreamPlain && r.via == nil && r.peer.Turn.Client == 0
}

// Seconds, or a Go duration, until the answer is complete.
const headerTimeout = "X-Request-Timeout"

func (r *request) timeLimit() (time.Duration, error) {
	d, err := TimeLimit(r.in.Header)
	if d > 0 {
		r.deadline = r.begun.Add(d)
	}
	return d, err
}

// TimeLimit returns the limit in a client's header; 0: none.
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

// They name the conversation or user whose instance a request should return to, and go before the body. OpenCode
// sends the second, and Fireworks documents it.
const (
	headerSession  = "X-Session-Id"
	headerAffinity = "X-Session-Affinity"
)

// Hashing a long prompt takes time: not for a single instance.
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

// Of a request, picks holds only the id.
type picks struct {
	mu   sync.Mutex // guards all below
	ring []api.Pick
	all  int // picks so far
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

func (p *picks) ended(c *call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := c.sent.pick; n < len(p.ring) && p.ring[n].Request == c.req.id {
		p.ring[n].GPUSeconds = c.want.GPUSeconds
	}
}

// Picks returns the recent choices of instances for a request, in order. Clients may reuse its id.
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

// A request for an API that a runtime certainly lacks wakes no instance.

// certain are the runtimes whose APIs are known.
var certain = []string{api.RuntimeEngine, api.RuntimeVLLM, api.RuntimeSGLang, api.RuntimeLlamaCpp, api.RuntimeOllama}

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

// Another variant may have the path.
func (t *target) lacks(picked *queue.Function, path string) *api.Error {
	refused := lacksPath(picked, path)
	if refused != nil && slices.ContainsFunc(t.variants, func(v *target) bool { return lacksPath(v.first(), path) == nil }) {
		return nil
	}
	return refused
}

// OpenTelemetry's operations. Other paths have no span.
var operations = map[string]string{
	"/v1/chat/completions": "chat", "/v1/messages": "chat", "/v1/responses": "chat", "/api/chat": "chat",
	"/v1/completions": "text_completion", "/api/generate": "text_completion",
	"/v1/embeddings": "embeddings", "/api/embed": "embeddings", "/api/embeddings": "embeddings",
}

// traceRequest exports a span if the client traces or the request waited for a wake.
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
