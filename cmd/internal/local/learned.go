package local

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler"
	"github.com/rouse-dev/rouse/internal/atomicfile"
	"github.com/rouse-dev/rouse/internal/flock"
	"github.com/rouse-dev/rouse/internal/kept"
)

// Bounds of the file of what was learned, and how often it is written.
const (
	mostLearned   = 2000    // two for a function
	mostLearnedAt = 2 << 20 // bytes: more than as many functions with all that is learned of them
	learnedFor    = 90 * 24 * time.Hour
	learnedEvery  = 30 * time.Second
)

// learnedVersion is that of the file; another one is not read.
const learnedVersion = 2

// learned is what starts and wakes of functions took, and when they are wanted, kept in a file over restarts. It helps and is never needed: a file that is
// gone is as good as empty, and one that can't be read is said in a line and written anew. Several servers share one file: each
// adds what it has measured to what is there. Its methods are safe for many goroutines.
type learned struct {
	path string // empty: nothing is kept
	log  *slog.Logger

	mu      sync.Mutex // guards what follows
	entries map[string]learnedEntry
	dirty   map[string]bool // measured since the last write
}

// learnedEntry is what is known of a function as it runs.
type learnedEntry struct {
	autoscaler.Times
	At time.Time `json:"at"`
}

// newLearned reads the file in a folder; an empty one keeps nothing.
func newLearned(dir string, log *slog.Logger) *learned {
	l := &learned{log: log, entries: map[string]learnedEntry{}, dirty: map[string]bool{}}
	if dir == "" {
		return l
	}
	l.path = filepath.Join(dir, "learned.json")
	var err error
	if l.entries, err = readLearned(l.path); err != nil {
		log.Warn("what was learned of starts and wakes can't be read, and is learned again", "file", l.path, "error", err)
	}
	return l
}

// readLearned reads the entries of a file; there are none where it is not there.
func readLearned(path string) (map[string]learnedEntry, error) {
	none := map[string]learnedEntry{}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return none, nil
	}
	if err != nil {
		return none, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return none, cmp.Or(err, errors.New("it is no file"))
	}
	raw, err := io.ReadAll(io.LimitReader(f, mostLearnedAt+1))
	if err != nil {
		return none, err
	}
	if len(raw) > mostLearnedAt {
		return none, fmt.Errorf("it has more than %d bytes", mostLearnedAt)
	}
	entries := make(map[string]learnedEntry)
	if err := kept.Read(raw, learnedVersion, &entries); err != nil || entries == nil {
		return none, err
	}
	return entries, nil
}

// learnedKey names a function by what its starts and wakes depend on.
func learnedKey(f api.Function) string {
	rt := f.Runtime
	size := int64(0)
	if info, err := os.Stat(rt.Model); err == nil {
		size = info.Size() // another file of the same name
	}
	raw, _ := json.Marshal([]any{rt.Kind, rt.Model, size, rt.Command, rt.Args, rt.Endpoint, f.Memory.Devices}) // strings and numbers
	sum := sha256.Sum256(raw)
	return string(f.Name) + "@" + hex.EncodeToString(sum[:8])
}

// Recall implements [autoscaler.Memory].
func (l *learned) Recall(f api.Function) autoscaler.Times {
	key := learnedKey(f)
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.entries[key].Times
	t.Rhythm = l.entries[string(f.Name)].Rhythm // clients come when they come, whatever it runs
	return t
}

// observe learns from what an instance of f reports.
func (l *learned) observe(f api.Function, t autoscaler.Times) {
	if l.path == "" || t == (autoscaler.Times{}) {
		return
	}
	l.note(learnedKey(f), t)
}

// note notes t under a key.
func (l *learned) note(key string, t autoscaler.Times) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.entries[key].Times != t {
		l.entries[key] = learnedEntry{t, time.Now().UTC()}
		l.dirty[key] = true
	}
}

// run writes what is measured until ctx ends. collect notes what is known now.
func (l *learned) run(ctx context.Context, collect func()) error {
	tick := time.NewTicker(learnedEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		collect()
		l.write()
	}
}

// write adds what was measured to the file, whole or not at all. What goes wrong is a line for who debugs: nothing needs the file.
func (l *learned) write() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.path == "" || len(l.dirty) == 0 {
		return
	}
	if err := l.merge(); err != nil {
		l.log.Debug("what was learned of starts and wakes is not kept", "file", l.path, "error", err)
		return
	}
	clear(l.dirty)
}

// merge writes. The caller holds mu.
func (l *learned) merge() error {
	if err := os.MkdirAll(filepath.Dir(l.path), 0o700); err != nil {
		return err
	}
	lock, err := os.OpenFile(l.path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := flock.Wait(lock, flock.Exclusive); err != nil { // whoever has it writes a small file
		return err
	}
	all, _ := readLearned(l.path) // others may have written; what can't be read was said at the start
	for key := range l.dirty {
		all[key] = l.entries[key]
	}
	bound(all, time.Now())
	raw, err := kept.Text(learnedVersion, all)
	if err != nil {
		return err
	}
	return atomicfile.Write(l.path, raw, 0o600)
}

// bound leaves out what is old, and the oldest beyond the bound. What is of a time to come, by a clock that was wrong, is as old as now.
func bound(all map[string]learnedEntry, now time.Time) {
	for key, e := range all {
		if e.At.After(now) {
			e.At = now.UTC()
			all[key] = e
		}
	}
	maps.DeleteFunc(all, func(_ string, e learnedEntry) bool { return now.Sub(e.At) > learnedFor })
	if len(all) <= mostLearned {
		return
	}
	keys := slices.SortedFunc(maps.Keys(all), func(a, b string) int { return all[a].At.Compare(all[b].At) })
	for _, key := range keys[:len(all)-mostLearned] {
		delete(all, key)
	}
}

// collectLearned notes what the autoscaler knows.
func (s *server) collectLearned() {
	for _, v := range s.autoscaler.List() {
		t := autoscaler.Times{Load: v.Learned.Load, Wake: v.Learned.Wake, Sleep: v.Learned.Sleep}
		if v.Learned.Again > 0 {
			t.FirstSleep = v.Learned.FirstSleep
		}
		s.learned.observe(v.Function, t)
	}
	if s.learned.path != "" {
		for name, text := range s.autoscaler.Rhythms() {
			s.learned.note(string(name), autoscaler.Times{Rhythm: text})
		}
	}
}
