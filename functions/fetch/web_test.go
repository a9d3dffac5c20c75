package fetch_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/fetch"
)

func TestFetchFile(t *testing.T) {
	o := newOrigin(t)
	content := random(1, 300_000)
	o.set("/m/chat.gguf", served{content: content, etag: `"v1"`})
	c := open(t, config(t, o.Server))

	var last fetch.Progress
	m, err := c.Fetch(context.Background(), o.URL+"/m/chat.gguf", func(p fetch.Progress) { last = p })
	if err != nil {
		t.Fatal(err)
	}
	defer m.Release()
	holds(t, m.Path, content)
	if filepath.Base(m.Path) != "chat.gguf" || m.GGUF != m.Path || m.Size != 300_000 {
		t.Errorf("the model is %+v", m)
	}
	if want := (fetch.Progress{Done: 300_000, Total: 300_000, File: "chat.gguf", Rate: last.Rate}); last != want {
		t.Errorf("the last progress is %+v, want %+v", last, want)
	}

	before := len(o.seen())
	again := fetched(t, c, o.URL+"/m/chat.gguf")
	if again.Path != m.Path {
		t.Errorf("fetched again it is at %s, want %s", again.Path, m.Path)
	}
	if more := o.seen()[before:]; !slices.Equal(more, []string{"/m/chat.gguf bytes=0-0"}) {
		t.Errorf("fetching again asks %q, want one question for what is new", more)
	}
	if left := names(t, filepath.Join(c.Dir(), "parts")); len(left) > 0 {
		t.Errorf("parts/ still has %q", left)
	}
}

// changing calls change before each request.
type changing struct {
	http.RoundTripper
	change func()
}

func (c changing) RoundTrip(r *http.Request) (*http.Response, error) {
	c.change()
	return c.RoundTripper.RoundTrip(r)
}

// Without a validator, two answers are never joined.
func TestNothingIsResumedWithoutAValidator(t *testing.T) {
	o := newOrigin(t)
	newer := random(16, 300_000)
	o.set("/a.gguf", served{content: random(17, 300_000), cut: 100_000})
	cfg := config(t, o.Server)
	cfg.Client = &http.Client{Transport: changing{cfg.Client.Transport, func() {
		if len(o.seen()) == 2 { // the question and the answer that is cut
			o.set("/a.gguf", served{content: newer})
		}
	}}}
	c := open(t, cfg)
	holds(t, fetched(t, c, o.URL+"/a.gguf").Path, newer)
}

func TestWeakTagIsARevision(t *testing.T) {
	o := newOrigin(t)
	o.set("/a.gguf", served{content: random(15, 1000), etag: `W/"v1"`})
	c := open(t, config(t, o.Server))
	fetched(t, c, o.URL+"/a.gguf")
	before := len(o.seen())
	fetched(t, c, o.URL+"/a.gguf")
	if more := o.seen()[before:]; !slices.Equal(more, []string{"/a.gguf bytes=0-0"}) {
		t.Errorf("fetching again asks %q, want one question", more)
	}
}

func TestPinnedNeedsNoSource(t *testing.T) {
	o := newOrigin(t)
	content := random(2, 1000)
	o.set("/a.gguf", served{content: content})
	c := open(t, config(t, o.Server))
	ref := o.URL + "/a.gguf#sha256=" + sumOf(content)
	fetched(t, c, ref)
	o.Close()
	holds(t, fetched(t, c, ref).Path, content)
}

func TestSourceThatIsDownIsNoReasonToFail(t *testing.T) {
	o := newOrigin(t)
	content := random(3, 1000)
	o.set("/a.gguf", served{content: content, etag: `"v1"`})
	cfg := config(t, o.Server)
	cfg.Attempts = 1
	c := open(t, cfg)
	fetched(t, c, o.URL+"/a.gguf")
	o.Close()
	holds(t, fetched(t, c, o.URL+"/a.gguf").Path, content)
	if err := refused(t, c, o.URL+"/b.gguf"); fetch.Permanent(err) {
		t.Errorf("%v is permanent", err)
	}
	cfg.Offline = true
	offline := open(t, cfg)
	holds(t, fetched(t, offline, o.URL+"/a.gguf").Path, content)
	refused(t, offline, o.URL+"/b.gguf", "offline")
}

func TestResumeAfterCut(t *testing.T) {
	content := random(4, 500_000)
	for name, tt := range map[string]struct {
		etag, fragment, want string
	}{
		"by etag":     {`"v1"`, "", "bytes=200000-"},
		"by checksum": {"", "#sha256=" + sumOf(content), "bytes=200000-"},
		"neither":     {"", "", ""}, // from the start: nothing shows that it is the same file
		"weak etag":   {`W/"v1"`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOrigin(t)
			o.set("/a.gguf", served{content: content, etag: tt.etag, cut: 200_000})
			c := open(t, config(t, o.Server))
			holds(t, fetched(t, c, o.URL+"/a.gguf"+tt.fragment).Path, content)
			seen := o.seen()
			if tt.want == "" {
				return // what is resumed without reason would be wrong: the server's part is not looked at
			}
			if last := seen[len(seen)-1]; last != "/a.gguf "+tt.want {
				t.Errorf("the requests are %q, want the last one to resume by %s", seen, tt.want)
			}
		})
	}
}

func TestChangedFileIsFetchedFromItsStart(t *testing.T) {
	o := newOrigin(t)
	old, fresh := random(5, 400_000), random(6, 400_000)
	o.set("/a.gguf", served{content: old, etag: `"old"`, cut: 100_000})
	changed := false
	o.answer(func(w http.ResponseWriter, r *http.Request) bool { // cut, and the next attempt finds another file
		if changed || r.Header.Get("Range") != "bytes=100000-" {
			return false
		}
		changed = true
		o.set("/a.gguf", served{content: fresh, etag: `"fresh"`})
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	c := open(t, config(t, o.Server))
	holds(t, fetched(t, c, o.URL+"/a.gguf").Path, fresh)
	if seen := o.seen(); !slices.Contains(seen, "/a.gguf bytes=100000-") {
		t.Errorf("the requests are %q, want a try to resume", seen)
	}
}

func TestServerThatLiesAboutRanges(t *testing.T) {
	content := random(7, 200_000)
	for name, answer := range map[string]func(http.ResponseWriter){
		"another part":  func(w http.ResponseWriter) { w.Header().Set("Content-Range", "bytes 5-199999/200000") },
		"no word which": func(http.ResponseWriter) {},
		"another total": func(w http.ResponseWriter) { w.Header().Set("Content-Range", "bytes 100000-299999/300000") },
		"another version": func(w http.ResponseWriter) {
			w.Header().Set("Content-Range", "bytes 100000-199999/200000")
			w.Header().Set("ETag", `"x"`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOrigin(t)
			o.set("/a.gguf", served{content: content, etag: `"v1"`, cut: 100_000})
			lied := false
			o.answer(func(w http.ResponseWriter, r *http.Request) bool {
				if lied || r.Header.Get("Range") != "bytes=100000-" {
					return false
				}
				lied = true
				w.Header().Set("ETag", `"v1"`)
				answer(w)
				w.WriteHeader(http.StatusPartialContent)
				_, _ = w.Write(make([]byte, 100_000))
				return true
			})
			c := open(t, config(t, o.Server))
			holds(t, fetched(t, c, o.URL+"/a.gguf").Path, content)
			if !lied {
				t.Error("the server was not asked to resume")
			}
		})
	}
}

func TestWrongChecksum(t *testing.T) {
	o := newOrigin(t)
	content := random(8, 1000)
	o.set("/a.gguf", served{content: content, etag: `"v1"`})
	c := open(t, config(t, o.Server))
	err := refused(t, c, o.URL+"/a.gguf#sha256="+sum64, "expected the sha256 "+sum64, sumOf(content))
	if !fetch.Permanent(err) {
		t.Errorf("%v is not permanent", err)
	}
	if n := len(slices.DeleteFunc(o.seen(), func(s string) bool { return strings.Contains(s, "bytes=0-0") })); n != 2 {
		t.Errorf("the file was fetched %d times, want twice: once more from the start", n)
	}
	for _, dir := range []string{"parts", "blobs", "entries", "trees"} {
		if left := names(t, filepath.Join(c.Dir(), dir)); len(left) > 0 {
			t.Errorf("%s/ has %q of it", dir, left)
		}
	}
}

func TestCorruptedOnceIsFetchedAgain(t *testing.T) {
	o := newOrigin(t)
	content := random(9, 1000)
	o.set("/a.gguf", served{content: content})
	bad := true
	o.answer(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Range") != "" || !bad {
			return false
		}
		bad = false
		_, _ = w.Write(make([]byte, 1000))
		return true
	})
	holds(t, fetched(t, open(t, config(t, o.Server)), o.URL+"/a.gguf#sha256="+sumOf(content)).Path, content)
}

func TestAnswersAreTriedAgainOrNot(t *testing.T) {
	for status, permanent := range map[int]bool{500: false, 503: false, 429: false, 404: true, 401: true, 403: true, 410: true} {
		o := newOrigin(t)
		o.answer(func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(status); return true })
		cfg := config(t, o.Server)
		cfg.Attempts = 3
		var told atomic.Int32
		cfg.Again = func(error) { told.Add(1) }
		err := refused(t, open(t, cfg), o.URL+"/a.gguf?token=hush", o.URL+"/a.gguf?…", http.StatusText(status))
		if fetch.Permanent(err) != permanent {
			t.Errorf("Permanent is %v of %v", !permanent, err)
		}
		want := 3
		if permanent {
			want = 1
		}
		if got, said := len(o.seen()), int(told.Load()); got != want || said != want-1 {
			t.Errorf("%d was asked for %d times, want %d, and the retries were told %d times", status, got, want, said)
		}
	}
}

func TestRedirects(t *testing.T) {
	files, front := newOrigin(t), newOrigin(t)
	content := random(10, 1000)
	files.set("/blob", served{content: content, etag: `"v"`})
	var leaked []string
	files.answer(func(_ http.ResponseWriter, r *http.Request) bool {
		files.mu.Lock()
		defer files.mu.Unlock()
		if a := r.Header.Get("Authorization"); a != "" {
			leaked = append(leaked, a)
		}
		return false
	})
	front.answer(func(w http.ResponseWriter, r *http.Request) bool {
		if user, pass, ok := r.BasicAuth(); !ok || user != "me" || pass != "hush" {
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		if r.URL.Path == "/plain.gguf" {
			http.Redirect(w, r, "http://"+files.Listener.Addr().String()+"/blob", http.StatusFound)
			return true
		}
		http.Redirect(w, r, files.URL+"/blob?signature=hush", http.StatusFound)
		return true
	})
	cfg := config(t, front.Server) // both servers have the same certificate
	c := open(t, cfg)
	with := func(path string) string { return strings.Replace(front.URL, "https://", "https://me:hush@", 1) + path }
	m := fetched(t, c, with("/a.gguf"))
	holds(t, m.Path, content)
	if filepath.Base(m.Path) != "a.gguf" {
		t.Errorf("it is called %s", m.Path)
	}
	if len(leaked) > 0 {
		t.Errorf("the other server is told %q", leaked)
	}
	err := refused(t, c, with("/plain.gguf"), "not encrypted")
	if !fetch.Permanent(err) || strings.Contains(err.Error(), "hush") {
		t.Errorf("%v: want a permanent error without the password", err)
	}
	for _, name := range names(t, c.Dir()) {
		if text, _ := os.ReadFile(filepath.Join(c.Dir(), name)); strings.Contains(name+string(text), "hush") {
			t.Errorf("%s holds the password", name)
		}
	}
}

func TestServerWithoutRangesOrLength(t *testing.T) {
	content := random(11, 100_000)
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for part := range slices.Chunk(content, 10_000) {
			_, _ = w.Write(part)
			w.(http.Flusher).Flush()
		}
	}))
	defer s.Close()
	cfg := config(t, s)
	holds(t, fetched(t, open(t, cfg), s.URL+"/a.gguf").Path, content)
	cfg.Dir, cfg.Limit = filepath.Join(t.TempDir(), "small"), 50_000
	err := refused(t, open(t, cfg), s.URL+"/a.gguf", "larger than the cache may be")
	if !fetch.Permanent(err) || len(names(t, filepath.Join(cfg.Dir, "parts"))) > 0 {
		t.Errorf("%v: want a permanent error that leaves nothing", err)
	}
}

func TestStalledDownloadGoesOn(t *testing.T) {
	o := newOrigin(t)
	content := random(12, 100_000)
	o.set("/a.gguf", served{content: content, etag: `"v1"`})
	stalled := false
	o.answer(func(w http.ResponseWriter, r *http.Request) bool {
		if stalled || r.Header.Get("Range") != "" {
			return false
		}
		stalled = true
		w.Header().Set("ETag", `"v1"`)
		w.Header().Set("Content-Length", "100000")
		_, _ = w.Write(content[:50_000])
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return true
	})
	cfg := config(t, o.Server)
	cfg.Stall = 50 * time.Millisecond
	holds(t, fetched(t, open(t, cfg), o.URL+"/a.gguf").Path, content)
	// The received size before the stall, at most 50,000 bytes, depends on the machine.
	seen := o.seen()
	if from, resumes := strings.CutPrefix(seen[len(seen)-1], "/a.gguf bytes="); !resumes || strings.HasPrefix(from, "0-") {
		t.Errorf("the requests are %q, want the last one to resume", seen)
	}
}

func TestCancelKeepsWhatHasArrived(t *testing.T) {
	o := newOrigin(t)
	content := random(13, 400_000)
	o.set("/a.gguf", served{content: content, etag: `"v1"`})
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := errors.New("the function is stopped")
	o.answer(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Range") != "" {
			return false
		}
		w.Header().Set("ETag", `"v1"`)
		w.Header().Set("Content-Length", "400000")
		_, _ = w.Write(content[:300_000])
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return true
	})
	c := open(t, config(t, o.Server))
	_, err := c.Fetch(ctx, o.URL+"/a.gguf", func(p fetch.Progress) {
		if p.Done > 0 {
			cancel(stop)
		}
	})
	if !errors.Is(err, stop) || fetch.Permanent(err) {
		t.Fatalf("Fetch = %v, want the cause of the cancellation", err)
	}
	holds(t, fetched(t, c, o.URL+"/a.gguf").Path, content)
	seen := o.seen()
	if last := seen[len(seen)-1]; !strings.HasPrefix(last, "/a.gguf bytes=") || last == "/a.gguf bytes=0-0" {
		t.Errorf("the requests are %q, want the last one to resume", seen)
	}
}

func TestDiskWithTooLittleRoom(t *testing.T) {
	o := newOrigin(t)
	o.set("/a.gguf", served{content: random(14, 5000)})
	cfg := config(t, o.Server)
	cfg.Free = func(string) (api.Bytes, error) { return 1000, nil }
	err := refused(t, open(t, cfg), o.URL+"/a.gguf", cfg.Dir, "4.9 KiB needed", "1000 B free")
	var disk *fetch.DiskError
	if !errors.As(err, &disk) || fetch.Permanent(err) {
		t.Errorf("%v: want a DiskError, that is not permanent", err)
	}
	if seen := o.seen(); len(seen) != 1 {
		t.Errorf("the requests are %q, want nothing to be fetched", seen)
	}
}

func TestTransportErrorsShowNoSecrets(t *testing.T) {
	cfg := config(t, nil) // trusts no test server
	o := newOrigin(t)
	u, _ := url.Parse(o.URL + "/a.gguf?sig=hush")
	u.User = url.UserPassword("me", "hush")
	err := refused(t, open(t, cfg), u.String(), "certificate")
	if strings.Contains(err.Error(), "hush") || !fetch.Permanent(err) {
		t.Errorf("%v: want a permanent error without secrets", err)
	}
}
