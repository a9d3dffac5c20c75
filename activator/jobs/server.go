package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/bell"
	"github.com/rouse-dev/rouse/internal/inbound"
)

// Config sets limits, of bytes if not said otherwise. Zero fields have their defaults.
type Config struct {
	// MaxFile defaults to 200 MiB, as at OpenAI.
	MaxFile int64
	// MaxLines bounds the lines of a batch. Default 50,000, as at OpenAI.
	MaxLines int
	// MaxLine defaults to 8 MiB.
	MaxLine int
	// MaxModels bounds the models in a batch. Default 100.
	MaxModels int
	// MaxAnswer bounds a stored answer. Default 32 MiB.
	MaxAnswer int
	// MaxBatches bounds an owner's unfinished batches, MaxLater its unanswered requests. Default 200 and 10,000.
	MaxBatches, MaxLater int
	// Active bounds the running batches. Default 128. One owner may have an eighth of it.
	Active int
	// Memory bounds the bodies and answers in progress. Default 256 MiB.
	Memory int64
	// Gathering is how long after the start models of other clusters may be unknown.
	Gathering time.Duration
	// Gather is how long a batch's results wait for others before they are recorded, unless there are many.
	Gather time.Duration
	// Poll is the interval of looking for awake instances. Default 250 ms.
	Poll time.Duration
}

const (
	linesAbreast    = 1000 // of batches, in flight
	requestsAbreast = 1000 // that are answered later
	attempts        = 3    // if instances fail
	usualPatience   = time.Hour
)

func (c Config) withDefaults() Config {
	c.MaxFile = cmp.Or(c.MaxFile, 200<<20)
	c.MaxLines = cmp.Or(c.MaxLines, 50_000)
	c.MaxLine = cmp.Or(c.MaxLine, 8<<20)
	c.MaxModels = cmp.Or(c.MaxModels, 100)
	c.MaxAnswer = cmp.Or(c.MaxAnswer, 32<<20)
	c.MaxBatches = cmp.Or(c.MaxBatches, 200)
	c.MaxLater = cmp.Or(c.MaxLater, 10_000)
	c.Active = cmp.Or(c.Active, 128)
	c.Memory = max(cmp.Or(c.Memory, 256<<20), 3*int64(c.MaxLine)+int64(c.MaxAnswer))
	c.Poll = cmp.Or(c.Poll, 250*time.Millisecond)
	return c
}

// Front is an [activator.Activator].
type Front interface {
	// Caller identifies a request's sender; the error is an *[api.Error].
	Caller(r *http.Request) (activator.Caller, error)
	// Charge counts a request against the caller's limits; the error is an *[api.Error].
	Charge(ctx context.Context, c activator.Caller) error
	ReadBody(w http.ResponseWriter, r *http.Request, c activator.Caller) (*inbound.Body, error)
	// OwnHost reports whether a host is a function's own.
	OwnHost(host string) bool
	// Room returns the free capacity of a model's instances, or why the caller may not use it.
	Room(c activator.Caller, model string) (activator.Room, *api.Error)
	ServeLater(w http.ResponseWriter, r *http.Request, c activator.Caller, t activator.Terms)
}

// Server serves files, batches, later answers and stored responses.
type Server struct {
	cfg           Config
	store         *store.Store
	front         Front
	log           *slog.Logger
	metrics       *metrics
	keeper        *keeper
	conversations conversations
	gate          gate
	pace          pace
	memory        memory
	uploads       places
	checks        places
	lines         chan struct{} // a place for each line in flight
	work          bell.Bell     // for Run

	began time.Time // when Run began; set before it starts anything

	mu       sync.Mutex // guards the fields below
	batches  pool
	requests pool
}

var (
	errCancelled = errors.New("its client has cancelled it")
	errClosing   = errors.New("the server ends")
	errLost      = errors.New("its claim does not count any more")
)

// New starts no goroutine. log may be nil.
func New(cfg Config, s *store.Store, front Front, log *slog.Logger, registry prometheus.Registerer) (*Server, error) {
	cfg = cfg.withDefaults()
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	b := &Server{cfg: cfg, store: s, front: front, log: log,
		memory: memory{limit: cfg.Memory}, uploads: places{all: 64, each: 8}, checks: places{all: 4, each: 1}, lines: make(chan struct{}, linesAbreast), work: bell.New()}
	var err error
	if b.metrics, err = newMetrics(registry, s.Bytes); err != nil {
		return nil, fmt.Errorf("register metrics of batches: %w", err)
	}
	b.batches = newPool(cfg.Active, max(1, cfg.Active/8), b.runBatch, b.metrics.running)
	b.requests = newPool(requestsAbreast, requestsAbreast, b.runRequest, b.metrics.waiting)
	b.keeper = newKeeper(cfg.MaxAnswer, s, log, func(result string) { b.metrics.responses.WithLabelValues(result).Inc() })
	b.conversations = conversations{keeper: b.keeper, front: front, reads: places{all: 4, each: 2}}
	return b, nil
}

const (
	pathFiles         = "/v1/files"
	pathBatches       = "/v1/batches"
	pathAsync         = "/v1/async"
	pathMessages      = "/v1/messages/batches" // Anthropic's
	pathStored        = responsesPath + "/"    // of a single response
	pathConversations = "/v1/conversations"
)

// kind describes what is under a path. Errors about an id name param.
type kind struct{ path, thing, param string }

var kinds = []kind{{pathFiles, "file", "id"}, {pathBatches, "batch", "batch_id"}, {pathAsync, "request", "id"}, {pathMessages, "message batch", ""}, {pathStored, "response", "response_id"}, {pathConversations, "conversation", "conversation_id"}}

func missing(err error, r *http.Request) error {
	if id := r.PathValue("id"); id != "" && errors.Is(err, store.ErrNotFound) {
		for _, k := range kinds {
			if strings.HasPrefix(r.URL.Path, k.path) {
				return &api.Error{Status: http.StatusNotFound, Param: k.param, Message: fmt.Sprintf("there is no %s %.80q", k.thing, id)}
			}
		}
	}
	return err
}

func isOurs(path string) bool {
	if strings.HasPrefix(path, pathStored) {
		return path != pathStored+"compact" // not a response
	}
	return slices.ContainsFunc(kinds, func(k kind) bool {
		rest, found := strings.CutPrefix(path, k.path)
		return found && (rest == "" || rest[0] == '/')
	})
}

// Handler serves the paths of files and batches, requests for later answers, and responses to be stored; next gets
// all others.
func (s *Server) Handler(next http.Handler) http.Handler {
	ours, next := http.NewServeMux(), s.withStoredResponses(next)
	for _, r := range s.routes() {
		ours.Handle(r.pattern, s.withCaller(r.handler))
	}
	ours.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		inbound.Unread(w, r)
		s.refuse(w, r, api.Errorf(http.StatusNotFound, api.CodeUnknownPath, "unknown path %.10s %.200q", r.Method, r.URL.Path))
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case isOurs(r.URL.Path) && !s.front.OwnHost(r.Host):
			activator.Identify(w, r)
			if strings.HasPrefix(r.URL.Path, pathFiles) && strings.Contains(r.Header.Get("Anthropic-Beta"), "files-api") {
				inbound.Unread(w, r)
				e := api.Errorf(http.StatusNotFound, api.CodeUnsupported, "Anthropic's files API is not served: files here are OpenAI's, put what a message needs into the message")
				api.WriteJSON(w, e.Status, json.RawMessage(e.Body(api.ShapeMessages)))
				return
			}
			ours.ServeHTTP(w, r)
		case r.Method == http.MethodPost && asksLater(r.Header) && !s.front.OwnHost(r.Host):
			s.askLater(w, r, next)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// Without answers on the paths of a [Server] that there is no store, and how to configure one; next gets all others.
func Without(next http.Handler, own func(host string) bool, how string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isOurs(r.URL.Path) || own(r.Host) {
			next.ServeHTTP(w, r)
			return
		}
		inbound.Unread(w, r)
		activator.WriteError(w, r, api.Errorf(http.StatusNotFound, api.CodeUnsupported, "files, batches, later answers, responses and conversations are not kept here: %s", how))
	})
}

// handler answers a caller's request; an error is written to the client.
type handler func(w http.ResponseWriter, r *http.Request, c activator.Caller) error

// route has a pattern of [http.ServeMux].
type route struct {
	pattern string
	handler handler
}

// Paths returns the patterns of all paths of a [Server].
func Paths() (all []string) {
	for _, r := range (&Server{}).routes() {
		all = append(all, r.pattern)
	}
	return all
}

func (s *Server) routes() []route {
	return []route{
		{"POST /v1/files", s.upload},
		{"GET /v1/files", s.listFiles},
		{"GET /v1/files/{id}", s.showFile},
		{"GET /v1/files/{id}/content", s.fileContent},
		{"DELETE /v1/files/{id}", s.deleteFile},
		{"POST /v1/batches", s.createBatch},
		{"GET /v1/batches", s.listBatches},
		{"GET /v1/batches/{id}", withJob(s.findJob, store.PrefixBatch, batchOf)},
		{"POST /v1/batches/{id}/cancel", withJob(s.cancelJob, store.PrefixBatch, batchOf)},
		{"POST /v1/messages/batches", s.createMessages},
		{"GET /v1/messages/batches", s.listMessages},
		{"GET /v1/messages/batches/{id}", withJob(s.findJob, store.PrefixMessages, messagesOf)},
		{"GET /v1/messages/batches/{id}/results", s.messageResults},
		{"POST /v1/messages/batches/{id}/cancel", withJob(s.cancelJob, store.PrefixMessages, messagesOf)},
		{"DELETE /v1/messages/batches/{id}", s.deleteMessages},
		{"GET /v1/async/{id}", s.showLater},
		{"DELETE /v1/async/{id}", s.deleteRequest(store.PrefixAsync, "async")},
		{"GET /v1/responses/{id}", s.showResponse},
		{"DELETE /v1/responses/{id}", s.deleteRequest(store.PrefixResponse, "response")},
		{"GET /v1/responses/{id}/input_items", s.conversations.whole(func(w http.ResponseWriter, r *http.Request, c activator.Caller) error {
			return s.keeper.Items(w, r, c.Owner(), r.PathValue("id"))
		})},
		{"POST /v1/responses/{id}/cancel", s.cancelResponse},
		{"POST /v1/conversations", s.conversations.createConversation},
		{"GET /v1/conversations/{id}", withJob(s.findJob, store.PrefixConversation, conversationOf)},
		{"POST /v1/conversations/{id}", s.conversations.updateConversation},
		{"DELETE /v1/conversations/{id}", s.conversations.deleteConversation},
		{"GET /v1/conversations/{id}/items", s.conversations.whole(s.conversations.listItems)},
		{"POST /v1/conversations/{id}/items", s.conversations.addItems},
		{"GET /v1/conversations/{id}/items/{item}", s.conversations.whole(s.conversations.showItem)},
		{"DELETE /v1/conversations/{id}/items/{item}", s.conversations.whole(s.conversations.deleteItem)},
	}
}

func withJob[T any](do func(owner, id, prefix string) (store.Job, error), prefix string, object func(*http.Request, store.Job) T) handler {
	return func(w http.ResponseWriter, r *http.Request, c activator.Caller) error {
		b, err := do(c.Owner(), r.PathValue("id"), prefix)
		return writeJob(w, r, err, b, object)
	}
}

func writeJob[T any](w http.ResponseWriter, r *http.Request, err error, b store.Job, object func(*http.Request, store.Job) T) error {
	if err == nil {
		api.WriteJSON(w, http.StatusOK, object(r, b))
	}
	return err
}

func (s *Server) withCaller(h handler) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		w := newTimed(out, r)
		defer w.end()
		c, err := s.front.Caller(r)
		if err == nil && r.Method == http.MethodPost && !strings.HasSuffix(r.URL.Path, "/cancel") { // it stores something
			err = s.front.Charge(r.Context(), c)
		}
		if err == nil {
			err = h(w, r, c)
		}
		if err != nil {
			inbound.Unread(w, r)
			s.refuse(w, r, missing(err, r))
		}
	})
}

// refuse writes an error, with the request's id; the store's own errors are only logged.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	err = explain(err)
	activator.Identify(w, r)
	var known *api.Error
	if !errors.As(err, &known) && api.AsError(err).Status == http.StatusInternalServerError {
		s.log.Error("serve a stored object", "request", w.Header().Get("X-Request-Id"), "path", r.URL.Path, "error", err)
		err = api.Errorf(http.StatusInternalServerError, "storage_failed", "the store failed: the server's log has the reason under this request's id")
	}
	if api.AsError(err).Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	api.WriteErrorTo(w, r, err)
}

func explain(err error) error {
	var e *api.Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, store.ErrNotFound):
		return api.Errorf(http.StatusNotFound, "", "there is no such thing, or it is another tenant's")
	case errors.Is(err, store.ErrUnavailable):
		return unavailable()
	case errors.Is(err, store.ErrFull):
		e = api.Errorf(http.StatusInsufficientStorage, "storage_full", "%v", store.ErrFull)
		for cause := err; errors.Is(errors.Unwrap(cause), store.ErrFull); cause = errors.Unwrap(cause) {
			e.Message = cause.Error() // the last one adds only why it is full
		}
		e.NoRetry = true
		return e
	}
	return err
}

// Run runs batches and serves requests until ctx ends and all goroutines have stopped. The store's next server takes over
// what is unfinished.
func (s *Server) Run(ctx context.Context) {
	s.began = time.Now()
	closing, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	var all, watch sync.WaitGroup
	watching, unwatch := context.WithCancel(context.WithoutCancel(ctx))
	watch.Go(func() { s.store.Watch(watching, s.handleNews) })
	sweep := time.NewTicker(time.Minute)
	defer sweep.Stop()
	s.sweep()
	for ctx.Err() == nil {
		s.startJobs(closing, &all)
		select {
		case <-s.work:
		case <-sweep.C:
			s.sweep()
		case <-ctx.Done():
		}
	}
	stop(errClosing)
	all.Wait()
	unwatch() // until then this member's work counts as alive
	watch.Wait()
}

func (s *Server) unknownYet(code string) bool {
	return code == api.CodeModelNotFound && time.Since(s.began) < s.cfg.Gathering
}

func (s *Server) sweep() {
	if n, err := s.store.Sweep(time.Now()); err != nil {
		s.log.Error("delete expired records", "error", err)
	} else if n > 0 {
		s.log.Info("deleted expired records", "records", n)
	}
}

type metrics struct {
	lines, ended, later, responses *prometheus.CounterVec
	running, waiting               prometheus.Gauge
}

// DescribeMetrics registers the metrics of a [Server] without values, for listings.
func DescribeMetrics(reg prometheus.Registerer) error {
	_, err := newMetrics(reg, func() int64 { return 0 })
	return err
}

func newMetrics(reg prometheus.Registerer, bytes func() int64) (*metrics, error) {
	counter := func(subsystem, name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "rouse", Subsystem: subsystem, Name: name, Help: help}, []string{label})
	}
	m := &metrics{
		lines:     counter("batch", "lines_total", "Attempts at lines of batches, by result: completed, failed, retried (an instance failed at it), refused (sent again later).", "result"),
		ended:     counter("batch", "ended_total", "Batches that have ended, by status.", "status"),
		later:     counter("later", "requests_total", "Requests with Prefer: respond-async, by result: answered, cancelled, expired.", "result"),
		responses: counter("store", "responses_total", "Responses with store: true, by result: kept, failed (the store had no room, or could not be written).", "result"),
		running: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "rouse", Subsystem: "batch", Name: "running",
			Help: "Batches that run."}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "rouse", Subsystem: "later", Name: "waiting_requests",
			Help: "Requests with Prefer: respond-async that are being served."}),
	}
	for _, status := range []string{store.Failed, store.Expired} { // present from the start, or the first increase is not seen
		m.ended.WithLabelValues(status)
	}
	stored := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "rouse", Subsystem: "store", Name: "bytes",
		Help: "Files, outputs of batches, later answers and responses, with their records, in bytes."}, func() float64 { return float64(bytes()) })
	for _, c := range []prometheus.Collector{m.lines, m.ended, m.later, m.responses, m.running, m.waiting, stored} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

const (
	usualLine = 10 * time.Second
	mostSpare = time.Hour
)

// due returns when the rest of a batch becomes ordinary demand: early enough even if lines take twice as long as before,
// with a tenth of the window to spare, an hour at most. slots lines run at once.
func due(deadline time.Time, window time.Duration, left, slots int, each, wake time.Duration) time.Time {
	if each <= 0 {
		each = usualLine
	}
	rounds := (left + max(slots, 1) - 1) / max(slots, 1)
	return deadline.Add(-wake - 2*time.Duration(rounds)*each - min(window/10, mostSpare))
}

// pace averages how long lines of each model take. It is safe for concurrent use.
type pace struct {
	mu   sync.Mutex // guards each
	each map[string]time.Duration
}

// maxPaces bounds the models: beyond it, all are forgotten.
const maxPaces = 1000

func (p *pace) record(model string, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old, known := p.each[model]
	switch {
	case known:
		took = old + (took-old)/16
	case p.each == nil || len(p.each) >= maxPaces:
		p.each = map[string]time.Duration{}
	}
	p.each[model] = took
}

// lineTime returns 0 if nothing is known.
func (p *pace) lineTime(model string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.each[model]
}
