package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/engine/block"
	"github.com/rouse-dev/rouse/engine/keep"
	"github.com/rouse-dev/rouse/engine/pico"
	"github.com/rouse-dev/rouse/engine/worker"
)

// Keep configures which part of the prefix cache survives a sleep; zero: none.
//
//  1. At level 1 the most recently used blocks stay in the worker's memory.
//  2. At level 2, and when Run ends, blocks are written to a file.
//  3. If a prompt begins with blocks in files, they are read before it is scheduled.
type Keep struct {
	// Memory is in bytes, for level 1.
	Memory int64
	// Dir is for files, which hold what clients wrote; "": none.
	Dir string
	// Limit is the most bytes of all files; 0: no files.
	Limit int64
	// Age is how long an unused file lives; 0: forever.
	Age time.Duration
	// Model is a digest of the model's file. If nil, Run calls Digest; until it returns no files are used.
	Model  *[32]byte
	Digest func(ctx context.Context) ([32]byte, error)
	// Same reports whether the model's file is still what the worker loaded; nil: it is. After false kept blocks are
	// not used.
	Same func() bool
	// Log may be nil.
	Log *slog.Logger
}

// format must change when the meaning of a block's bytes does.
const format = "rouse kv 1"

// saveTime bounds writing: somebody waits for the memory.
const saveTime = 3 * time.Second

// recallTime bounds reading: all requests wait.
const recallTime = 3 * time.Second

func (k *Keep) logger() *slog.Logger {
	if k.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return k.Log
}

func (k *Keep) files() bool { return k.Dir != "" && k.Limit > 0 }

// openStore opens the files, maybe once the digest is computed. wait cancels that and blocks until it has ended.
func (e *loop) openStore(ctx context.Context) (wait func()) {
	k := &e.cfg.Keep
	switch {
	case !k.files() || e.cfg.NoPrefix:
		return func() {}
	case !e.info.Saves:
		k.logger().Warn("this kind of worker can't save conversations: the folder is not used", "dir", k.Dir)
		return func() {}
	case k.Model != nil:
		e.useStore(*k.Model)
		return func() {}
	}
	var others sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	others.Go(func() {
		sum, err := k.Digest(ctx)
		if err == nil {
			e.send(func(context.Context) { e.useStore(sum) })
		} else if ctx.Err() == nil {
			k.logger().Warn("the model's file can't be read: conversations are not kept in files", "error", err)
		}
	})
	return func() {
		cancel()
		others.Wait()
	}
}

// The key covers what decides what the model computes.
func (e *loop) useStore(model [32]byte) {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%x\n%+v\n%d %d\n", format, model, e.info.Model, e.info.BlockSize, e.info.BlockBytes)
	if e.info.Layout != "" {
		fmt.Fprintln(h, e.info.Layout)
	}
	k := &e.cfg.Keep
	s, err := keep.Open(keep.Config{Dir: k.Dir, Limit: k.Limit, Age: k.Age, Key: [32]byte(h.Sum(nil)), BlockBytes: e.info.BlockBytes, Log: k.Log})
	if err != nil {
		k.logger().Warn("conversations are not kept in files", "error", err)
		return
	}
	e.store = s
}

// unchanged: a replaced or woken worker may have other weights than the files, which are then given up.
func (e *loop) unchanged() bool {
	if e.cfg.Keep.Same == nil || e.cfg.Keep.Same() {
		return true
	}
	if e.store != nil {
		e.cfg.Keep.logger().Warn("the model's file was changed since it was loaded: conversations are not kept in files until the next start")
		e.store = nil
	}
	return false
}

// keepFor returns the blocks to keep in memory, and removes the names of all others.
func (e *loop) keepFor(ctx context.Context, level int) []int32 {
	if level > 1 {
		e.save(ctx)
	}
	n := 0
	if level == 1 && e.info.Keeps && e.info.BlockBytes > 0 {
		n = int(min(e.cfg.Keep.Memory/e.info.BlockBytes, int64(e.pool.Count())))
	}
	if n == 0 {
		e.discardFlights()
		return nil
	}
	e.pool.Shed(n)
	ids, _ := e.pool.Newest(n)
	return ids
}

// save needs that nothing is in flight.
func (e *loop) save(ctx context.Context) {
	if e.store == nil || e.down || !e.unchanged() {
		return
	}
	ids, names := e.pool.Newest(e.pool.Count())
	e.write(ctx, ids, names)
}

// write skips blocks that are in a file.
func (e *loop) write(ctx context.Context, ids []int32, names []block.Hash) {
	ctx, cancel := context.WithTimeout(ctx, saveTime)
	defer cancel()
	n, err := e.store.Save(ctx, names, func(path string, offset int64, numbers []int) ([]uint64, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTime) // a write that has begun is finished
		defer cancel()
		f := worker.File{Path: path, Offset: offset}
		for _, i := range numbers {
			f.Blocks = append(f.Blocks, ids[i])
		}
		return e.worker.SaveBlocks(ctx, f)
	})
	if err != nil {
		e.cfg.Keep.logger().Warn("conversations are not kept", "error", err)
	} else if n > 0 {
		e.cfg.Keep.logger().Info("conversations are kept in a file", "blocks", n, "of", len(names))
	}
}

func (e *loop) saveLast(ctx context.Context) {
	if e.store == nil {
		return
	}
	if ctx = context.WithoutCancel(ctx); e.land(ctx) {
		e.save(ctx)
	}
}

// land waits until nothing is in flight, for at most saveTime, and reports whether that is so.
func (e *loop) land(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, saveTime)
	defer cancel()
	for len(e.flights) > 0 {
		select {
		case ev := <-e.worker.Events():
			e.handle(ev)
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// handOver writes the blocks of running sequences to a file and sends their tokens, for an engine with the same folder.
func (e *loop) handOver(ctx context.Context) {
	if e.store == nil || e.down || !e.unchanged() || !e.land(ctx) || e.down {
		return
	}
	e.flush()
	var ids []int32
	var names []block.Hash
	seen := map[block.Hash]bool{}
	for _, q := range e.live {
		for _, name := range block.Chain(nil, q.request.root(), q.known(), e.pool.Size()) {
			id, ok := e.pool.Lookup(name)
			if !ok {
				break
			}
			if !seen[name] {
				seen[name] = true
				ids, names = append(ids, id), append(names, name)
			}
		}
	}
	e.write(ctx, ids, names)
}

// recall reads a prefix's blocks from files into the cache. Those that do not fit, or can't be read, are computed.
func (e *loop) recall(tokens []int32, root block.Hash) {
	if e.store == nil || e.down {
		return
	}
	names := block.Chain(nil, root, tokens, e.pool.Size())
	found, _ := e.pool.Match(names)
	runs := e.store.Find(names[found:])
	if len(runs) == 0 || !e.unchanged() {
		return
	}
	ids := make([]int32, 0, len(names))
	for _, n := range names[:found] { // held, or they are evicted for those after them
		id, _ := e.pool.Take(n)
		ids = append(ids, id)
	}
	ctx, cancel := context.WithTimeout(context.Background(), recallTime)
	defer cancel()
	for _, r := range runs {
		at := len(ids)
		var ok bool
		if ids, ok = e.pool.AllocN(ids, min(len(r.Sums), e.pool.Available())); !ok || len(ids) == at {
			break
		}
		f := worker.File{Path: r.Path, Offset: r.Offset, Blocks: ids[at:], Sums: r.Sums[:len(ids)-at]}
		if err := e.worker.LoadBlocks(ctx, f); err != nil {
			if _, refused := errors.AsType[*worker.OpError](err); refused { // else the worker is gone
				e.store.Drop(r.Path, err)
			}
			break
		}
		for i, id := range ids[at:] {
			e.pool.Register(id, names[at+i])
		}
		e.recalled += len(ids) - at
	}
	e.pool.Free(ids...)
}

// unique is for adapters of unknown contents.
var unique = rand.Text()

// identify returns the contents' digest if loading did not change them, else a unique string.
func identify(id int32, before, after string) string {
	if before != "" && before == after {
		return before
	}
	return fmt.Sprint(unique, id)
}

const maxAdapterFiles = 64

// contents digests a file or folder, maybe pico's; "": it can't be read.
func contents(path string) string {
	dir, root := filepath.Split(filepath.Clean(path))
	from := os.DirFS(cmp.Or(dir, "."))
	if name, ok := strings.CutPrefix(path, pico.Name+"/"); ok && pico.AdapterPaths[name] != "" {
		from, root = pico.Adapters, pico.AdapterPaths[name]
	}
	h := sha256.New()
	files := 0
	err := fs.WalkDir(from, root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if files++; files > maxAdapterFiles {
			return errors.New("too many files")
		}
		f, err := from.Open(name)
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // it was only read
		rel, _ := filepath.Rel(root, name)
		fmt.Fprintf(h, "%q\n", rel)
		n, err := io.Copy(h, f)
		fmt.Fprintf(h, "\n%d\n", n)
		return err
	})
	if err != nil || files == 0 {
		return ""
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}
