package fetch_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/fetch"
)

func TestTwoProcessesFetchOnce(t *testing.T) {
	o := newOrigin(t)
	content := random(20, 200_000)
	o.set("/a.gguf", served{content: content, etag: `"v1"`})
	gate := make(chan struct{})
	o.answer(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Range") != "" {
			return false
		}
		w.Header().Set("ETag", `"v1"`)
		w.Header().Set("Content-Length", "200000")
		_, _ = w.Write(content[:100_000])
		w.(http.Flusher).Flush()
		<-gate
		_, _ = w.Write(content[100_000:])
		return true
	})
	cfg := config(t, o.Server)
	a := start(t, cfg.Dir, o.URL+"/a.gguf")
	a.line(t, "moving")
	b := start(t, cfg.Dir, o.URL+"/a.gguf")
	if got := b.line(t, "moving"); got != "moving" {
		t.Errorf("who waits says %q, want the progress of the other", got)
	}
	close(gate)
	first, second := a.line(t, "model"), b.line(t, "model")
	if first != second || !strings.HasPrefix(first, "model: ") {
		t.Fatalf("the processes say %q and %q", first, second)
	}
	holds(t, strings.TrimPrefix(first, "model: "), content)
	whole := slices.DeleteFunc(o.seen(), func(s string) bool { return s != "/a.gguf" })
	if len(whole) != 1 {
		t.Errorf("the file was fetched %d times", len(whole))
	}
}

func TestKilledProcessIsResumed(t *testing.T) {
	for name, etag := range map[string]string{"by etag": `"v1"`, "by checksum": ""} {
		t.Run(name, func(t *testing.T) {
			o := newOrigin(t)
			content := random(21, 200_000)
			o.set("/a.gguf", served{content: content, etag: etag})
			ref := o.URL + "/a.gguf"
			if etag == "" {
				ref += "#sha256=" + sumOf(content)
			}
			o.answer(func(w http.ResponseWriter, r *http.Request) bool {
				if r.Header.Get("Range") != "" {
					return false
				}
				if etag != "" {
					w.Header().Set("ETag", etag)
				}
				w.Header().Set("Content-Length", "200000")
				_, _ = w.Write(content[:100_000])
				w.(http.Flusher).Flush()
				<-r.Context().Done()
				return true
			})
			cfg := config(t, o.Server)
			p := start(t, cfg.Dir, ref)
			p.line(t, "moving")
			if n := open(t, cfg).Unfinished(); n <= 0 || n > 200_000 {
				t.Errorf("a fetch that was begun: got %d unfinished bytes, want some", n)
			}
			if err := p.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = p.Wait()
			if left := names(t, filepath.Join(cfg.Dir, "parts")); len(left) == 0 {
				t.Fatal("nothing is left to be resumed")
			}
			if done := names(t, filepath.Join(cfg.Dir, "entries")); len(done) > 0 {
				t.Errorf("entries/ has %q of half a model", done)
			}
			c := open(t, cfg)
			holds(t, fetched(t, c, ref).Path, content)
			seen := o.seen()
			if last := seen[len(seen)-1]; last == "/a.gguf bytes=0-0" || !strings.HasPrefix(last, "/a.gguf bytes=") {
				t.Errorf("the requests are %q, want the last one to resume", seen)
			}
			if left := names(t, filepath.Join(cfg.Dir, "parts")); len(left) > 0 {
				t.Errorf("parts/ still has %q", left)
			}
		})
	}
}

// TestWriteThatFindsNoRoom limits the size of files, which fails in the kernel like a full disk.
func TestWriteThatFindsNoRoom(t *testing.T) {
	o := newOrigin(t)
	content := random(22, 500_000)
	o.set("/a.gguf", served{content: content, etag: `"v1"`})
	cfg := config(t, o.Server)
	p := start(t, cfg.Dir, o.URL+"/a.gguf", "FETCH_TEST_FILE_LIMIT=300000")
	if got := p.line(t, "disk"); got != "disk" {
		t.Errorf("the process says %q, want that the disk is full", got)
	}
	if got := p.line(t, "error"); !strings.Contains(got, cfg.Dir+" is full (195.3 KiB more needed") || !strings.Contains(got, "choose another folder") {
		t.Errorf("the error is %q", got)
	}
	holds(t, fetched(t, open(t, cfg), o.URL+"/a.gguf").Path, content)
	if seen := o.seen(); seen[len(seen)-1] != "/a.gguf bytes=300000-" {
		t.Errorf("the requests are %q, want the last one to go on where the disk was full", seen)
	}
}

func TestManyGoroutinesFetchOnce(t *testing.T) {
	o := newOrigin(t)
	content := random(23, 100_000)
	o.set("/a.gguf", served{content: content, etag: `"v1"`})
	c := open(t, config(t, o.Server))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { holds(t, fetched(t, c, o.URL+"/a.gguf").Path, content) })
	}
	all.Wait()
	if whole := slices.DeleteFunc(o.seen(), func(s string) bool { return s != "/a.gguf" }); len(whole) != 1 {
		t.Errorf("the file was fetched %d times", len(whole))
	}
}

// age moves a model's last use into the past.
func age(t *testing.T, dir, part string, by time.Duration) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "entries", "*"+part+"*.json"))
	if err != nil || len(found) != 1 {
		t.Fatalf("the entries of %s are %q, %v", part, found, err)
	}
	then := time.Now().Add(-by)
	if err := os.Chtimes(found[0], then, then); err != nil {
		t.Fatal(err)
	}
}

func refs(t *testing.T, c *fetch.Cache) []string {
	t.Helper()
	list, err := c.List(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range list {
		all = append(all, filepath.Base(e.Ref))
	}
	return all
}

func TestEvictionTakesTheOldestThatIsNotUsed(t *testing.T) {
	o := newOrigin(t)
	for i, name := range []string{"a", "b", "c", "d", "e"} {
		o.set("/"+name+".gguf", served{content: random(uint64(30+i), 40_000), etag: `"` + name + `"`})
	}
	cfg := config(t, o.Server)
	cfg.Limit = 130_000
	c := open(t, cfg)
	held := fetched(t, c, o.URL+"/a.gguf")
	for _, name := range []string{"b", "c"} {
		m, err := c.Fetch(context.Background(), o.URL+"/"+name+".gguf", nil)
		if err != nil {
			t.Fatal(err)
		}
		m.Release()
	}
	age(t, cfg.Dir, "a.gguf", 3*time.Hour)
	age(t, cfg.Dir, "b.gguf", time.Hour)
	age(t, cfg.Dir, "c.gguf", 2*time.Hour)

	d := fetched(t, c, o.URL+"/d.gguf") // a is older, and held; c is evicted
	if got := refs(t, c); !slices.Equal(got, []string{"d.gguf", "b.gguf", "a.gguf"}) {
		t.Errorf("the cache has %q, want d, b, a", got)
	}
	if left := names(t, filepath.Join(cfg.Dir, "blobs")); len(left) != 3 {
		t.Errorf("there are %d blobs, want 3", len(left))
	}
	fetched(t, c, o.URL+"/b.gguf")
	err := refused(t, c, o.URL+"/e.gguf", "may hold 127 KiB", "is in use", "raise the limit")
	if fetch.Permanent(err) {
		t.Errorf("%v is permanent, and a function may stop", err)
	}
	d.Release()
	fetched(t, c, o.URL+"/e.gguf")
	if got := refs(t, c); slices.Contains(got, "d.gguf") || !slices.Contains(got, "a.gguf") {
		t.Errorf("the cache has %q, want a and no d", got)
	}
	if _, err := os.Stat(held.Path); err != nil {
		t.Error(err)
	}
}

// TestEvictionKeepsWhatIsResumed: a fetch that makes room goes on with its own partial download, however old that is.
func TestEvictionKeepsWhatIsResumed(t *testing.T) {
	o := newOrigin(t)
	o.set("/a.gguf", served{content: random(41, 40_000), etag: `"a"`})
	o.set("/b.gguf", served{content: random(42, 40_000), etag: `"b"`, cut: 20_000})
	cfg := config(t, o.Server)
	cfg.Attempts = 1
	c := open(t, cfg)
	m, err := c.Fetch(context.Background(), o.URL+"/a.gguf", nil)
	if err != nil {
		t.Fatal(err)
	}
	m.Release()
	refused(t, c, o.URL+"/b.gguf", "broke off")
	parts, err := filepath.Glob(filepath.Join(cfg.Dir, "parts", "*"))
	if err != nil || len(parts) != 2 {
		t.Fatalf("left are %q, %v, want a part with its notes", parts, err)
	}
	old := time.Now().Add(-time.Hour)
	for _, path := range parts {
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	cfg.Limit = 70_000
	fetched(t, open(t, cfg), o.URL+"/b.gguf")
	if seen := o.seen(); seen[len(seen)-1] != "/b.gguf bytes=20000-" {
		t.Errorf("the requests are %q, want the last one to resume", seen)
	}
	if got := refs(t, c); !slices.Equal(got, []string{"b.gguf"}) {
		t.Errorf("the cache has %q, want b", got)
	}
}

func TestModelLargerThanTheCache(t *testing.T) {
	o := newOrigin(t)
	o.set("/a.gguf", served{content: random(40, 5000)})
	cfg := config(t, o.Server)
	cfg.Limit = 4096
	if err := refused(t, open(t, cfg), o.URL+"/a.gguf", "needs 4.9 KiB", "may hold 4 KiB", "raise the limit"); !fetch.Permanent(err) {
		t.Errorf("%v is not permanent", err)
	}
}

func TestFullDiskIsMadeRoomOn(t *testing.T) {
	o := newOrigin(t)
	o.set("/a.gguf", served{content: random(41, 40_000)})
	o.set("/b.gguf", served{content: random(42, 40_000)})
	cfg := config(t, o.Server)
	cfg.Free = func(dir string) (api.Bytes, error) { // a disk of 50 kB
		free := api.Bytes(50_000)
		blobs, err := os.ReadDir(filepath.Join(dir, "blobs", "sha256"))
		for _, b := range blobs {
			info, err := b.Info()
			if err != nil {
				return 0, err
			}
			free -= api.Bytes(info.Size())
		}
		return free, err
	}
	c := open(t, cfg)
	m, err := c.Fetch(context.Background(), o.URL+"/a.gguf", nil)
	if err != nil {
		t.Fatal(err)
	}
	refused(t, c, o.URL+"/b.gguf", "too little room: 39.1 KiB needed, 9.8 KiB free")
	m.Release()
	fetched(t, c, o.URL+"/b.gguf")
	if got := refs(t, c); !slices.Equal(got, []string{"b.gguf"}) {
		t.Errorf("the cache has %q, want b alone", got)
	}
}

func TestPruneAndRemove(t *testing.T) {
	o := newOrigin(t)
	shared := random(43, 10_000)
	o.set("/a.gguf", served{content: shared, etag: `"a"`})
	o.set("/b.gguf", served{content: shared, etag: `"b"`})
	c := open(t, config(t, o.Server))
	ctx := context.Background()
	a, err := c.Fetch(ctx, o.URL+"/a.gguf", nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.Fetch(ctx, o.URL+"/b.gguf", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Remove(ctx, o.URL+"/a.gguf"); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("Remove of a held model = %v", err)
	}
	list, err := c.List(ctx)
	if err != nil || len(list) != 2 || !list[0].InUse || list[0].Size != 10_000 || list[0].Path != b.Path || list[0].Digest != "sha256:"+sumOf(shared) {
		t.Errorf("List = %+v, %v", list, err)
	}
	a.Release()
	a.Release() // twice is no fault
	if freed, err := c.Remove(ctx, o.URL+"/a.gguf"); err != nil || freed != 0 {
		t.Errorf("Remove frees %v, %v; want nothing: the blob is b's as well", freed, err)
	}
	holds(t, b.Path, shared)
	if freed, err := c.Prune(ctx, 0); err != nil || freed != 0 {
		t.Errorf("Prune frees %v, %v; want nothing: b is in use", freed, err)
	}
	b.Release()
	if freed, err := c.Prune(ctx, 0); err != nil || freed != 10_000 {
		t.Errorf("Prune frees %v, %v; want all", freed, err)
	}
	for _, dir := range []string{"blobs", "entries", "trees", "parts", "claims"} {
		if left := names(t, filepath.Join(c.Dir(), dir)); len(left) > 0 {
			t.Errorf("%s/ still has %q", dir, left)
		}
	}
	if _, err := c.Remove(ctx, o.URL+"/a.gguf"); err == nil || !strings.Contains(err.Error(), "is not in the model cache") {
		t.Errorf("Remove of what is not there = %v", err)
	}
}

func TestDamagedCacheIsMended(t *testing.T) {
	o := newOrigin(t)
	content := random(44, 10_000)
	o.set("/a.gguf", served{content: content, etag: `"v1"`})
	ref := o.URL + "/a.gguf#sha256=" + sumOf(content)
	other := slices.Clone(content)
	other[5]++
	for name, damage := range map[string]func(t *testing.T, m fetch.Model, blob string){
		"cut off":   func(t *testing.T, m fetch.Model, _ string) { check(t, os.Truncate(m.Path, 100)) },
		"no blob":   func(t *testing.T, _ fetch.Model, blob string) { check(t, os.Remove(blob)) },
		"no link":   func(t *testing.T, m fetch.Model, _ string) { check(t, os.Remove(m.Path)) },
		"no folder": func(t *testing.T, m fetch.Model, _ string) { check(t, os.RemoveAll(filepath.Dir(m.Path))) },
		"other content": func(t *testing.T, m fetch.Model, _ string) {
			check(t, os.WriteFile(m.Path, other, 0o644))
			later := time.Now().Add(time.Second) // clocks of file systems are coarse
			check(t, os.Chtimes(m.Path, later, later))
		},
		"no entry": func(t *testing.T, m fetch.Model, _ string) {
			check(t, os.RemoveAll(filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(m.Path))), "entries")))
		},
		"entry is no JSON": func(t *testing.T, m fetch.Model, _ string) {
			found, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(m.Path))), "entries", "*.json"))
			if check(t, err); len(found) != 1 {
				t.Fatalf("entries are %q", found)
			}
			check(t, os.WriteFile(found[0], []byte(`{"version":1,"tree":"../../etc"`), 0o644))
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t, o.Server)
			c := open(t, cfg)
			m := fetched(t, c, ref)
			m.Release()
			check(t, os.Chmod(m.Path, 0o644))
			damage(t, m, filepath.Join(cfg.Dir, "blobs", "sha256", sumOf(content)))
			again := fetched(t, open(t, cfg), ref)
			holds(t, again.Path, content)
			holds(t, filepath.Join(cfg.Dir, "blobs", "sha256", sumOf(content)), content)
		})
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestMovedReferenceKeepsWhatIsUsed(t *testing.T) {
	o := newOrigin(t)
	old, fresh := random(45, 10_000), random(46, 10_000)
	o.set("/a.gguf", served{content: old, etag: `"v1"`})
	c := open(t, config(t, o.Server))
	first, err := c.Fetch(context.Background(), o.URL+"/a.gguf", nil)
	check(t, err)
	o.set("/a.gguf", served{content: fresh, etag: `"v2"`})
	second := fetched(t, c, o.URL+"/a.gguf")
	holds(t, second.Path, fresh)
	holds(t, first.Path, old)
	list, err := c.List(context.Background())
	if err != nil || len(list) != 2 || list[0].Superseded == list[1].Superseded {
		t.Errorf("List = %+v, %v; want both, one superseded", list, err)
	}
	first.Release()
	if _, err := c.Prune(context.Background(), 1<<40); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(first.Path); err == nil {
		t.Error("what nobody uses and no reference means is still there")
	}
	holds(t, second.Path, fresh)
}

func TestMaxAgeAsksNobody(t *testing.T) {
	o := newOrigin(t)
	o.set("/a.gguf", served{content: random(47, 100), etag: `"v1"`})
	cfg := config(t, o.Server)
	cfg.MaxAge = time.Hour
	c := open(t, cfg)
	fetched(t, c, o.URL+"/a.gguf")
	before := len(o.seen())
	fetched(t, c, o.URL+"/a.gguf")
	if n := len(o.seen()) - before; n != 0 {
		t.Errorf("the source was asked %d times within the hour", n)
	}
}

func TestFolderThatCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	check(t, os.WriteFile(file, nil, 0o644))
	if _, err := fetch.New(fetch.Config{Dir: filepath.Join(file, "cache")}); err == nil {
		t.Error("a cache below a file is made")
	}
	if os.Getuid() == 0 {
		t.Skip("root may write everywhere")
	}
	dir := t.TempDir()
	check(t, os.Chmod(dir, 0o555))
	_, err := fetch.New(fetch.Config{Dir: filepath.Join(dir, "cache")})
	if err == nil || !strings.Contains(err.Error(), "choose another folder") {
		t.Errorf("New in a folder that is read only = %v", err)
	}
}

func TestPlainPaths(t *testing.T) {
	dir := t.TempDir()
	content := random(48, 5000)
	path := filepath.Join(dir, "chat.gguf")
	check(t, os.WriteFile(path, content, 0o644))
	check(t, os.Mkdir(filepath.Join(dir, "empty"), 0o755))
	cfg := config(t, nil)
	c := open(t, cfg)
	for _, ref := range []string{path, "file://" + path, path + "#sha256=" + sumOf(content), "file://" + path + "?sha256=" + sumOf(content)} {
		if m := fetched(t, c, ref); m.Path != path || m.Size != 5000 || m.GGUF != path {
			t.Errorf("%s is %+v, want the file in place", ref, m)
		}
	}
	if m := fetched(t, c, "file://"+dir); m.Path != dir || m.Size != 5000 {
		t.Errorf("the folder is %+v", m)
	}
	first, lost := filepath.Join(dir, "empty", "m-00001-of-00002.gguf"), filepath.Join(dir, "empty", "n-00001-of-00002.gguf")
	for _, p := range []string{first, filepath.Join(dir, "empty", "m-00002-of-00002.gguf"), lost} {
		check(t, os.WriteFile(p, content, 0o644))
	}
	if m := fetched(t, c, first); m.Path != first || m.Size != 10000 || m.GGUF != first {
		t.Errorf("a model in two files is %+v", m)
	}
	refused(t, c, lost, "n-00002-of-00002.gguf: no such file")
	for _, p := range []string{first, filepath.Join(dir, "empty", "m-00002-of-00002.gguf"), lost} {
		check(t, os.Remove(p))
	}
	if m := fetched(t, c, "org/name"); m.Path != "org/name" {
		t.Errorf("a name is %+v, want it as it is", m)
	}
	for ref, want := range map[string]string{
		path + "#sha256=" + sum64:            "has the sha256 " + sumOf(content) + ", and the reference says " + sum64,
		"file://" + dir + "#sha256=" + sum64: "is a folder",
		path + "x":                           "there is no file or folder",
		"file://models/a.gguf":               "file:///models/a.gguf",
		filepath.Join(dir, "empty"):          "holds no file",
		"/dev/null":                          "neither a file nor a folder",
	} {
		if err := refused(t, c, ref, want); !fetch.Permanent(err) {
			t.Errorf("%v is not permanent", err)
		}
	}
	// A changed file is read again.
	check(t, os.WriteFile(path, random(49, 5000), 0o644))
	check(t, os.Chtimes(path, time.Now(), time.Now().Add(time.Minute)))
	refused(t, c, path+"#sha256="+sumOf(content), "the reference says")
	if left := names(t, filepath.Join(cfg.Dir, "blobs")); len(left) > 0 {
		t.Errorf("blobs/ has %q: a file in place is not copied", left)
	}
}

func ExampleCache_Fetch() {
	dir, _ := os.MkdirTemp("", "models")
	defer os.RemoveAll(dir)
	_ = os.WriteFile(filepath.Join(dir, "chat.gguf"), []byte("GGUF"), 0o644)
	cache, err := fetch.New(fetch.Config{Dir: filepath.Join(dir, "cache")})
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := cache.Fetch(context.Background(), "file://"+dir+"/chat.gguf", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Release() // when the runtime has ended
	fmt.Println(filepath.Base(m.Path), m.Size)
	// Output: chat.gguf 4 B
}
