package swarm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Config of a [Node].
type Config struct {
	// Group is the secret that the nodes share. At least 16 bytes.
	Group []byte
	// Peers returns the addresses of the other nodes, host:port. This node may be among them. It is called every few
	// seconds while something is fetched.
	Peers func(context.Context) ([]string, error)
	// Find returns a whole file that another process, or an earlier one, has left, by the name that [File.ID] gives it;
	// nil: there is none. It may be nil.
	Find func(id string) *File
	// Uploads is how many chunks are sent at once; 0: 4: few, so that each is soon somewhere else and passed on from there.
	// Others wait for a moment, and are then told to come back.
	Uploads int
	// FromSource is how many chunks of a file are fetched from its source at once, and FromPeer from each peer; 0: 4 and 2.
	FromSource, FromPeer int
	// Stall is how long a peer may bring nothing before it counts as gone; 0: 10 s.
	Stall time.Duration
	// Chunk is the size of chunks, for tests; 0: [ChunkSize].
	Chunk int64
	// Client asks peers; nil: one of its own, without a proxy.
	Client *http.Client
	// Logger; nil: none.
	Logger *slog.Logger
}

// waitLog is how long a question for news waits at a peer, waitTurn one for a chunk, avoidFor how long who has lied is not asked in other downloads,
// and maxWaiting how many questions may wait.
const (
	waitLog    = 5 * time.Second
	waitTurn   = time.Second
	avoidFor   = 10 * time.Minute
	maxWaiting = 256
)

// Node is one process among those that share files.
type Node struct {
	cfg  Config
	name string
	mux  *http.ServeMux
	// settle and patience are the constants of these names, but for tests.
	settle, patience time.Duration
	uploads          chan struct{} // a place for each chunk that is being sent
	waiting          chan struct{} // a place for each question that waits

	mu    sync.Mutex // guards below
	files map[string]*held
	bad   map[string]time.Time // who has lied, by address, and until when it is avoided
}

// New returns a node. It starts nothing: [Node.ServeHTTP] answers peers, if somebody listens for it.
func New(cfg Config) (*Node, error) {
	if len(cfg.Group) < 16 {
		return nil, errors.New("the secret of those who share files is too short: want 16 bytes at least")
	}
	if cfg.Uploads < 0 || cfg.FromSource < 0 || cfg.FromPeer < 0 || cfg.Chunk < 0 || cfg.Stall < 0 {
		return nil, errors.New("swarm: negative numbers in the configuration")
	}
	cfg.Uploads, cfg.FromSource, cfg.FromPeer = cmp.Or(cfg.Uploads, 4), cmp.Or(cfg.FromSource, 4), cmp.Or(cfg.FromPeer, 2)
	cfg.Stall = cmp.Or(cfg.Stall, 10*time.Second)
	if cfg.Peers == nil {
		cfg.Peers = func(context.Context) ([]string, error) { return nil, nil }
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Client == nil {
		cfg.Client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: cfg.FromPeer + 1, IdleConnTimeout: time.Minute}}
	}
	client := *cfg.Client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	cfg.Client = &client
	n := &Node{cfg: cfg, name: randomID(), files: map[string]*held{}, bad: map[string]time.Time{}, mux: http.NewServeMux(), settle: settle, patience: patience,
		uploads: make(chan struct{}, cfg.Uploads), waiting: make(chan struct{}, maxWaiting)}
	n.mux.HandleFunc("GET "+Prefix+"{id}/{what}", n.answer)
	return n, nil
}

// File is a whole file, proved to be right.
type File struct {
	Right Right
	Size  int64
	Chunk int64 // the size of the chunks
	Sums  []Sum // of the chunks
	// Open opens it. An error that wraps fs.ErrNotExist says that it is gone.
	Open func() (ReaderAtCloser, error)
}

// ID names a file in this group, for [Config.Find].
func (n *Node) ID(r Right) string { return NewKey(n.cfg.Group, r).id() }

// held returns the file that a path names.
func (n *Node) held(id string) *held {
	n.mu.Lock()
	h := n.files[id]
	n.mu.Unlock()
	if h != nil || n.cfg.Find == nil {
		return h
	}
	f := n.cfg.Find(id)
	if f == nil {
		return nil
	}
	return n.share(f)
}

// share serves a whole file, unless the node has it already.
func (n *Node) share(f *File) *held {
	l := layout{f.Size, f.Chunk}
	if f.Size <= 0 || f.Size > maxSize || f.Chunk <= 0 || len(f.Sums) != l.count() {
		return nil
	}
	h := newHeld(NewKey(n.cfg.Group, f.Right), l, f.Open)
	for i, s := range f.Sums {
		h.say(i, proven, s)
	}
	h.prove()
	n.mu.Lock()
	defer n.mu.Unlock()
	id := h.key.id()
	if there := n.files[id]; there != nil {
		return there
	}
	n.files[id] = h
	return h
}

// forget serves a file no longer.
func (n *Node) forget(h *held) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if id := h.key.id(); n.files[id] == h {
		delete(n.files, id)
	}
}

// Prefix begins the paths that [Node.ServeHTTP] answers.
const Prefix = "/rouse/v1/files/"

// ServeHTTP answers peers: at ID/log what this node has of a file, at ID/N?sum=HEX chunk N,
// if it has that SHA-256. Answers are sealed with the
// file's key.
func (n *Node) ServeHTTP(w http.ResponseWriter, r *http.Request) { n.mux.ServeHTTP(w, r) }

func (n *Node) answer(w http.ResponseWriter, r *http.Request) {
	h := n.held(r.PathValue("id"))
	switch {
	case h == nil:
		http.NotFound(w, r)
	case r.PathValue("what") == "log":
		n.answerLog(w, r, h)
	default:
		n.answerChunk(w, r, h)
	}
}

// answerLog waits until there is news.
func (n *Node) answerLog(w http.ResponseWriter, r *http.Request, h *held) {
	q := r.URL.Query()
	after, _ := strconv.Atoi(q.Get("after")) // 0 is the beginning
	select {
	case n.waiting <- struct{}{}:
		defer func() { <-n.waiting }()
	default:
		http.Error(w, "too many ask", http.StatusServiceUnavailable)
		return
	}
	enough := time.NewTimer(waitLog)
	defer enough.Stop()
	p, some, news := h.page(q.Get("log"), after, q.Get("whole") == "1")
	for !some {
		select {
		case <-news:
			p, some, news = h.page(q.Get("log"), after, q.Get("whole") == "1")
			continue
		case <-enough.C:
		case <-r.Context().Done():
			return
		}
		break
	}
	p.Node = n.name
	text, err := json.Marshal(p)
	if err != nil {
		http.Error(w, "the log can't be told", http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(h.key.seal("log", text)) // who is gone asks again
}

func (n *Node) answerChunk(w http.ResponseWriter, r *http.Request, h *held) {
	i, err := strconv.Atoi(r.PathValue("what"))
	var sum Sum
	if err != nil || i < 0 || i >= h.count() || sum.UnmarshalText([]byte(r.URL.Query().Get("sum"))) != nil {
		http.NotFound(w, r)
		return
	}
	turn := time.NewTimer(waitTurn)
	defer turn.Stop()
	select {
	case n.uploads <- struct{}{}:
		defer func() { <-n.uploads }()
	case <-turn.C:
		http.Error(w, "too many ask", http.StatusServiceUnavailable)
		return
	case <-r.Context().Done():
		return
	}
	b, err := h.read(i, sum)
	switch {
	case errors.Is(err, errNotHeld):
		http.NotFound(w, r)
		return
	case err != nil:
		n.cfg.Logger.Warn("a chunk can't be shared", "chunk", i, "error", err)
		h.say(i, lost, Sum{})
		if errors.Is(err, fs.ErrNotExist) {
			n.forget(h)
		}
		http.Error(w, "the chunk is lost", http.StatusGone)
		return
	}
	sealed := h.key.seal(question(i), b)
	w.Header().Set("Content-Length", strconv.Itoa(len(sealed)))
	_, _ = w.Write(sealed) // who is gone asks again
}

// question is what a sealed chunk answers.
func question(chunk int) string { return fmt.Sprintf("chunk %d", chunk) }

// avoid notes that a peer has lied.
func (n *Node) avoid(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	for a, until := range n.bad {
		if until.Before(now) {
			delete(n.bad, a)
		}
	}
	n.bad[addr] = now.Add(avoidFor)
}

func (n *Node) avoided(addr string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.bad[addr].After(time.Now())
}
