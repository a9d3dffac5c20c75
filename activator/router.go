package activator

import (
	"context"
	"crypto/rand"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/mux"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/rouse-dev/rouse/activator/forward"
	"github.com/rouse-dev/rouse/activator/queue"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/inbound"
	"github.com/rouse-dev/rouse/internal/lazyregexp"
)

// Routes returns the front door's own paths, besides [api.ClientPaths], without working handlers.
func Routes() *mux.Router {
	return (&Activator{deps: Deps{Registry: prometheus.NewRegistry()}}).router()
}

// router puts the busiest paths first: routes are tried in order.
func (a *Activator) router() *mux.Router {
	r := mux.NewRouter().SkipClean(true)
	r.MatcherFunc(func(r *http.Request, _ *mux.RouteMatch) bool { return a.OwnHost(r.Host) }).HandlerFunc(a.serveHost)
	r.Path(api.PathRealtime).Methods(http.MethodGet).HandlerFunc(a.serveRealtime)
	r.MatcherFunc(isWebSocket).HandlerFunc(a.refuseWebSocket)
	r.MatcherFunc(namesModel).Methods(http.MethodPost).HandlerFunc(a.serveModel)
	a.routeOllama(r)
	a.routeMLflow(r)
	get(r, "/v1/models", a.listed(a.listModels))
	get(r, "/v1/models/{model:.+}", a.showModel)
	get(r, "/tokenizer_info", a.serveOnly)
	r.Path("/v1/responses/compact").Methods(http.MethodPost).HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inbound.Unread(w, r)
		a.refuse(w, r, api.Errorf(http.StatusNotImplemented, api.CodeUnknownPath, "conversations are not compacted here: send what is to be kept of one as the input of POST /v1/responses"))
	})
	get(r, "/healthz", healthz)
	get(r, "/health", healthz) // guidellm requests it
	get(r, "/readyz", a.ifTaken("text/plain; charset=utf-8", "ok\n"))
	if !a.cfg.PrivateMetrics {
		get(r, "/metrics", a.operators(promhttp.HandlerFor(a.deps.Registry, promhttp.HandlerOpts{}).ServeHTTP))
	}
	r.NotFoundHandler = http.HandlerFunc(a.notFound)
	r.MethodNotAllowedHandler = http.HandlerFunc(a.methodNotAllowed)
	return r
}

func get(r *mux.Router, path string, h http.HandlerFunc) {
	r.Path(path).Methods(http.MethodGet, http.MethodHead).HandlerFunc(h)
}

func (a *Activator) mayList(r *http.Request) bool { return a.deps.Lists == nil || a.deps.Lists(r) }

func (a *Activator) operators(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		inbound.Unread(w, r)
		if a.mayList(r) {
			next(w, r)
			return
		}
		a.unauthorized(w, r, a.unlisted(r))
	}
}

// A nil has accepts all names.
type list func(w http.ResponseWriter, r *http.Request, has func(names ...string) bool)

// listed passes the filter of names for the client.
func (a *Activator) listed(next list) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		inbound.Unread(w, r)
		has, err := a.mayUse(r)
		if err != nil {
			a.unauthorized(w, r, api.AsError(err))
			return
		}
		next(w, r, has)
	}
}

func (a *Activator) unauthorized(w http.ResponseWriter, r *http.Request, err *api.Error) {
	if err.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	a.refuse(w, r, err)
}

func namesModel(r *http.Request, _ *mux.RouteMatch) bool {
	p, _ := api.FindPath("", r.URL.Path)
	return p.Model != ""
}

func (a *Activator) serveModel(w http.ResponseWriter, r *http.Request) { a.serve(w, r, nil, false) }

func (a *Activator) serveHost(w http.ResponseWriter, r *http.Request) {
	f, err := a.names.Load().host(r.Host, a.mayList(r))
	if err != nil {
		a.missing(w, r, r.Host, err)
		return
	}
	a.serveOwn(w, r, f, false)
}

// A client without access does not learn that something does not exist.
func (a *Activator) missing(w http.ResponseWriter, r *http.Request, name string, err *api.Error) {
	inbound.Unread(w, r)
	_, account, bad := a.clientOf(r)
	switch {
	case bad != nil:
		a.unauthorized(w, r, api.AsError(bad))
	case name != "" && account != nil && !account.Rights().Allows(name):
		a.refuse(w, r, notAllowed(account, name))
	default:
		a.refuse(w, r, err)
	}
}

// ServeFunction serves a request as at the function's own host: all paths but the control paths are the function's.
func (a *Activator) ServeFunction(w http.ResponseWriter, r *http.Request, name api.FunctionName) {
	a.serveNamed(w, r, name, false)
}

// ServeAtOnce is for a request that another front door holds: without a free slot it is refused, with
// [control.HeaderRefused].
func (a *Activator) ServeAtOnce(w http.ResponseWriter, r *http.Request, name api.FunctionName) {
	a.serveNamed(w, r, name, true)
}

func (a *Activator) serveNamed(w http.ResponseWriter, r *http.Request, name api.FunctionName, atOnce bool) {
	f := a.names.Load().byName[name]
	if f == nil {
		a.refuse(w, r, api.Errorf(http.StatusNotFound, api.CodeModelNotFound, "there is no function %s", quoteName(string(name))))
		return
	}
	a.serveOwn(w, r, f, atOnce)
}

func (a *Activator) serveOwn(w http.ResponseWriter, r *http.Request, f *queue.Function, atOnce bool) {
	switch {
	case !strings.HasPrefix(r.URL.Path, "/") || isControl(r.Method, r.URL.Path):
		a.refuse(w, r, unknownPath(r))
	case !isPlain(f) && listsModels(r.URL.Path) && !a.seesAll(r):
		in := r.Clone(r.Context())
		in.Host = "" // the front door's lists have only what the client may use
		a.handler.ServeHTTP(w, in)
	case isWebSocket(r, nil) && !isPlain(f) && !isRealtime(r):
		a.refuseWebSocket(w, r)
	default:
		if isRealtime(r) && !isPlain(f) {
			takeProtocolKey(r.Header)
		}
		a.serve(w, r, f, atOnce)
	}
}

func listsModels(p string) bool {
	p = path.Clean(p)
	return p == "/v1/models" || strings.HasPrefix(p, "/v1/models/") || p == "/adapters" || p == "/adapters/info" || p == "/api/tags" || p == "/api/ps"
}

func (a *Activator) seesAll(r *http.Request) bool {
	has, err := a.mayUse(r)
	return has == nil && err == nil
}

func isWebSocket(r *http.Request, _ *mux.RouteMatch) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

func (a *Activator) refuseWebSocket(w http.ResponseWriter, r *http.Request) {
	a.refuse(w, r, api.Errorf(http.StatusNotImplemented, "", "WebSockets are not passed on to model servers, but for %s?model=NAME: use HTTP", api.PathRealtime))
}

func isRealtime(r *http.Request) bool { return r.URL.Path == api.PathRealtime && isWebSocket(r, nil) }

func (a *Activator) serveRealtime(w http.ResponseWriter, r *http.Request) {
	if !isRealtime(r) {
		w.Header().Set("Upgrade", "websocket")
		a.refuse(w, r, api.Errorf(http.StatusUpgradeRequired, "", "%s is for WebSockets: open wss://…%s?model=NAME, or use POST /v1/chat/completions", api.PathRealtime, api.PathRealtime))
		return
	}
	takeProtocolKey(r.Header)
	a.serveOnly(w, r)
}

const headerProtocols = "Sec-Websocket-Protocol"

// Browsers can set no header, and the model server must not see the key.
func takeProtocolKey(h http.Header) {
	const key = "openai-insecure-api-key."
	var rest []string
	for p := range strings.SplitSeq(strings.Join(h[headerProtocols], ","), ",") {
		p = strings.TrimSpace(p)
		found := len(p) >= len(key) && strings.EqualFold(p[:len(key)], key)
		if found && h.Get("Authorization") == "" {
			h.Set("Authorization", "Bearer "+p[len(key):])
		}
		if !found && p != "" {
			rest = append(rest, p)
		}
	}
	if delete(h, headerProtocols); len(rest) > 0 {
		h[headerProtocols] = []string{strings.Join(rest, ", ")}
	}
}

// The query names the model, or there is only one.
func (a *Activator) serveOnly(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("model")
	f, err := a.names.Load().model(name, a.mayList(r))
	if err != nil {
		a.missing(w, r, name, err)
		return
	}
	a.serve(w, r, f, false)
}

// Clients may read the list of adapters.
func isControl(method, p string) bool {
	p = strings.ToLower(path.Clean(p))
	switch {
	case p == "/rouse" || strings.HasPrefix(p, "/rouse/") || p == "/metrics":
		return true
	case p == "/adapters" || strings.HasPrefix(p, "/adapters/"):
		return method != http.MethodGet && method != http.MethodHead
	}
	return false
}

// keptPath matches what a store keeps.
var keptPath = lazyregexp.New(`^/v1/(files|batches|conversations|messages/batches)(/|$)`)

// unknownPath suggests the intended path.
func unknownPath(r *http.Request) *api.Error {
	meant := ""
	clean := path.Clean("/" + r.URL.Path)
	for k, p := range []string{clean, "/v1" + clean, strings.TrimPrefix(clean, "/v1"), clean + "s", clean + "/models", clean + "/chat/completions"} {
		if _, is := api.FindPath(r.Method, p); (is || k < 3 && keptPath().MatchString(p)) && p != r.URL.Path {
			meant = ": did you mean " + p + "? A base URL ends in /v1 for clients of OpenAI's API, and without it for those of Anthropic's and Ollama's"
			break
		}
	}
	return api.Errorf(http.StatusNotFound, api.CodeUnknownPath, "unknown path %s %s%s", quoteMethod(r.Method), quoteName(r.URL.Path), meant)
}

// The request never became a call.
func (a *Activator) refuse(w http.ResponseWriter, r *http.Request, err *api.Error) {
	Identify(w, r)
	a.unrouted.Refused(err.Code)
	a.unrouted.Done(err.Status, 0)
	api.WriteErrorTo(w, r, err)
}

// WriteError refuses a request as an activator would: with an ID, in the format of its API.
func WriteError(w http.ResponseWriter, r *http.Request, err error) {
	Identify(w, r)
	api.WriteErrorTo(w, r, err)
}

func (a *Activator) notFound(w http.ResponseWriter, r *http.Request) { a.refuse(w, r, unknownPath(r)) }

func (a *Activator) methodNotAllowed(w http.ResponseWriter, r *http.Request) {
	allow := "GET, HEAD"
	switch p := r.URL.Path; p {
	case "/", "/api/tags", "/api/ps", "/api/version", "/v1/models", "/healthz", "/health", "/readyz", "/metrics", "/ping", "/version", api.PathRealtime:
	default:
		if !strings.HasPrefix(p, "/v1/models/") && !strings.HasPrefix(p, "/api/2.0/") {
			allow = http.MethodPost
		}
	}
	w.Header().Set("Allow", allow)
	a.refuse(w, r, api.Errorf(http.StatusMethodNotAllowed, "", "%s %s: want %s", quoteMethod(r.Method), r.URL.Path, allow))
}

// The client controls the method's length.
func quoteMethod(m string) string { return m[:min(len(m), 20)] }

func healthz(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) }

// Anthropic's clients read another header.
func identify(w http.ResponseWriter, r *http.Request, id string) {
	w.Header()[forward.HeaderID] = []string{id}
	if api.ShapeOf(r.URL.Path) == api.ShapeMessages || r.Header["Anthropic-Version"] != nil {
		w.Header()["Request-Id"] = []string{id}
	}
}

// Identify sets the answer's request id, unless it is set.
func Identify(w http.ResponseWriter, r *http.Request) {
	if w.Header().Get(forward.HeaderID) == "" {
		identify(w, r, requestID(r))
	}
}

// The client's own, if it is fit for a log line.
func requestID(r *http.Request) string {
	const most = 128
	id := r.Header.Get(forward.HeaderID)
	if id == "" || len(id) > most {
		return "req_" + rand.Text()
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] >= 0x7f {
			return "req_" + rand.Text()
		}
	}
	return id
}

// The llm-d router's names, then earlier ones of the Gateway API inference extension.
var (
	headersObjective = [...]string{"X-Llm-D-Inference-Objective", "X-Gateway-Inference-Objective"}
	headersTTFT      = [...]string{"X-Llm-D-Slo-Ttft-Ms", "X-Gateway-Slo-Ttft-Ms", "X-Slo-Ttft-Ms"}
	headersTPOT      = [...]string{"X-Llm-D-Slo-Tpot-Ms", "X-Gateway-Slo-Tpot-Ms", "X-Slo-Tpot-Ms"}
)

const headerDropped = "X-Llm-D-Request-Dropped-Reason"

var dropped = map[string]string{
	api.CodeHoldFull:      "rejected-saturated",
	api.CodeBusy:          "rejected-saturated",
	queue.CodeHoldTimeout: "rejected-ttl-expired",
	api.CodeNoCapacity:    "rejected-no-endpoints",
	api.CodeStartFailed:   "rejected-no-endpoints",
	api.CodeShutdown:      "rejected-shutting-down",
	api.CodeClientLeft:    "rejected-context-cancelled",
	queue.CodeEvicted:     "evicted-priority",
}

func first(h http.Header, names []string) string {
	for _, name := range names {
		if v := h.Get(name); v != "" {
			return v
		}
	}
	return ""
}

// The time to the first token orders a client's requests; the time per output token is for a scheduler behind us.
func (r *request) objectives() *api.Error {
	for _, names := range [][]string{headersTTFT[:], headersTPOT[:]} {
		v := first(r.in.Header, names)
		if v == "" {
			continue
		}
		ms, err := strconv.ParseFloat(v, 64)
		if err != nil || !(ms > 0 && ms <= 1e9) {
			return api.BadRequest("", "the header %s is %s: want milliseconds, such as 500", names[0], quoteName(v))
		}
		if &names[0] == &headersTTFT[0] {
			r.due = r.begun.Add(time.Duration(ms * float64(time.Millisecond)))
		}
	}
	return nil
}

// objective sets the priority of the objective that the request names, if any are declared.
func (c *call) objective() *api.Error {
	name := first(c.req.in.Header, headersObjective[:])
	if name == "" || c.a.deps.Keys == nil {
		return nil
	}
	priority, declared, some := c.a.deps.Keys.Objective(name)
	switch {
	case !some:
		return nil
	case !declared:
		return api.BadRequest("", "there is no objective %s: the file of keys declares others", quoteName(name))
	}
	c.req.Priority, c.req.Tier = priority, ""
	return nil
}

// Another activator takes over.
const retryElsewhere = time.Second

func shuttingDown() *api.Error {
	return api.Errorf(http.StatusServiceUnavailable, api.CodeShutdown, "the server is shutting down: try again").WithRetryAfter(retryElsewhere)
}

type flight struct {
	n        atomic.Int64
	draining atomic.Bool
	// Closed, once, when the activator drains and no request is in flight.
	idle     chan struct{}
	idleOnce sync.Once
}

// [flight.leave] must follow also after false, when the activator is draining.
func (f *flight) arrive() bool {
	f.n.Add(1)
	return !f.draining.Load()
}

func (f *flight) leave() {
	if f.n.Add(-1) == 0 && f.draining.Load() {
		f.idleOnce.Do(func() { close(f.idle) })
	}
}

// Drain refuses new requests and blocks until the others have finished. If ctx ends first, it ends them with an
// error, tells their clients and returns ctx's cause. Draining can't be undone.
func (a *Activator) Drain(ctx context.Context) error {
	a.inFlight.arrive()
	a.inFlight.draining.Store(true)
	a.inFlight.leave()
	select {
	case <-a.inFlight.idle:
		return nil
	case <-ctx.Done():
	}
	for _, f := range a.All() {
		f.RefuseWaiting(shuttingDown())
		f.EndAll(shuttingDown())
	}
	grace := time.NewTimer(cutGrace)
	defer grace.Stop()
	select {
	case <-a.inFlight.idle:
	case <-grace.C: // for a client that does not read
	}
	return context.Cause(ctx)
}

const cutGrace = time.Second
