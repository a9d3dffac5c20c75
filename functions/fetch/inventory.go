package fetch

import (
	"context"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// inventory is the cache's content while the index is locked.
type inventory struct {
	c       *Cache
	used    api.Bytes // blobs, parts and folders
	entries []entry
	refs    map[string]int         // by blob: how many entries and running fetches need it
	blobs   map[string]fs.FileInfo // by SHA-256
	parts   map[string]fs.FileInfo // by file name
	folders []Entry
}

// lockInventory locks the index until release.
func (c *Cache) lockInventory(ctx context.Context) (v *inventory, release func(), err error) {
	index, err := c.lockIndex(ctx)
	if err == nil {
		v, err = c.inventory()
	}
	if err != nil {
		index.release()
		return nil, nil, err
	}
	return v, index.release, nil
}

func (c *Cache) inventory() (*inventory, error) {
	v := &inventory{c: c, entries: c.entries(), refs: map[string]int{}, folders: c.folders()}
	var err error
	if v.blobs, err = regularFiles(c.blobPath("")); err != nil {
		return nil, err
	}
	if v.parts, err = regularFiles(c.partPath("")); err != nil {
		return nil, err
	}
	for _, info := range v.blobs {
		v.used += api.Bytes(info.Size())
	}
	for _, info := range v.parts {
		v.used += arrivedOf(info)
	}
	for _, e := range v.folders {
		v.used += e.Size
	}
	for _, e := range v.entries {
		for _, f := range e.Files {
			v.refs[f.SHA256]++
		}
	}
	claims, err := regularFiles(c.claimPath(""))
	if err != nil {
		return nil, err
	}
	for key := range claims {
		if l, err := tryLock(c.refLock(key), true); err == nil && l != nil {
			discard(c.claimPath(key)) // its fetch has ended
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
		return nil, fileError("look at the model cache", err)
	}
	files := make(map[string]fs.FileInfo, len(list))
	for _, d := range list {
		info, err := d.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		// [writeFile] may still write a recent one.
		if !strings.HasPrefix(d.Name(), ".new-") || time.Since(info.ModTime()) > time.Hour {
			files[d.Name()] = info
		}
	}
	return files, nil
}

func (c *Cache) claimed(key string) []string {
	text, _ := os.ReadFile(c.claimPath(key))
	return strings.Fields(string(text))
}

// sweep removes superseded entries and what crashes left.
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

// removeTree needs the tree's lock, which it removes too.
func (c *Cache) removeTree(tree string) {
	old := c.treePath(".old-" + tree)
	os.RemoveAll(old)
	if os.Rename(c.treePath(tree), old) == nil { // the name never means half of it
		os.RemoveAll(old)
	} else {
		os.RemoveAll(c.treePath(tree))
	}
	discard(c.treeLock(tree))
}

// remove evicts an entry, with the blobs that nothing else needs, unless it is in use.
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

func (v *inventory) drop(sum string) {
	info, there := v.blobs[sum]
	if v.refs[sum] > 0 || !there || os.Remove(v.c.blobPath(sum)) != nil {
		return
	}
	v.c.dropShares(sum)
	v.used -= api.Bytes(info.Size())
	delete(v.blobs, sum)
}

// dropPart leaves a download that is under way.
func (v *inventory) dropPart(name string) {
	base := strings.TrimSuffix(strings.TrimSuffix(name, ".json"), chunksSuffix)
	l, err := tryLock(v.c.partPath(base), true)
	if err != nil || l == nil {
		return
	}
	defer l.release()
	for _, n := range []string{base + ".json", base + chunksSuffix, base} {
		if err := os.Remove(v.c.partPath(n)); err == nil && v.parts[n] != nil {
			v.used -= arrivedOf(v.parts[n])
			delete(v.parts, n)
		}
	}
}

type victim struct {
	used   time.Time
	remove func()
}

// evict removes the least recently used first, until enough returns true.
func (v *inventory) evict(enough func() bool) {
	var victims []victim
	for _, e := range v.folders {
		victims = append(victims, victim{e.Used, func() { v.removeFolder(e) }})
	}
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
