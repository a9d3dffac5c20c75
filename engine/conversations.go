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
	"github.com/rouse-dev/rouse/engine/wire"
	"github.com/rouse-dev/rouse/engine/worker"
)

// Keep says what of the prefix cache outlives a sleep, so that a conversation goes on after it without being computed
// again. The zero value keeps nothing.
//
//  1. At level 1 the blocks that were used last stay in the worker's memory, and all others are given back.
//  2. At level 2, and when Run ends, the blocks are written to a file, if a folder is named.
//  3. A prompt that begins with blocks that are in files has them read into the cache before it is scheduled.
type Keep struct {
	// Memory is the most bytes that stay at level 1; 0: none.
	Memory int64
	// Dir is the folder of the files; "": none are written or read. They hold what clients wrote.
	Dir string
	// Limit is the most bytes of all files together; 0: there are none.
	Limit int64
	// Age is how long a file lives that nobody uses; 0: for ever.
	Age time.Duration
	// Model is a digest of what computes: the model's file. Where it takes long to make it is nil, and Digest makes it,
	// in a goroutine of Run; until then no files are used.
	Model  *[32]byte
	Digest func(ctx context.Context) ([32]byte, error)
	// Same says whether the model's file is still what it was before the worker loaded it; nil: it can't change. Once
	// it is not, nothing that was kept is used.
	Same func() bool
	// Log gets what is wrong with files; nil discards it.
	Log *slog.Logger
}

// format changes with whatever else decides what a block's contents mean.
const format = "rouse kv 1"

// saveTime bounds how long blocks are written: somebody waits for the memory.
const saveTime = 3 * time.Second

// recallTime bounds how long blocks are read: everybody waits meanwhile.
const recallTime = 3 * time.Second

// logger is never nil.
func (k *Keep) logger() *slog.Logger {
	if k.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return k.Log
}

// files says whether blocks go to files.
func (k *Keep) files() bool { return k.Dir != "" && k.Limit > 0 }

// openStore finds the files, at once or when the model's digest is made. The function that it returns waits for that.
func (e *Engine) openStore(ctx context.Context) (wait func()) {
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

// useStore opens the files of a model. The key is of everything that decides what it computes.
func (e *Engine) useStore(model [32]byte) {
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

// unchanged says whether the model's file is what it was. If it is not, a worker that is replaced or woken may compute with other
// weights: files are used no more.
func (e *Engine) unchanged() bool {
	if e.cfg.Keep.Same == nil || e.cfg.Keep.Same() {
		return true
	}
	if e.store != nil {
		e.cfg.Keep.logger().Warn("the model's file was changed since it was loaded: conversations are not kept in files until the next start")
		e.store = nil
	}
	return false
}

// keepFor prepares a sleep: it returns the blocks that stay in memory. All others have no name afterwards.
func (e *Engine) keepFor(ctx context.Context, level int) []int32 {
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

// save writes the named blocks that are in no file to one, those that were used last first. Nothing may be in flight.
func (e *Engine) save(ctx context.Context) {
	if e.store == nil || e.down || !e.unchanged() {
		return
	}
	ids, names := e.pool.Newest(e.pool.Count())
	e.write(ctx, ids, names)
}

// write writes blocks, by their names, to a file, but for those that are in one.
func (e *Engine) write(ctx context.Context, ids []int32, names []block.Hash) {
	ctx, cancel := context.WithTimeout(ctx, saveTime)
	defer cancel()
	n, err := e.store.Save(ctx, names, func(path string, offset int64, numbers []int) ([]uint64, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTime) // what has begun is finished
		defer cancel()
		f := wire.File{Path: path, Offset: offset}
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

// saveLast saves when Run ends. Of what is in flight it waits for the end, or nothing is sure.
func (e *Engine) saveLast(ctx context.Context) {
	if e.store == nil {
		return
	}
	if ctx = context.WithoutCancel(ctx); e.land(ctx) {
		e.save(ctx)
	}
}

// land waits until nothing is in flight, and says whether that is so.
func (e *Engine) land(ctx context.Context) bool {
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

// handOver writes the blocks of what runs to a file, so that another engine with the same folder goes on without computing them. What
// was made until then is sent. Without a folder, or where writing fails, the other one computes them.
func (e *Engine) handOver(ctx context.Context) {
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

// recall reads blocks that tokens begin with, and that are in files alone, into the cache. What does not fit, or can't be
// read, is computed.
func (e *Engine) recall(tokens []int32, root block.Hash) {
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
	for _, n := range names[:found] { // held, they are not evicted for those that follow them
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
		f := wire.File{Path: r.Path, Offset: r.Offset, Blocks: ids[at:], Sums: r.Sums[:len(ids)-at]}
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

// unique is what adapters of this process have in their identity whose files are not known.
var unique = rand.Text()

// identify names what an adapter computes: by its contents where these were the same before and after it
// was loaded, else by a number that no other adapter has.
func (e *Engine) identify(id int32, before, after string) string {
	if before != "" && before == after {
		return before
	}
	return fmt.Sprint(unique, id)
}

// maxAdapterFiles bounds what is read of a folder.
const maxAdapterFiles = 64

// contents is a digest of an adapter's file or folder, which may be one that ships with pico; "": it can't be read.
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
