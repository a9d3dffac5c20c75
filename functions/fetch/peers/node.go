package peers

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

// Config configures a [Node].
type Config struct {
	// Group is the nodes' secret, at least 16 bytes.
	Group []byte
	// Peers returns addresses, host:port; this node's may be among them. It is called every few seconds.
	Peers func(context.Context) ([]string, error)
	// Find, if not nil, returns a whole file that another process has left, or nil.
	Find func(id string) *File
	// Client; nil: a new one, without a proxy.
	Client *http.Client
	Logger *slog.Logger
}

// File is a whole file with the right SHA-256.
type File struct {
	Right Right
	Size  int64
	// Open may return fs.ErrNotExist, wrapped: the file is gone.
	Open func() (*os.File, error)
}

// Node is one process among those that share files. It is safe for many goroutines.
type Node struct {
	cfg     Config
	name    string
	mux     *http.ServeMux
	uploads chan struct{} // one slot per chunk that is being sent
	// Except in tests chunk is 0, and the others are the constants of these names.
	chunk                                   int64
	settle, steal, peerWithin, answerWithin time.Duration

	mu    sync.Mutex // guards files
	files map[string]*held
}

// maxUploads is low: each chunk soon has another holder.
const maxUploads = 4

// New returns a node. A server must route peers' requests to it.
func New(cfg Config) (*Node, error) {
	if len(cfg.Group) < 16 {
		return nil, errors.New("the secret for sharing files is too short: want 16 bytes at least")
	}
	if cfg.Client == nil {
		cfg.Client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: fromPeer + 1, IdleConnTimeout: time.Minute}}
	}
	client := *cfg.Client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	cfg.Client, cfg.Logger = &client, cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	n := &Node{
		cfg: cfg, name: rand.Text(), mux: http.NewServeMux(), uploads: make(chan struct{}, maxUploads), files: map[string]*held{},
		settle: settle, steal: steal, peerWithin: peerWithin, answerWithin: answerWithin,
	}
	n.mux.HandleFunc("GET "+Prefix+"{id}/{what}", n.answer)
	return n, nil
}

// ID names a file in this group, for [Config.Find].
func (n *Node) ID(r Right) string { return newKey(n.cfg.Group, r).id() }

func (n *Node) find(id string) *held {
	n.mu.Lock()
	h := n.files[id]
	n.mu.Unlock()
	if h != nil || n.cfg.Find == nil {
		return h
	}
	f := n.cfg.Find(id)
	if f == nil || f.Size <= 0 || f.Size > maxSize {
		return nil
	}
	h = &held{key: newKey(n.cfg.Group, f.Right), layout: newLayout(f.Size, n.chunk), open: f.Open, state: state{Node: n.name, Whole: true}}
	n.serve(h)
	return h
}

func (n *Node) serve(h *held) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.files[h.key.id()] = h
}

func (n *Node) forget(h *held) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if id := h.key.id(); n.files[id] == h {
		delete(n.files, id)
	}
}

// Prefix begins the paths that [Node.ServeHTTP] answers.
const Prefix = "/rouse/v2/files/"

// ServeHTTP answers ID/state with this node's chunks, and ID/N with chunk N. The server should have a WriteTimeout: a peer with a broken
// link delays others.
func (n *Node) ServeHTTP(w http.ResponseWriter, r *http.Request) { n.mux.ServeHTTP(w, r) }

// aboutState is the question for a [state]; a chunk's is its number.
const aboutState = "state"

func (n *Node) answer(w http.ResponseWriter, r *http.Request) {
	h, what := n.find(r.PathValue("id")), r.PathValue("what")
	if h == nil {
		http.NotFound(w, r)
		return
	}
	var answer []byte
	var err error
	if what == aboutState {
		answer, err = json.Marshal(h.told())
	} else {
		select {
		case n.uploads <- struct{}{}:
			defer func() { <-n.uploads }()
		case <-r.Context().Done():
			return
		}
		if i, bad := strconv.Atoi(what); bad == nil && strconv.Itoa(i) == what {
			answer, err = h.read(i)
		} else {
			err = errAbsent
		}
	}
	if err != nil {
		if !errors.Is(err, errAbsent) {
			n.cfg.Logger.Warn("reading a file for a peer failed", "error", err)
		}
		if errors.Is(err, fs.ErrNotExist) {
			n.forget(h)
		}
		http.NotFound(w, r)
		return
	}
	sealed := h.key.seal(what, answer)
	w.Header().Set("Content-Length", strconv.Itoa(len(sealed)))
	_, _ = w.Write(sealed) // a peer that is gone asks again
}
