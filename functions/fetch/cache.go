package fetch

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/fetch/peers"
)

// Cache is a folder of models. It is safe for many goroutines, and its folder for many processes.
type Cache struct {
	cfg    Config
	uid    uint32       // of its files
	client *http.Client // does not carry credentials to other servers
	node   *peers.Node  // nil: files are not shared
}

// New returns a cache in cfg.Dir, or in a folder inside it if other users may write to that.
func New(cfg Config) (*Cache, error) {
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	dir, uid, err := own(cfg.Dir)
	if err != nil {
		return nil, err
	}
	cfg.Dir = dir
	c := &Cache{cfg: cfg, uid: uid, client: followSafely(cfg.Client)}
	for _, d := range []string{"blobs/sha256", "parts", "entries", "trees", "claims", "locks"} {
		if err := os.MkdirAll(filepath.Join(cfg.Dir, d), 0o755); err != nil {
			return nil, fileError("make the model cache's folder", err)
		}
	}
	if c.node, err = c.newNode(); err != nil {
		return nil, err
	}
	return c, nil
}

// Dir returns the cache's folder.
func (c *Cache) Dir() string { return c.cfg.Dir }

// Model is a model on this machine's disk, where it stays until Release.
type Model struct {
	// Path is loaded by the runtime: a file, a folder like a hub's repository, or for ollama:// a folder for OLLAMA_MODELS.
	Path string
	Size api.Bytes
	// GGUF is the file to load if the files are one GGUF model, of a split one the first; else "".
	GGUF string
	// Name is "name:tag" of a model of ollama://, else "".
	Name string

	release func()
}

// Release lets the model be evicted. It may be called twice, and on the zero Model.
func (m Model) Release() {
	if m.release != nil {
		m.release()
	}
}

// Fetch makes a model available; the caller must call [Model.Release]. It blocks until the model is whole, ctx ends, or an error is
// certain. Concurrent fetches, also by other processes, download once; the next attempt continues an ended download.
//
// progress, if not nil, is called ten times a second at most, by one goroutine at a time, and must not block. Errors are *[Error]; they
// wrap *[DiskError] if the disk is full.
func (c *Cache) Fetch(ctx context.Context, ref string, progress func(Progress)) (Model, error) {
	r, err := Parse(ref)
	if err != nil {
		return Model{}, &Error{Ref: "model", Err: err}
	}
	var m Model
	switch r.Scheme {
	case "":
		m = Model{Path: r.path}
		if isPath(r.path) {
			m, err = c.inPlace(ctx, r, progress)
		}
	case "file":
		m, err = c.inPlace(ctx, r, progress)
	default:
		m, err = c.fetch(ctx, r, progress)
	}
	if err != nil {
		return Model{}, &Error{Ref: r.String(), Err: err}
	}
	return m, nil
}

func (c *Cache) fetch(ctx context.Context, r Ref, progress func(Progress)) (Model, error) {
	src := c.source(r)
	key := r.key(src.origin)
	asked := time.Now()
	good := func(e *record) bool {
		return r.pinned() || c.cfg.Offline || (c.cfg.MaxAge > 0 && time.Since(e.Checked) < c.cfg.MaxAge) || e.Checked.After(asked)
	}
	if m, _, err := c.open(ctx, key, good); err != nil || m != nil {
		return deref(m), err
	}
	if c.cfg.Offline {
		return Model{}, errors.New("the model is not in the cache, and the cache may not ask for it: it is offline")
	}
	path := c.refLock(key)
	l, err := waitLock(ctx, path, true, watch(path, progress))
	if err != nil {
		return Model{}, err
	}
	defer l.release()
	_ = l.file.Truncate(0)                // an earlier holder's progress
	m, old, err := c.open(ctx, key, good) // another process may have finished it
	if err != nil || m != nil {
		return deref(m), err
	}
	f := &fetching{c: c, ref: r, key: key, old: old, meter: newMeter(progress, l.file)}
	defer f.meter.close()
	return f.run(ctx, src)
}

func deref(m *Model) Model {
	if m == nil {
		return Model{}
	}
	return *m
}

// open returns the held model if good accepts its entry and its files are whole; else the entry, if any.
func (c *Cache) open(ctx context.Context, key string, good func(*record) bool) (*Model, *record, error) {
	index, err := c.lockIndex(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer index.release()
	if !c.ours(c.entryPath(key)) {
		return nil, nil, nil
	}
	e := readRecord(c.entryPath(key))
	if e == nil || !good(e) {
		return nil, e, nil
	}
	l, err := waitLock(ctx, c.treeLock(e.Tree), false, nil)
	if err != nil {
		return nil, nil, err
	}
	index.release() // the model is held; reading it through may take a while
	if err := c.whole(ctx, e, c.changed(key, e)); err != nil {
		l.release()
		c.cfg.Logger.Warn("cached model is not whole: fetching the missing files", "ref", e.Ref, "reason", err)
		return nil, e, nil
	}
	now := time.Now()
	_ = os.Chtimes(c.entryPath(key), now, now) // the last use; a read-only cache does without
	m := c.model(e, l)
	return &m, e, nil
}

// model takes over l, which holds e's tree.
func (c *Cache) model(e *record, l *lock) Model {
	tree := c.treePath(e.Tree)
	m := Model{Path: filepath.Join(tree, filepath.FromSlash(e.Path)), Size: e.size(), Name: e.Name}
	if e.GGUF != "" {
		m.GGUF = filepath.Join(tree, filepath.FromSlash(e.GGUF))
	}
	m.release = sync.OnceFunc(l.release)
	return m
}

// commit finishes a reference whose blobs exist: its tree, then its entry. The model is held.
func (c *Cache) commit(ctx context.Context, key string, e *record) (Model, error) {
	index, err := c.lockIndex(ctx)
	if err != nil {
		return Model{}, err
	}
	defer index.release()
	l, err := waitLock(ctx, c.treeLock(e.Tree), false, nil)
	if err != nil {
		return Model{}, err
	}
	err = c.buildTree(e)
	if old := readRecord(c.entryPath(key)); err == nil && old != nil && old.Tree != e.Tree { // its users keep the old one
		err = fileError("write to the model cache", os.Rename(c.entryPath(key), c.entryPath(key+superseded+old.Tree[:8])))
	}
	if err == nil {
		err = c.write(key, e)
	}
	if err != nil {
		l.release()
		return Model{}, err
	}
	return c.model(e, l), nil
}

// superseded marks entries that newer content has replaced.
const superseded = "~"
