package cli

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/cmd/internal/local"
	"github.com/rouse-dev/rouse/internal/disk"
)

// How long nothing must happen before files are read, and the longest wait.
const (
	settle     = 250 * time.Millisecond
	settleMost = 3 * time.Second
)

// mostWatched bounds folders: a user's programs share the kernel's limit.
const mostWatched = 4000

// Watch has s follow the declarations until ctx ends; now are those that it serves already.
func (r *reader) Watch(ctx context.Context, now declaredSet, s local.Declarations, log *slog.Logger) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch what is declared: %w", err)
	}
	defer func() { _ = w.Close() }()
	for _, bad := range now.Bad { // left-out things were reported
		log.Warn(unread, "file", bad.What, "error", bad.Why)
	}
	f := &follower{r: r, s: s, log: slog.New(slog.DiscardHandler), served: map[api.FunctionName]api.Function{}, said: map[string]string{}, watched: map[string]bool{}}
	for _, fn := range now.Functions {
		f.served[fn.Name] = fn
	}
	f.report(now, nil)
	f.log = log
	f.watch(w)
	f.apply(ctx) // changes since
	for {
		if err := changed(ctx, w); err != nil {
			return nil // it is ctx that has ended
		}
		f.watch(w) // new folders, before their content is read
		f.apply(ctx)
	}
}

// changed returns once nothing more happens for a moment.
func changed(ctx context.Context, w *fsnotify.Watcher) error {
	var quiet, most <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e := <-w.Events:
			if e.Op == fsnotify.Chmod {
				continue
			}
			quiet = time.After(settle)
			if most == nil {
				most = time.After(settleMost)
			}
		case err := <-w.Errors: // events are lost, and everything is read
			if err != nil {
				quiet = time.After(settle)
			}
		case <-quiet:
			return nil
		case <-most:
			return nil
		}
	}
}

type follower struct {
	r       *reader
	s       local.Declarations
	log     *slog.Logger
	served  map[api.FunctionName]api.Function
	said    map[string]string // the last report on each thing
	watched map[string]bool
}

func (f *follower) apply(ctx context.Context) {
	set, err := f.r.Read()
	f.report(set, err)
	if err != nil {
		return
	}
	wanted := map[api.FunctionName]api.Function{}
	for _, fn := range set.Functions {
		wanted[fn.Name] = fn
	}
	for _, name := range slices.Sorted(maps.Keys(f.served)) {
		if _, stays := wanted[name]; stays {
			continue
		}
		if err := f.s.Withdraw(ctx, name, f.served[name].Origin); err != nil {
			f.log.Warn("a function is no longer declared, and can't be removed", "function", name, "error", err)
		} else {
			f.log.Info(name.Short()+" is no longer declared", "function", name, "in", f.served[name].Origin)
		}
		delete(f.served, name)
	}
	for _, fn := range set.Functions {
		if old, is := f.served[fn.Name]; is && reflect.DeepEqual(old, fn) {
			continue
		}
		result, err := f.s.Declare(ctx, fn)
		if err != nil {
			f.say(refused+string(fn.Name), "a function can't be declared", "function", fn.Name, "in", fn.Origin, "error", err)
			continue
		}
		delete(f.said, refused+string(fn.Name))
		f.served[fn.Name] = fn
		if result != "unchanged" {
			f.log.Info(fn.Name.Short()+" is "+result, "function", fn.Name, "in", fn.Origin)
		}
	}
}

// report tells each problem once, and again if it was solved in between.
func (f *follower) report(set declaredSet, err error) {
	wrong := map[string]bool{}
	say := func(what, message string, args ...any) {
		wrong[what] = true
		f.say(what, message, args...)
	}
	if err != nil {
		say("", "what is declared can't be taken; everything stays as it was", "error", err)
	}
	for _, bad := range set.Bad {
		say("manifest "+bad.What, unread, "file", bad.What, "error", bad.Why)
	}
	for _, left := range set.Left {
		say("left "+left.What, "something is left out", "what", left.What, "because", left.Why)
	}
	for what := range f.said {
		if !wrong[what] && !strings.HasPrefix(what, refused) && !strings.HasPrefix(what, unwatched) {
			delete(f.said, what)
		}
	}
}

const unread = "a manifest can't be read; its functions stay as they were"

// Prefixes of said's keys for functions and folders, which report leaves alone.
const (
	refused   = "function "
	unwatched = "folder "
)

// say does not repeat itself.
func (f *follower) say(what, message string, args ...any) {
	text := fmt.Sprint(append([]any{message}, args...)...)
	if f.said[what] == text {
		return
	}
	f.said[what] = text
	f.log.Warn(message, args...)
}

func (f *follower) watch(w *fsnotify.Watcher) {
	for dir := range f.watched {
		if _, err := os.Stat(dir); err != nil {
			delete(f.watched, dir) // the kernel has dropped it
		}
	}
	for _, dir := range f.r.folders() {
		if f.watched[dir] || len(f.watched) >= mostWatched {
			continue
		}
		if err := w.Add(dir); err != nil {
			f.say(unwatched+dir, "a folder can't be watched: what changes there is seen after a restart", "folder", dir, "error", err)
			continue
		}
		f.watched[dir] = true
	}
}

// folders returns real paths: a link's new target is another folder.
func (r *reader) folders() (dirs []string) {
	paths := slices.DeleteFunc(slices.Clone(r.from.Files), func(path string) bool { return path == "-" })
	if kept := r.from.Kept; kept != "" && os.MkdirAll(kept, 0o700) == nil { // it may not be writable
		paths = append(paths, kept)
	}
	for _, path := range paths {
		files, _ := manifestFiles(path) // an unreadable one has none
		for _, file := range append(files, path) {
			dirs = append(dirs, behind(file)...)
		}
	}
	trees := r.from.ModelsDirs
	if s := r.from.Ollama; s != nil {
		trees = append(slices.Clone(trees), filepath.Join(s.Dir, "manifests"))
	}
	for _, dir := range trees {
		_ = disk.Walk(dir, func(path string, info fs.FileInfo, err error) error {
			link, linkErr := os.Lstat(path)
			switch {
			case len(dirs) > mostWatched:
				return fs.SkipAll
			case path != dir && strings.HasPrefix(filepath.Base(path), "."):
				if err == nil && info.IsDir() {
					return fs.SkipDir
				}
			case err == nil && info.IsDir(), linkErr == nil && link.Mode()&fs.ModeSymlink != 0:
				dirs = append(dirs, behind(path)...)
			}
			return nil
		})
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// behind returns the folders in which a change may affect path: itself or its folder, because editors replace files, and those of links
// that lead there.
func behind(path string) (dirs []string) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil
	}
	rest := strings.Split(path, string(filepath.Separator))
	at := string(filepath.Separator)
	for links := 0; len(rest) > 0 && links < 40; { // Linux's limit
		next := filepath.Join(at, rest[0])
		to, err := os.Readlink(next)
		rest = rest[1:]
		if err != nil {
			at = next
			continue
		}
		links++
		dirs = append(dirs, at)
		if filepath.IsAbs(to) {
			at = string(filepath.Separator)
		}
		rest = append(strings.Split(to, string(filepath.Separator)), rest...)
	}
	if info, err := os.Stat(at); err != nil || !info.IsDir() {
		at = filepath.Dir(at)
	}
	return append(dirs, at)
}
