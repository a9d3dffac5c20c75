package fetch

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Entry is a finished reference in the cache.
type Entry struct {
	Ref      string    `json:"ref"`
	Revision string    `json:"revision,omitempty"` // a commit, a manifest's digest, an entity tag
	Digest   string    `json:"digest"`
	Path     string    `json:"path"`
	Size     api.Bytes `json:"size"` // files that models share count for each
	Used     time.Time `json:"used"` // when it was fetched or used last
	InUse    bool      `json:"inUse"`
	// Superseded says that the reference means something newer now.
	Superseded bool `json:"superseded,omitempty"`
}

// List returns the finished references, the one used last first.
func (c *Cache) List(ctx context.Context) ([]Entry, error) {
	index, err := waitLock(ctx, c.indexLock(), true, nil)
	if err != nil {
		return nil, err
	}
	defer index.release()
	var list []Entry
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

// Prune evicts what was not used for longest, until the cache has at most limit
// bytes; 0 evicts all. What is in use, or on its way, stays. It returns how much
// room that made.
func (c *Cache) Prune(ctx context.Context, limit api.Bytes) (api.Bytes, error) {
	index, err := waitLock(ctx, c.indexLock(), true, nil)
	if err != nil {
		return 0, err
	}
	defer index.release()
	v, err := c.inventory()
	if err != nil {
		return 0, err
	}
	before := v.used
	v.sweep()
	v.evict(func() bool { return v.used <= limit })
	return before - v.used, nil
}

// Remove evicts one reference, and returns how much room that made. It is an error
// if the cache does not have it, or somebody uses it.
func (c *Cache) Remove(ctx context.Context, ref string) (api.Bytes, error) {
	r, err := Parse(ref)
	if err != nil {
		return 0, err
	}
	index, err := waitLock(ctx, c.indexLock(), true, nil)
	if err != nil {
		return 0, err
	}
	defer index.release()
	v, err := c.inventory()
	if err != nil {
		return 0, err
	}
	key := r.key(c.source(r).origin)
	for _, e := range v.entries {
		if e.key == key {
			before := v.used
			if !v.remove(e) {
				return 0, fmt.Errorf("%s is in use: stop the functions that serve it first", r)
			}
			return before - v.used, nil
		}
	}
	return 0, fmt.Errorf("%s is not in the model cache %s", r, c.cfg.Dir)
}

// entry is a record with its file.
type entry struct {
	*record
	key  string
	used time.Time
}

// entries reads all entries. What makes no sense is left out.
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

func (c *Cache) records() []*record {
	var all []*record
	for _, e := range c.entries() {
		all = append(all, e.record)
	}
	return all
}

// inventory is what is in the cache. It is valid while the index is locked.
type inventory struct {
	c       *Cache
	used    api.Bytes // blobs and parts
	entries []entry
	refs    map[string]int // blobs, by how many entries and running fetches count on them
	blobs   map[string]fs.FileInfo
	parts   map[string]fs.FileInfo
}

func (c *Cache) inventory() (*inventory, error) {
	v := &inventory{c: c, entries: c.entries(), refs: map[string]int{}}
	var err error
	if v.blobs, err = regularFiles(c.blobPath("")); err != nil {
		return nil, fileError("look at the model cache", err)
	}
	if v.parts, err = regularFiles(c.partPath("")); err != nil {
		return nil, fileError("look at the model cache", err)
	}
	for _, files := range []map[string]fs.FileInfo{v.blobs, v.parts} {
		for _, info := range files {
			v.used += api.Bytes(info.Size())
		}
	}
	for _, e := range v.entries {
		for _, f := range e.Files {
			v.refs[f.SHA256]++
		}
	}
	claims, err := regularFiles(c.claimPath(""))
	if err != nil {
		return nil, fileError("look at the model cache", err)
	}
	for key := range claims {
		if l, err := tryLock(c.refLock(key), true); err == nil && l != nil {
			discard(c.claimPath(key)) // its fetch has ended, well or not
			l.release()
			continue
		}
		for _, sum := range c.claimed(key) {
			v.refs[sum]++
		}
	}
	return v, nil
}

func regularFiles(dir string) (map[string]fs.FileInfo, error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	files := make(map[string]fs.FileInfo, len(list))
	for _, d := range list {
		info, err := d.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		// A young one is being written by [writeFile].
		if !strings.HasPrefix(d.Name(), ".new-") || time.Since(info.ModTime()) > time.Hour {
			files[d.Name()] = info
		}
	}
	return files, nil
}

// claimed are the blobs that a running fetch counts on.
func (c *Cache) claimed(key string) []string {
	text, err := os.ReadFile(c.claimPath(key))
	if err != nil {
		return nil
	}
	return strings.Fields(string(text))
}

// sweep removes what nobody can use any more: superseded entries and the folders
// that crashes left.
func (v *inventory) sweep() {
	for _, e := range slices.Clone(v.entries) {
		if strings.Contains(e.key, superseded) {
			v.remove(e)
		}
	}
	for name := range v.parts {
		if strings.HasPrefix(name, leftover) {
			v.dropPart(name)
		}
	}
	trees, err := os.ReadDir(v.c.treePath(""))
	if err != nil {
		return
	}
	for _, t := range trees {
		named := func(e entry) bool { return e.Tree == t.Name() }
		if slices.ContainsFunc(v.entries, named) {
			continue
		}
		if l, err := tryLock(v.c.treeLock(t.Name()), true); err == nil && l != nil {
			v.c.removeTree(t.Name())
			l.release()
		}
	}
}

// removeTree removes a model's folder and its lock, which is held.
func (c *Cache) removeTree(tree string) {
	old := c.treePath(".old-" + tree)
	os.RemoveAll(old)
	if os.Rename(c.treePath(tree), old) == nil { // so that no half of it has the name
		os.RemoveAll(old)
	} else {
		os.RemoveAll(c.treePath(tree))
	}
	discard(c.treeLock(tree))
}

// remove evicts an entry, with what nobody else needs. It is false if it is in use.
func (v *inventory) remove(e entry) bool {
	l, err := tryLock(v.c.treeLock(e.Tree), true)
	if err != nil || l == nil {
		return false
	}
	defer l.release()
	if err := os.Remove(v.c.entryPath(e.key)); err != nil {
		return false
	}
	v.entries = slices.DeleteFunc(v.entries, func(o entry) bool { return o.key == e.key })
	if !slices.ContainsFunc(v.entries, func(o entry) bool { return o.Tree == e.Tree }) {
		v.c.removeTree(e.Tree)
	}
	for _, f := range e.Files {
		v.refs[f.SHA256]--
		v.drop(f.SHA256)
	}
	v.c.cfg.Logger.Info("evicted model", "ref", e.Ref, "size", e.size().String(), "used", e.used)
	return true
}

// drop removes a blob, if nobody needs it.
func (v *inventory) drop(sum string) {
	info, there := v.blobs[sum]
	if v.refs[sum] > 0 || !there || os.Remove(v.c.blobPath(sum)) != nil {
		return
	}
	v.used -= api.Bytes(info.Size())
	delete(v.blobs, sum)
}

// dropPart removes a download, if nobody works on it.
func (v *inventory) dropPart(name string) {
	base := strings.TrimSuffix(name, ".json")
	l, err := tryLock(v.c.partPath(base), true)
	if err != nil || l == nil {
		return
	}
	defer l.release()
	for _, n := range []string{base + ".json", base} {
		if err := os.Remove(v.c.partPath(n)); err == nil && v.parts[n] != nil {
			v.used -= api.Bytes(v.parts[n].Size())
			delete(v.parts, n)
		}
	}
}

// evict removes things, the one not used for longest first, until enough says so:
// entries, and what fetches that did not finish have left.
func (v *inventory) evict(enough func() bool) {
	type victim struct {
		used   time.Time
		remove func()
	}
	var victims []victim
	for _, e := range v.entries {
		victims = append(victims, victim{e.used, func() { v.remove(e) }})
	}
	for sum, info := range v.blobs {
		if v.refs[sum] == 0 {
			victims = append(victims, victim{info.ModTime(), func() { v.drop(sum) }})
		}
	}
	for name, info := range v.parts {
		victims = append(victims, victim{info.ModTime(), func() { v.dropPart(name) }})
	}
	slices.SortFunc(victims, func(a, b victim) int { return a.used.Compare(b.used) })
	for _, x := range victims {
		if enough() {
			return
		}
		x.remove()
	}
}

// room makes room for what the plan lacks, and says at once if there can't be enough.
func (f *fetching) room(ctx context.Context, p *plan, layers []layer) error {
	index, err := waitLock(ctx, f.c.indexLock(), true, nil)
	if err != nil {
		return err
	}
	defer index.release()
	v, err := f.c.inventory()
	if err != nil {
		return err
	}
	var total, need, keep api.Bytes // keep: what has arrived of this model
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
				arrived = min(size, api.Bytes(info.Size()))
			}
			keep += arrived
			need += size - arrived
			delete(v.parts, part) // no victim: it is resumed
		}
		if file.unpack {
			need += size
		}
	}
	if known {
		f.meter.total(total)
	}
	limit := f.c.cfg.Limit
	if limit > 0 {
		if keep+need > limit {
			return permanentf("the model needs %s, and the cache may hold %s: raise the limit", keep+need, limit)
		}
		v.evict(func() bool { return v.used+need <= limit })
		if v.used+need > limit {
			return fmt.Errorf("the model cache %s may hold %s, of which %s is in use, and the model needs %s: raise the limit, or stop a function", f.c.cfg.Dir, limit, v.used, need)
		}
	}
	return f.diskRoom(v, need)
}

// diskRoom is room on the disk itself.
func (f *fetching) diskRoom(v *inventory, need api.Bytes) error {
	free, err := f.c.cfg.Free(f.c.cfg.Dir)
	if err != nil {
		return nil // nobody knows: a write will tell
	}
	v.evict(func() bool {
		if free < need {
			free, err = f.c.cfg.Free(f.c.cfg.Dir)
		}
		return err != nil || free >= need
	})
	if free < need {
		if again, err := f.c.cfg.Free(f.c.cfg.Dir); err == nil {
			free = again
		}
	}
	if free < need {
		return &DiskError{Dir: f.c.cfg.Dir, Needed: need, Free: free}
	}
	return nil
}

// tidy removes what a finished fetch leaves: its claim, archives that are unpacked,
// the content that the reference named before; then what is over the limit.
func (c *Cache) tidy(ctx context.Context, key string) error {
	index, err := waitLock(ctx, c.indexLock(), true, nil)
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

// rewrite writes an entry anew, unless it is gone or another one by now.
func (c *Cache) rewrite(ctx context.Context, key string, e *record) error {
	text, err := json.MarshalIndent(e, "", "\t")
	if err != nil {
		return fmt.Errorf("write the entry: %w", err)
	}
	index, err := waitLock(ctx, c.indexLock(), true, nil)
	if err != nil {
		return err
	}
	defer index.release()
	if now := readRecord(c.entryPath(key)); now == nil || now.Tree != e.Tree {
		return nil
	}
	return writeFile(c.entryPath(key), text)
}
