package swarm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"
)

const (
	testSize  = 6<<20 + 12345 // the last chunk is a short one
	testChunk = 64 << 10
)

var group = []byte("a secret of the nodes of a test")

// source is where a file comes from, at a bounded rate for all together.
type source struct {
	content []byte
	sent    atomic.Int64
	rate    *rate.Limiter
	fail    func() error // may be nil
}

func newSource(seed uint64) *source {
	b := make([]byte, testSize)
	r := rand.NewChaCha8([32]byte{byte(seed)})
	_, _ = r.Read(b)
	return &source{content: b, rate: rate.NewLimiter(16<<20, testChunk)}
}

func (s *source) sum() string { return sumText(s.content) }

func sumText(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func (s *source) read(ctx context.Context, at int64, b []byte) error {
	if s.fail != nil {
		if err := s.fail(); err != nil {
			return err
		}
	}
	if err := s.rate.WaitN(ctx, len(b)); err != nil {
		return err
	}
	s.sent.Add(int64(copy(b, s.content[at:])))
	return nil
}

// party are nodes on one machine that know one another's addresses.
type party struct {
	t     *testing.T
	src   *source
	nodes []*member
	log   safeBuffer
}

type member struct {
	*Node
	server *httptest.Server
	dir    string
	// before, if not nil, may answer a question itself: it returns true then.
	before atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
}

func newParty(t *testing.T, n int) *party {
	p := &party{t: t, src: newSource(1)}
	for range n {
		p.join(group)
	}
	return p
}

func (p *party) join(secret []byte) *member {
	m := &member{dir: p.t.TempDir()}
	m.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if before := m.before.Load(); before == nil || !(*before)(w, r) {
			m.ServeHTTP(w, r)
		}
	}))
	p.t.Cleanup(m.server.Close)
	node, err := New(Config{Group: secret, Peers: p.addresses, Chunk: testChunk, Logger: slog.New(slog.NewTextHandler(&p.log, nil))})
	if err != nil {
		p.t.Fatal(err)
	}
	m.Node = node
	m.patience = time.Minute // what the source sends does not depend on how busy the machine is
	p.nodes = append(p.nodes, m)
	return m
}

// meet has all members wait for one another before they ask the source.
func (p *party) meet() {
	for _, m := range p.nodes {
		m.settle = time.Minute
	}
}

// began says whether all members have begun to fetch.
func (p *party) began() bool {
	return !slices.ContainsFunc(p.nodes, func(m *member) bool {
		h := m.held(m.ID(NewRight(p.src.sum(), "")))
		if h == nil {
			return true
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.entries) == 0
	})
}

func (m *member) addr() string { return strings.TrimPrefix(m.server.URL, "http://") }

func (p *party) addresses(context.Context) ([]string, error) {
	var all []string
	for _, m := range p.nodes {
		all = append(all, m.addr())
	}
	return all, nil
}

// job is the party's file, for a member.
func (p *party) job(m *member) Job {
	path := filepath.Join(m.dir, "file")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { f.Close() })
	return Job{
		Right: NewRight(p.src.sum(), ""), SHA256: p.src.sum(), Size: testSize, File: f, Journal: path + ".journal", Source: p.src.read,
		Open: func() (ReaderAtCloser, error) { return os.Open(path) },
		Again: func(ctx context.Context, failures int, err error) error {
			if failures > 3 {
				return err
			}
			return ctx.Err()
		},
	}
}

// seed gives a member the whole of a file as if it had fetched it: the party's, or one that it takes for it.
func (p *party) seed(m *member, content []byte) {
	path := filepath.Join(m.dir, "file")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		p.t.Fatal(err)
	}
	f := &File{Right: NewRight(p.src.sum(), ""), Size: testSize, Chunk: testChunk, Open: func() (ReaderAtCloser, error) { return os.Open(path) }}
	for at := 0; at < testSize; at += testChunk {
		f.Sums = append(f.Sums, sha256.Sum256(content[at:min(at+testChunk, testSize)]))
	}
	m.share(f)
}

// fetch lets members fetch at the same time, and returns what came of it.
func (p *party) fetch(ctx context.Context, members ...*member) []Result {
	p.t.Helper()
	results := make([]Result, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		wg.Go(func() {
			var err error
			if results[i], err = m.Download(ctx, p.job(m)); err != nil {
				p.t.Errorf("node %d: %v", i, err)
				return
			}
			if got, err := os.ReadFile(filepath.Join(m.dir, "file")); err != nil || !bytes.Equal(got, p.src.content) {
				p.t.Errorf("node %d has another content: %v", i, err)
			}
		})
	}
	wg.Wait()
	return results
}

// sentAtMost checks what the source has sent, as a multiple of the file.
func (p *party) sentAtMost(factor float64) {
	p.t.Helper()
	if got := float64(p.src.sent.Load()) / testSize; got > factor {
		p.t.Errorf("the source has sent %.2f times the file, want %.2f at most\n%s", got, factor, p.log.String())
	}
}

// avoids checks that each result names the liar and nobody else.
func (p *party) avoids(results []Result, liar *member) {
	p.t.Helper()
	for i, r := range results {
		for _, addr := range r.Avoided {
			if addr != liar.addr() {
				p.t.Errorf("node %d avoids %s, which is honest\n%s", i, addr, p.log.String())
			}
		}
		if len(r.Avoided) != 1 {
			p.t.Errorf("node %d avoids %v, want the liar %s", i, r.Avoided, liar.addr())
		}
	}
	if !strings.Contains(p.log.String(), "peer="+liar.addr()) {
		p.t.Errorf("nobody's log names %s", liar.addr())
	}
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestTogether: eight nodes begin at once, and the source sends little more than one copy.
func TestTogether(t *testing.T) {
	p := newParty(t, 8)
	p.meet()
	for i, r := range p.fetch(within(t), p.nodes...) {
		if len(r.Avoided) > 0 || r.FromPeers == 0 || len(r.File.Sums) != len(p.nodes[i].files[p.nodes[i].ID(r.File.Right)].all()) {
			t.Errorf("node %d: %+v", i, r)
		}
	}
	p.sentAtMost(1.2)
	p.src.sent.Store(0)
	// Who comes later needs no source.
	p.fetch(within(t), p.join(group))
	if more := p.src.sent.Load(); more > 0 {
		t.Errorf("the source sends %d bytes although all have the file", more)
	}
}

// TestKilled: a node that goes away in the middle costs what only it had.
func TestKilled(t *testing.T) {
	p := newParty(t, 8)
	p.meet()
	victim := p.nodes[7]
	ctx, kill := context.WithCancel(within(t))
	var served atomic.Int64
	die := func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/log") || served.Add(1) < 6 || !p.began() {
			return false
		}
		kill()
		panic(http.ErrAbortHandler)
	}
	victim.before.Store(&die)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if _, err := victim.Download(ctx, p.job(victim)); !errors.Is(err, context.Canceled) {
			t.Errorf("the node that was killed: %v", err)
		}
		victim.server.CloseClientConnections()
		gone := func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }
		victim.before.Store(&gone)
	}()
	for i, r := range p.fetch(within(t), p.nodes[:7]...) {
		if len(r.Avoided) > 0 {
			t.Errorf("node %d takes a node that is gone for a liar: %v", i, r.Avoided)
		}
	}
	<-ended
	p.sentAtMost(1.5) // what the victim had not passed on comes from the source again
}

// TestSpoiled: a node whose chunks arrive with a wrong byte is found out by the first of them.
func TestSpoiled(t *testing.T) {
	p := newParty(t, 9)
	p.meet()
	liar := p.nodes[8]
	p.seed(liar, p.src.content)
	spoil := func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/log") {
			return false
		}
		rec := httptest.NewRecorder()
		liar.ServeHTTP(rec, r)
		b := rec.Body.Bytes()
		b[len(b)/2] ^= 1
		w.WriteHeader(rec.Code)
		_, _ = w.Write(b)
		return true
	}
	liar.before.Store(&spoil)
	p.avoids(p.fetch(within(t), p.nodes[:8]...), liar)
	p.sentAtMost(1.2)
}

// TestDiskSpoiled: a node whose disk has changed a chunk says so itself, and is not taken for a liar.
func TestDiskSpoiled(t *testing.T) {
	p := newParty(t, 2)
	p.seed(p.nodes[0], p.src.content)
	f, err := os.OpenFile(filepath.Join(p.nodes[0].dir, "file"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("spoiled"), 3*testChunk+100); err != nil {
		t.Fatal(err)
	}
	f.Close()
	r := p.fetch(within(t), p.nodes[1])[0]
	if len(r.Avoided) > 0 || r.FromSource != testChunk {
		t.Errorf("%d bytes come from the source, avoided are %v: want one chunk, and nobody", r.FromSource, r.Avoided)
	}
}

// falsified is the content with a wrong byte in some chunks.
func falsified(content []byte, chunks ...int) []byte {
	b := bytes.Clone(content)
	for _, i := range chunks {
		b[i*testChunk+7] ^= 0x80
	}
	return b
}

// TestLiar: a node says that it has the file, and has another one. Beside an honest node it is found out by a chunk from the
// source; alone, when the whole turns out to be wrong.
func TestLiar(t *testing.T) {
	for name, honest := range map[string]bool{"beside an honest node": true, "alone": false} {
		for what, chunks := range map[string][]int{"one chunk": {17}, "the last": {testSize / testChunk}, "many": {0, 1, 2, 3, 40, 41, 42, 43, 60, 90}} {
			t.Run(name+"/"+what, func(t *testing.T) {
				p := newParty(t, 5)
				liar := p.nodes[0]
				p.seed(liar, falsified(p.src.content, chunks...))
				others := p.nodes[1:]
				if honest {
					p.seed(p.nodes[1], p.src.content)
					others = p.nodes[2:]
				}
				p.avoids(p.fetch(within(t), others...), liar)
				if honest {
					p.sentAtMost(1.2)
				} else {
					p.sentAtMost(3.2)
				}
			})
		}
	}
}

// TestStuck: a node that takes questions and never answers holds nobody up.
func TestStuck(t *testing.T) {
	p := newParty(t, 4)
	p.seed(p.nodes[0], p.src.content)
	p.seed(p.nodes[1], p.src.content)
	over := make(chan struct{})
	hang := func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/log") {
			return false
		}
		select {
		case <-over:
		case <-r.Context().Done():
		}
		panic(http.ErrAbortHandler)
	}
	p.nodes[0].before.Store(&hang)
	defer close(over)
	p.fetch(within(t), p.nodes[2:]...)
	p.sentAtMost(1.2)
}

// TestResumed: what came before the end of a process is not fetched again, but for what the disk has lost, or the journal does not know.
func TestResumed(t *testing.T) {
	p := newParty(t, 1)
	m := p.nodes[0]
	ctx, cancel := context.WithCancel(within(t))
	job := p.job(m)
	var got atomic.Int64
	job.Got = func(n int64) {
		if got.Add(n) >= 40*testChunk {
			cancel()
		}
	}
	if _, err := m.Download(ctx, job); !errors.Is(err, context.Canceled) {
		t.Fatalf("the first try: %v", err)
	}
	if _, err := job.File.WriteAt(make([]byte, testSize/8), 0); err != nil {
		t.Fatal(err)
	}
	journal, err := os.OpenFile(job.Journal, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	// Somebody has written into it, and a crash has cut its last line.
	lies := `{"chunk":50,"what":"proven","sum":"` + strings.Repeat("0", 64) + `"}` + "\n" + `{"chunk":-1,"what":"proven"}` + "\nnothing\n" + `{"chunk":51,"what":"prov`
	if _, err := journal.WriteString(lies); err != nil {
		t.Fatal(err)
	}
	journal.Close()
	p.fetch(within(t), m)
	if sent := p.src.sent.Load(); sent < testSize+1 || sent > testSize+testSize/4 {
		t.Errorf("the source has sent %d bytes of a file of %d", sent, testSize)
	}
}

// TestSource: what is wrong with the source is said, or made up for by peers.
func TestSource(t *testing.T) {
	gone := errors.New("the source is gone")
	p := newParty(t, 2)
	p.src.fail = func() error { return gone }
	p.seed(p.nodes[0], p.src.content)
	if r := p.fetch(within(t), p.nodes[1])[0]; r.FromPeers < testSize {
		t.Errorf("%+v", r)
	}
	alone := newParty(t, 1)
	job := alone.job(alone.nodes[0])
	job.SHA256 = strings.Repeat("0", 64)
	if _, err := alone.nodes[0].Download(within(t), job); !errors.Is(err, ErrContent) {
		t.Errorf("a source with another content: %v", err)
	}
}

// TestRights: without the key an answer says nothing, and a file is not even named.
func TestRights(t *testing.T) {
	p := newParty(t, 1)
	p.seed(p.nodes[0], p.src.content)
	right := NewRight(p.src.sum(), "")
	for name, key := range map[string]Key{
		"another group":         NewKey([]byte("the secret of other nodes"), right),
		"another credential":    NewKey(group, NewRight(p.src.sum(), "token")),
		"another file":          NewKey(group, NewRight(strings.Repeat("0", 64), "")),
		"the digest as the key": Key([]byte(p.src.sum())[:32]),
	} {
		for _, path := range []string{"log", "0"} {
			if _, err := p.nodes[0].ask(within(t), p.nodes[0].addr(), key, path, "log", maxPage); !errors.Is(err, errNothing) {
				t.Errorf("%s, %s: got %v, want nothing", name, path, err)
			}
		}
	}
	// What is on the network is not the file.
	resp, err := http.Get(p.nodes[0].server.URL + Prefix + p.nodes[0].ID(right) + "/0?sum=" + sumText(p.src.content[:testChunk]))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := readAll(resp.Body, -1, 1<<20)
	if err != nil || resp.StatusCode != http.StatusOK || bytes.Contains(b, p.src.content[:32]) || bytes.Contains(b, p.src.content[1000:1032]) {
		t.Errorf("status %d, %v, or the content is readable", resp.StatusCode, err)
	}
	if _, err := NewKey(group, right).unseal(question(1), b); !errors.Is(err, errSeal) {
		t.Errorf("chunk 0 answers the question for chunk 1: %v", err)
	}
}

// TestQuestions: questions that make no sense are refused.
func TestQuestions(t *testing.T) {
	p := newParty(t, 1)
	p.seed(p.nodes[0], p.src.content)
	id := p.nodes[0].ID(NewRight(p.src.sum(), ""))
	for path, want := range map[string]int{
		id + "/-1": 404, id + "/100000": 404, id + "/x": 404, "../" + id + "/0": 404, id: 404, id + "/0/1": 404, id + "/0": 404, id + "/0?sum=" + strings.Repeat("0", 64): 404, id + "/0?sum=x": 404,
		id + "/log?after=-5": 200, id + "/log?after=99999999999999999999&log=x": 200,
	} {
		resp, err := http.Get(p.nodes[0].server.URL + Prefix + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: got %d, want %d", path, resp.StatusCode, want)
		}
	}
}
