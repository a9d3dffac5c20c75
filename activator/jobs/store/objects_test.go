package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/activator/jobs/store/faulty"
	"github.com/rouse-dev/rouse/internal/s3"
	"github.com/rouse-dev/rouse/internal/s3/s3test"
)

func openFolder(t *testing.T) Objects {
	t.Helper()
	f, err := OpenFolder(t.TempDir(), time.Second, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func openBucket(t *testing.T, service s3.Service) *Bucket {
	t.Helper()
	b, err := OpenBucket(Config{S3: service, At: "s3://bucket/a/b", Try: 300 * time.Millisecond, Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// TestObjects runs the same tests on all objects, also while the service of a bucket fails some requests.
func TestObjects(t *testing.T) {
	for place, open := range map[string]func(*testing.T) Objects{
		"folder":  openFolder,
		"fake":    func(t *testing.T) Objects { return openBucket(t, s3test.Serve(t, s3test.NewFake())) },
		"gateway": func(t *testing.T) Objects { return openBucket(t, s3test.Gateway(t)) },
		"faulty": func(t *testing.T) Objects {
			faulty, service := faulty.New(t, s3test.Serve(t, s3test.NewFake()))
			b := openBucket(t, service)
			if _, err := b.List(""); err != nil {
				t.Fatal(err)
			}
			faulty.Fail(80)
			return b
		},
	} {
		t.Run(place, func(t *testing.T) {
			t.Run("Conditions", func(t *testing.T) { testConditions(t, open(t)) })
			t.Run("Race", func(t *testing.T) { testRace(t, open(t)) })
			t.Run("Ranges", func(t *testing.T) { testRanges(t, open(t)) })
			t.Run("Lists", func(t *testing.T) { testObjectLists(t, open(t)) })
		})
	}
}

func putBody(t *testing.T, o Objects, key, body string, when Condition) string {
	t.Helper()
	version, err := o.Put(key, []byte(body), when)
	if err != nil {
		t.Fatalf("put %s: %v", key, err)
	}
	return version
}

// refused reports whether the condition of a write did not hold, or it is not known whether it did.
func refused(err error) bool { return errors.Is(err, ErrChanged) || errors.Is(err, ErrUnavailable) }

// testConditions: a write whose condition does not hold changes nothing.
func testConditions(t *testing.T, o Objects) {
	first := putBody(t, o, "kind/owner/id", "1", Condition{Absent: true})
	if _, err := o.Put("kind/owner/id", []byte("2"), Condition{Absent: true}); !refused(err) {
		t.Errorf("created twice: %v", err)
	}
	second := putBody(t, o, "kind/owner/id", "3", Condition{Version: first})
	if first == second {
		t.Errorf("the version %q did not change", first)
	}
	if _, err := o.Put("kind/owner/id", []byte("4"), Condition{Version: first}); !refused(err) {
		t.Errorf("replaced an old version: %v", err)
	}
	if _, err := o.Put("kind/owner/other", []byte("5"), Condition{Version: first}); !refused(err) {
		t.Errorf("replaced what does not exist: %v", err)
	}
	if body, version, err := o.Get("kind/owner/id", 0, 0); string(body) != "3" || version != second || err != nil {
		t.Errorf("%q, %q, %v; want 3, %q", body, version, err, second)
	}
	putBody(t, o, "kind/owner/id", "6", Condition{})
	if _, err := o.Put("kind/owner/id", []byte("7"), Condition{Version: second}); !refused(err) {
		t.Errorf("replaced what was written without a condition: %v", err)
	}
	for range 2 {
		if err := o.Delete("kind/owner/id"); err != nil {
			t.Error(err)
		}
	}
	if _, _, err := o.Get("kind/owner/id", 0, 0); !errors.Is(err, ErrNotFound) {
		t.Errorf("deleted: %v", err)
	}
	if _, err := o.Open("kind/owner/id", 0); !errors.Is(err, ErrNotFound) {
		t.Errorf("deleted: %v", err)
	}
	if _, err := o.Put("kind/owner/id", []byte("8"), Condition{Version: second}); !refused(err) {
		t.Errorf("replaced what was deleted: %v", err)
	}
}

// testRace: of several writers that change an object at once, each change is based on the last one.
func testRace(t *testing.T, o Objects) {
	putBody(t, o, "kind/owner/id", "", Condition{Absent: true})
	const writers, changes = 4, 5
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for n := 0; n < changes; {
				body, version, err := o.Get("kind/owner/id", 0, 0)
				if err == nil {
					_, err = o.Put("kind/owner/id", fmt.Appendf(body, "%d.%d ", w, n), Condition{Version: version})
				}
				switch {
				case err == nil:
					n++
				case errors.Is(err, ErrUnavailable): // it may have happened
					if body, _, err = o.Get("kind/owner/id", 0, 0); err == nil && strings.Contains(string(body), fmt.Sprintf("%d.%d ", w, n)) {
						n++
					}
				case !errors.Is(err, ErrChanged):
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	body, _, err := o.Get("kind/owner/id", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for w := range writers {
		for n := range changes {
			if k := strings.Count(string(body), fmt.Sprintf("%d.%d ", w, n)); k != 1 {
				t.Errorf("the change %d.%d is there %d times", w, n, k)
			}
		}
	}
}

// testRanges: any part of an object can be read.
func testRanges(t *testing.T, o Objects) {
	body := bytes.Repeat([]byte("0123456789"), 30_000)
	putBody(t, o, "kind/owner/id/part", string(body), Condition{})
	for _, part := range [][2]int{{0, 1}, {5, 10}, {299_999, 1}, {100_000, 200_000}, {0, 300_000}} {
		got, _, err := o.Get("kind/owner/id/part", int64(part[0]), int64(part[1]))
		if err != nil || !bytes.Equal(got, body[part[0]:part[0]+part[1]]) {
			t.Errorf("%v: %d bytes, %v", part, len(got), err)
		}
	}
	if got, _, err := o.Get("kind/owner/id/part", 299_990, 0); err != nil || string(got) != "0123456789" {
		t.Errorf("the end: %q, %v", got, err)
	}
	if got, _, err := o.Get("kind/owner/id/part", 299_990, 20); err == nil {
		t.Errorf("beyond the end: %q", got)
	}
	for at, tries := int64(3), 0; ; tries++ { // a reader may be cut
		in, err := o.Open("kind/owner/id/part", at)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(in)
		_ = in.Close()
		if !bytes.Equal(got, body[at:][:len(got)]) {
			t.Fatalf("%d bytes from %d on are not what they were", len(got), at)
		}
		if at += int64(len(got)); err == nil && at == int64(len(body)) {
			break
		}
		if tries == 20 {
			t.Fatal(err)
		}
	}
	putBody(t, o, "kind/owner/empty", "", Condition{})
	if got, _, err := o.Get("kind/owner/empty", 0, 0); len(got) != 0 || err != nil {
		t.Errorf("an empty one: %q, %v", got, err)
	}
}

// testObjectLists: a list has all keys with a prefix, in order, and shows which of them have changed.
func testObjectLists(t *testing.T, o Objects) {
	keys := []string{"format", "a/b/1", "a/b/2", "a/b-/1", "a/B/1", "a/b/10", "a/=2e/1/0.M", "c/=/1"}
	for _, k := range keys {
		putBody(t, o, k, "of "+k, Condition{})
	}
	before := map[string]Entry{}
	for prefix, want := range map[string][]string{"": keys, "a/": keys[1:7], "a/b/": {"a/b/1", "a/b/10", "a/b/2"}, "a/b/1": {"a/b/1", "a/b/10"},
		"a/B/": {"a/B/1"}, "none/": nil, "a/none/": nil} {
		all, err := o.List(prefix)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range all {
			got = append(got, e.Key)
			before[e.Key] = e
			if e.Size != int64(len("of "+e.Key)) || time.Since(e.Modified).Abs() > time.Hour {
				t.Errorf("%+v", e)
			}
		}
		if want = slices.Sorted(slices.Values(want)); !slices.Equal(got, want) {
			t.Errorf("below %q are %v, want %v", prefix, got, want)
		}
	}
	putBody(t, o, "a/b/1", "changed", Condition{})
	all, err := o.List("a/b/")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if changed := e.Version != before[e.Key].Version; changed != (e.Key == "a/b/1") {
			t.Errorf("%s has changed: %v", e.Key, changed)
		}
	}
}

// TestFolderAgain: the next process finds what was written, and nothing that was not.
func TestFolderAgain(t *testing.T) {
	f := openFolder(t).(*Folder)
	putBody(t, f, "format", "{}", Condition{})
	version := putBody(t, f, "a/b/c", "1", Condition{})
	if _, err := f.stage([]byte("unfinished")); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenFolder(f.dir, time.Millisecond, 0); err == nil || !strings.Contains(err.Error(), "another server uses") {
		t.Errorf("opened twice: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := OpenFolder(f.dir, 0, 1<<62)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	putBody(t, f, "a/b/c", "2", Condition{Version: version})
	all, err := f.List("a/")
	if err != nil || len(all) != 1 || all[0].Key != "a/b/c" {
		t.Errorf("%v, %v", all, err)
	}
	if err := f.Room(1); !errors.Is(err, ErrFull) {
		t.Errorf("beyond the spare room: %v", err)
	}
	err = full(&os.PathError{Op: "write", Path: "/secret", Err: syscall.ENOSPC})
	if shown := errors.Unwrap(err); !errors.Is(shown, ErrFull) || shown.Error() != "the store is full: the disk has no room left" || !strings.Contains(err.Error(), "/secret") {
		t.Errorf("clients see %v of %v", shown, err)
	}
}

// TestFolderOfOthers: a folder with anything but a store keeps what it has.
func TestFolderOfOthers(t *testing.T) {
	for _, name := range []string{"tmp/thesis.txt", "files/a", "store.db", "lost+found/x/tmp"} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		f, err := OpenFolder(dir, 0, 0)
		if f != nil {
			err = errors.Join(err, f.Close())
		}
		if ours := strings.HasPrefix(name, "lost"); ours != (err == nil) || !ours && !strings.Contains(err.Error(), "name a folder that is for the store alone") {
			t.Errorf("a folder with %s: %v", name, err)
		}
		if _, err := os.Stat(path); err != nil {
			t.Errorf("it is gone: %v", err)
		}
	}
}

// TestUnavailable: while the service does not answer, methods say so after a bounded time, and work again afterwards.
func TestUnavailable(t *testing.T) {
	faulty, service := faulty.New(t, s3test.Serve(t, s3test.NewFake()))
	b := openBucket(t, service)
	b.cfg.Timeout = 200 * time.Millisecond
	for k := range 2 {
		faulty.Down(true)
		for name, call := range map[string]func() error{
			"put":    func() error { _, err := b.Put("a/b/c", nil, Condition{}); return err },
			"get":    func() error { _, _, err := b.Get("a/b/c", 0, 0); return err },
			"open":   func() error { _, err := b.Open("a/b/c", 0); return err },
			"list":   func() error { _, err := b.List(""); return err },
			"delete": func() error { return b.Delete("a/b/c") },
		} {
			if err := call(); !errors.Is(err, ErrUnavailable) {
				t.Errorf("%s: %v", name, err)
			}
		}
		faulty.Down(false)
		if time.Sleep(retryGate); k == 0 { // the bucket was never checked
			putBody(t, b, "a/b/c", "1", Condition{})
		}
		if _, _, err := b.Get("a/b/c", 0, 0); err != nil {
			t.Errorf("available again: %v", err)
		}
	}
}

// TestStalledOpen: opening an object is tried again if the service does not begin to answer.
func TestStalledOpen(t *testing.T) {
	fake, gave := s3test.NewFake(), make(chan struct{}, 1)
	var stalled atomic.Bool
	b := openBucket(t, s3test.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/a/b/c") && !stalled.Swap(true) {
			select {
			case <-r.Context().Done():
				gave <- struct{}{}
			case <-time.After(time.Minute): // only if the client waits forever
			}
			return
		}
		fake.ServeHTTP(w, r)
	})))
	putBody(t, b, "a/b/c", "0123456789", Condition{})
	in, err := b.Open("a/b/c", 3)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if got, err := io.ReadAll(in); err != nil || string(got) != "3456789" {
		t.Errorf("%q, %v", got, err)
	}
	<-gave
}

// TestNotABucket: a bucket that can't be used is recognised by the first answer.
func TestNotABucket(t *testing.T) {
	ignoring, refusing := s3test.NewFake(), s3test.NewFake()
	ignoring.IgnoreConditions, refusing.RefuseConditions = true, true
	for _, f := range []*s3test.Fake{ignoring, refusing} {
		if _, err := openBucket(t, s3test.Serve(t, f)).List(""); !errors.Is(err, ErrConditions) {
			t.Errorf("a service without conditions: %v", err)
		}
		if keys := f.Keys(); len(keys) != 0 {
			t.Errorf("the objects %v are left", keys)
		}
	}
}

// TestParseURL: a bucket and a prefix of keys, and nothing that would lead elsewhere.
func TestParseURL(t *testing.T) {
	for at, want := range map[string][2]string{"s3://abc": {"abc", ""}, "s3://abc/": {"abc", ""}, "s3://a.b-c/x/y_z/": {"a.b-c", "x/y_z"}} {
		if name, prefix, err := ParseURL(at); err != nil || name != want[0] || prefix != want[1] {
			t.Errorf("%s: %q, %q, %v", at, name, prefix, err)
		}
	}
	for _, at := range []string{"", "s3:", "s3://", "s3://ab", "s3://abc/../x", "s3://abc//x", "s3://abc/ü", "s3://key:secret@abc", "S3://abc", "s3://abc?x=y", "/folder"} {
		if name, prefix, err := ParseURL(at); err == nil {
			t.Errorf("%s is taken, as %q, %q", at, name, prefix)
		}
	}
}
