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
	"github.com/rouse-dev/rouse/internal/disk"
)

const (
	mostLearned   = 2000    // two for a function
	mostLearnedAt = 2 << 20 // in bytes
	learnedFor    = 90 * 24 * time.Hour
	learnedEvery  = 30 * time.Second
)

const learnedVersion = 2

// learned keeps functions' times and rhythms across restarts. Its file, which servers share, is optional: an unreadable one is replaced. It
// is safe for many goroutines.
type learned struct {
	path string // empty: nothing is kept
	log  *slog.Logger

	mu      sync.Mutex // guards all below
	entries map[string]learnedEntry
	dirty   map[string]bool // since the last write
}

type learnedEntry struct {
	autoscaler.Times
	At time.Time `json:"at"`
}

// newLearned keeps nothing if dir is empty.
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
	if err := disk.Decode(raw, learnedVersion, &entries); err != nil || entries == nil {
		return none, err
	}
	return entries, nil
}

// learnedKey hashes what a function's starts and wakes depend on.
func learnedKey(f api.Function) string {
	rt := f.Runtime
	size := int64(0)
	if info, err := os.Stat(rt.Model); err == nil {
		size = info.Size() // another file of the same name
	}
	raw, _ := json.Marshal([]any{rt.Kind, rt.Model, size, rt.Command, rt.Args, rt.Endpoint, f.Memory.Devices})
	sum := sha256.Sum256(raw)
	return string(f.Name) + "@" + hex.EncodeToString(sum[:8])
}

func (l *learned) Recall(f api.Function) autoscaler.Times {
	key := learnedKey(f)
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.entries[key].Times
	t.Rhythm = l.entries[string(f.Name)].Rhythm // whatever the function runs
	return t
}

func (l *learned) observe(f api.Function, t autoscaler.Times) {
	if l.path == "" || t == (autoscaler.Times{}) {
		return
	}
	l.note(learnedKey(f), t)
}

func (l *learned) note(key string, t autoscaler.Times) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.entries[key].Times != t {
		l.entries[key] = learnedEntry{t, time.Now().UTC()}
		l.dirty[key] = true
	}
}

func every(ctx context.Context, interval time.Duration, do func()) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		do()
	}
}

// write logs errors at debug level: nothing needs the file.
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

// merge needs mu held.
func (l *learned) merge() error {
	if err := os.MkdirAll(filepath.Dir(l.path), 0o700); err != nil {
		return err
	}
	lock, err := os.OpenFile(l.path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := disk.WaitLock(lock, disk.Exclusive); err != nil { // its holder writes a small file
		return err
	}
	all, _ := readLearned(l.path) // others may have written; errors were reported at the start
	for key := range l.dirty {
		all[key] = l.entries[key]
	}
	bound(all, time.Now())
	raw, err := disk.Encode(learnedVersion, all)
	if err != nil {
		return err
	}
	return disk.WriteFile(l.path, raw, 0o600)
}

// bound drops old entries, and the oldest beyond the bound. A wrong clock's future counts as now.
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
