package fetch

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Entry is a finished reference in the cache, or a function's folder.
type Entry struct {
	Ref      string    `json:"ref"`
	Revision string    `json:"revision,omitempty"` // a commit, a manifest's digest, an entity tag
	Digest   string    `json:"digest"`
	Path     string    `json:"path"`
	Size     api.Bytes `json:"size"` // shared files count for each model
	Used     time.Time `json:"used"` // or fetched
	InUse    bool      `json:"inUse"`
	// Superseded says that the reference has newer content.
	Superseded bool `json:"superseded,omitempty"`
}

// List returns references and functions' folders, the last used first.
func (c *Cache) List(ctx context.Context) ([]Entry, error) {
	index, err := c.lockIndex(ctx)
	if err != nil {
		return nil, err
	}
	defer index.release()
	list := c.folders()
	for _, e := range c.entries() {
		l, err := tryLock(c.treeLock(e.Tree), true)
		if err != nil {
			return nil, err
		}
		list = append(list, Entry{
			Ref: e.Ref, Revision: e.Revision, Digest: e.Digest, Path: filepath.Join(c.treePath(e.Tree), filepath.FromSlash(e.Path)), Size: e.size(),
			Used: e.used, InUse: l == nil, Superseded: strings.Contains(e.key, superseded),
		})
		l.release()
	}
	slices.SortFunc(list, func(a, b Entry) int { return b.Used.Compare(a.Used) })
	return list, nil
}

// Unfinished returns the size of downloads that are under way or were ended.
func (c *Cache) Unfinished() (n api.Bytes) {
	parts, _ := regularFiles(c.partPath(""))
	for _, info := range parts {
		n += arrivedOf(info)
	}
	return n
}

// Prune evicts the least recently used, but nothing in use, down to limit bytes. It returns the freed size.
func (c *Cache) Prune(ctx context.Context, limit api.Bytes) (api.Bytes, error) {
	v, release, err := c.lockInventory(ctx)
	if err != nil {
		return 0, err
	}
	defer release()
	before := v.used
	v.sweep()
	v.evict(func() bool { return v.used <= limit })
	return before - v.used, nil
}

// Remove evicts a reference or folder, and returns the freed size. It fails if the cache lacks it, or it is in use.
func (c *Cache) Remove(ctx context.Context, ref string) (api.Bytes, error) {
	r, err := Parse(ref)
	if err != nil {
		return 0, err
	}
	v, release, err := c.lockInventory(ctx)
	if err != nil {
		return 0, err
	}
	defer release()
	before, found, removed := v.used, false, false
	for _, e := range v.folders {
		if e.Ref == ref {
			found, removed = true, v.removeFolder(e)
		}
	}
	key := r.key(c.source(r).origin)
	for _, e := range v.entries {
		if e.key == key {
			found, removed = true, v.remove(e)
			break
		}
	}
	switch {
	case !found:
		return 0, fmt.Errorf("%s is not in the model cache %s", r, c.cfg.Dir)
	case !removed:
		return 0, fmt.Errorf("%s is in use: stop the functions that serve it first", r)
	}
	return before - v.used, nil
}

type entry struct {
	*record
	key  string
	used time.Time
}

func (c *Cache) entries() []entry {
	files, err := os.ReadDir(filepath.Join(c.cfg.Dir, "entries"))
	if err != nil {
		return nil
	}
	var all []entry
	for _, f := range files {
		key, ok := strings.CutSuffix(f.Name(), ".json")
		info, err := f.Info()
		if !ok || err != nil {
			continue
		}
		if r := readRecord(c.entryPath(key)); r != nil {
			all = append(all, entry{r, key, info.ModTime()})
		}
	}
	return all
}

// room evicts until the plan's missing files fit, and fails at once if they can't.
func (f *fetching) room(ctx context.Context, p *plan, layers []layer) error {
	v, release, err := f.c.lockInventory(ctx)
	if err != nil {
		return err
	}
	defer release()
	var total, need, keep api.Bytes // keep: what has arrived
	known := true
	counted := map[string]bool{}
	for i, file := range p.files {
		known = known && file.size >= 0
		size := max(file.size, 0)
		total += size
		part := partID(file)
		if layers[i].SHA256 != "" || counted[part] {
			continue
		}
		counted[part] = true
		if info := v.blobs[file.sums.sha256]; info != nil && api.Bytes(info.Size()) == size {
			keep += size
		} else {
			arrived := api.Bytes(0)
			if info := v.parts[part]; info != nil {
				arrived = min(size, arrivedOf(info))
			}
			keep += arrived
			need += size - arrived
			for _, suffix := range []string{"", ".json", chunksSuffix} {
				delete(v.parts, part+suffix) // it is resumed
			}
		}
		if file.unpack {
			need += size
		}
	}
	if known {
		f.meter.total(total)
	}
	return v.makeRoom(keep, need)
}

// makeRoom evicts until need more bytes fit beside keep.
func (v *inventory) makeRoom(keep, need api.Bytes) error {
	if limit := v.c.cfg.Limit; limit > 0 {
		if keep+need > limit {
			return permanentf("the model needs %s, and the cache may hold %s: raise the limit", keep+need, limit)
		}
		v.evict(func() bool { return v.used+need <= limit })
		if v.used+need > limit {
			return fmt.Errorf("the model cache %s may hold %s, of which %s is in use, and the model needs %s: raise the limit, or stop a function", v.c.cfg.Dir, limit, v.used, need)
		}
	}
	return v.diskRoom(need)
}

// arrivedOf returns a part's size on the disk: one with chunks has gaps.
func arrivedOf(info fs.FileInfo) api.Bytes {
	arrived := api.Bytes(info.Size())
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		arrived = min(arrived, 512*api.Bytes(st.Blocks))
	}
	return arrived
}

func (v *inventory) diskRoom(need api.Bytes) error {
	free, err := v.c.cfg.Free(v.c.cfg.Dir)
	if err != nil {
		return nil // a write will fail if need be
	}
	v.evict(func() bool {
		if free < need {
			free, err = v.c.cfg.Free(v.c.cfg.Dir)
		}
		return err != nil || free >= need
	})
	if free < need {
		if again, err := v.c.cfg.Free(v.c.cfg.Dir); err == nil {
			free = again
		}
	}
	if free < need {
		return &DiskError{Dir: v.c.cfg.Dir, Needed: need, Free: free}
	}
	return nil
}

// tidy removes the claim, unpacked archives and previous content, and evicts down to the limit.
func (c *Cache) tidy(ctx context.Context, key string) error {
	index, err := c.lockIndex(ctx)
	if err != nil {
		return err
	}
	defer index.release()
	claimed := c.claimed(key)
	discard(c.claimPath(key))
	v, err := c.inventory()
	if err != nil {
		return err
	}
	v.sweep()
	for _, sum := range claimed {
		v.drop(sum)
	}
	if c.cfg.Limit > 0 {
		v.evict(func() bool { return v.used <= c.cfg.Limit })
	}
	return nil
}

// rewrite does nothing if the entry was removed or replaced.
func (c *Cache) rewrite(ctx context.Context, key string, e *record) error {
	index, err := c.lockIndex(ctx)
	if err != nil {
		return err
	}
	defer index.release()
	if now := readRecord(c.entryPath(key)); now == nil || now.Tree != e.Tree {
		return nil
	}
	return c.write(key, e)
}
