package peers

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
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

// source is the file's source, with a bounded total rate.
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
	// before, if not nil, may answer a request itself: it returns true then.
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
	node, err := New(Config{Group: secret, Peers: p.addresses, Logger: slog.New(slog.NewTextHandler(&p.log, nil))})
	if err != nil {
		p.t.Fatal(err)
	}
	m.Node = node
	m.chunk = testChunk
	m.steal, m.peerWithin, m.answerWithin = time.Minute, time.Minute, time.Minute // so that the source's load does not depend on the machine's
	p.nodes = append(p.nodes, m)
	return m
}

// meet makes all members wait for one another before they ask the source.
func (p *party) meet() {
	for _, m := range p.nodes {
		m.settle = time.Minute
	}
}

// began reports whether all members have begun to fetch.
func (p *party) began() bool {
	return !slices.ContainsFunc(p.nodes, func(m *member) bool {
		h := m.find(m.ID(NewRight(p.src.sum(), "")))
		return h == nil || len(h.told().Begun) == 0 && !slices.ContainsFunc(h.told().Have, func(b byte) bool { return b > 0 })
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

// job returns the party's file, for a member.
func (p *party) job(m *member) Job {
	path := filepath.Join(m.dir, "file")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { f.Close() })
	return Job{
		Right: NewRight(p.src.sum(), ""), SHA256: p.src.sum(), Size: testSize, File: f, Journal: path + ".journal",
		Open: func() (*os.File, error) { return os.Open(path) }, Got: func(int64) {},
		Source: func(ctx context.Context, at int64, b []byte) error {
			for failures := 1; ; failures++ {
				if err := p.src.read(ctx, at, b); err == nil || failures > 3 {
					return err
				}
				if ctx.Err() != nil {
					return ctx.Err()
				}
			}
		},
	}
}

// seed gives a member a whole file: the party's, or another one that it takes for it.
func (p *party) seed(m *member, content []byte) {
	path := filepath.Join(m.dir, "file")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		p.t.Fatal(err)
	}
	right := NewRight(p.src.sum(), "")
	m.cfg.Find = func(id string) *File {
		if id != m.ID(right) {
			return nil
		}
		return &File{Right: right, Size: testSize, Open: func() (*os.File, error) { return os.Open(path) }}
	}
}

// fetch lets members fetch at the same time, and returns their results.
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

// sentAtMost checks how much the source has sent, as a multiple of the file.
func (p *party) sentAtMost(factor float64) {
	p.t.Helper()
	if got := float64(p.src.sent.Load()) / testSize; got > factor {
		p.t.Errorf("the source has sent %.2f times the file, want %.2f at most\n%s", got, factor, p.log.String())
	}
}

// names checks that the log blames this member for wrong bytes, and nobody else but others.
func (p *party) names(message string, m *member, others ...*member) {
	p.t.Helper()
	for line := range strings.Lines(p.log.String()) {
		if strings.Contains(line, message) && !slices.ContainsFunc(append(others, m), func(m *member) bool { return strings.Contains(line, "peer="+m.addr()) }) {
			p.t.Errorf("the log names another than %s: %s", m.addr(), line)
		}
	}
	if log := p.log.String(); !strings.Contains(log, message) || !strings.Contains(log, "peer="+m.addr()) {
		p.t.Errorf("nobody's log names %s:\n%s", m.addr(), log)
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
		if r.FromPeers == 0 {
			t.Errorf("node %d: %+v", i, r)
		}
	}
	p.sentAtMost(1.2)
	p.src.sent.Store(0)
	// A later node needs no source.
	p.fetch(within(t), p.join(group))
	if more := p.src.sent.Load(); more > 0 {
		t.Errorf("the source sends %d bytes although all have the file", more)
	}
}

// TestKilled: a lost node costs only the chunks that it alone had.
func TestKilled(t *testing.T) {
	p := newParty(t, 8)
	p.meet()
	victim := p.nodes[7]
	ctx, kill := context.WithCancel(within(t))
	var served atomic.Int64
	die := func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/state") || served.Add(1) < 6 || !p.began() {
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
	p.fetch(within(t), p.nodes[:7]...)
	<-ended
	if log := p.log.String(); strings.Contains(log, "wrong bytes") {
		t.Errorf("a node that is gone is taken for one that sends wrong bytes:\n%s", log)
	}
	p.sentAtMost(1.5) // chunks that the victim had not passed on come from the source again
}

// TestSpoiled: a node whose chunks arrive with a wrong byte is detected by the first of them.
func TestSpoiled(t *testing.T) {
	p := newParty(t, 9)
	p.meet()
	liar := p.nodes[8]
	p.seed(liar, p.src.content)
	spoil := func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/state") {
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
	p.fetch(within(t), p.nodes[:8]...)
	p.names("a peer sends wrong bytes", liar)
	p.sentAtMost(1.2)
}

// falsified returns the content with a wrong byte in some chunks.
func falsified(content []byte, chunks ...int) []byte {
	b := bytes.Clone(content)
	for _, i := range chunks {
		b[i*testChunk+7] ^= 0x80
	}
	return b
}

// TestWrong: a node claims to have the file but has another one: its disk has changed it, or it lies. The whole file fails its check.
// Receivers of wrong chunks fetch them from the source, and log the node.
func TestWrong(t *testing.T) {
	for name, honest := range map[string]bool{"beside a right one": true, "alone": false} {
		for what, chunks := range map[string][]int{"one chunk": {17}, "the last": {testSize / testChunk}, "many": {0, 1, 2, 3, 40, 41, 42, 43, 60, 90}} {
			t.Run(name+"/"+what, func(t *testing.T) {
				p := newParty(t, 3)
				wrong, others := p.nodes[0], p.nodes[1:]
				p.seed(wrong, falsified(p.src.content, chunks...))
				if honest {
					p.seed(p.nodes[1], p.src.content)
					others = p.nodes[2:]
				}
				p.fetch(within(t), others...)
				if !honest {
					p.names("another chunk than the source", wrong, others...) // they pass on unverified chunks
				}
				p.sentAtMost(float64(len(others))) // a copy each, and no chunk twice
				p.log = safeBuffer{}
				p.src.sent.Store(0)
				p.nodes = others // a later node has it from them
				p.fetch(within(t), p.join(group))
				p.sentAtMost(0)
			})
		}
	}
}

// TestStuck: a node that accepts requests and never answers delays nobody.
func TestStuck(t *testing.T) {
	p := newParty(t, 4)
	p.seed(p.nodes[0], p.src.content)
	p.seed(p.nodes[1], p.src.content)
	over := make(chan struct{})
	hang := func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/state") {
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
	p.nodes[2].peerWithin, p.nodes[3].peerWithin = time.Second, time.Second
	p.fetch(within(t), p.nodes[2:]...)
	p.sentAtMost(1.2)
}

// TestResumed: chunks of an ended process are not fetched again, unless the disk has lost some.
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
	before := p.src.sent.Load()
	p.fetch(within(t), m)
	if sent := p.src.sent.Load(); sent > testSize+fromSource*testChunk {
		t.Errorf("the source has sent %d bytes of a file of %d\n%s", sent, testSize, p.log.String())
	}
	// The process ends again, and the disk has lost the first chunks.
	if err := os.WriteFile(job.Journal, bytes.Repeat([]byte{0xff}, (testSize/testChunk+8)/8), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := job.File.WriteAt(make([]byte, testSize/8), 0); err != nil {
		t.Fatal(err)
	}
	p.src.sent.Store(0)
	p.fetch(within(t), m)
	if sent := p.src.sent.Load(); sent != testSize {
		t.Errorf("the source has sent %d bytes of a file of %d that was damaged, and %d before", sent, testSize, before)
	}
	// A journal of another version is ignored.
	if err := os.WriteFile(job.Journal, []byte(`{"chunk":50,"what":"proven"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	p.fetch(within(t), m)
}

// TestSource: faults of the source are reported, or made up for by peers.
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

// TestRights: without the key an answer reveals nothing, not even that the file exists.
func TestRights(t *testing.T) {
	p := newParty(t, 1)
	p.seed(p.nodes[0], p.src.content)
	right := NewRight(p.src.sum(), "")
	for name, key := range map[string]key{
		"another group":         newKey([]byte("the secret of other nodes"), right),
		"another credential":    newKey(group, NewRight(p.src.sum(), "token")),
		"another file":          newKey(group, NewRight(strings.Repeat("0", 64), "")),
		"the digest as the key": key([]byte(p.src.sum())[:32]),
	} {
		for _, path := range []string{aboutState, "0"} {
			if _, err := p.nodes[0].ask(within(t), p.nodes[0].addr(), key, path, maxState); err == nil || !strings.Contains(err.Error(), "404") {
				t.Errorf("%s, %s: got %v, want nothing", name, path, err)
			}
		}
	}
	// The network carries only sealed bytes.
	resp, err := http.Get(p.nodes[0].server.URL + Prefix + p.nodes[0].ID(right) + "/0")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || bytes.Contains(b, p.src.content[:32]) || bytes.Contains(b, p.src.content[1000:1032]) {
		t.Errorf("status %d, %v, or the content is readable", resp.StatusCode, err)
	}
	if _, err := newKey(group, right).unseal("1", b); !errors.Is(err, errSeal) {
		t.Errorf("chunk 0 answers the question for chunk 1: %v", err)
	}
}

// TestQuestions: malformed requests are refused.
func TestQuestions(t *testing.T) {
	p := newParty(t, 1)
	p.seed(p.nodes[0], p.src.content)
	id := p.nodes[0].ID(NewRight(p.src.sum(), ""))
	for path, want := range map[string]int{
		id + "/-1": 404, id + "/100000": 404, id + "/99999999999999999999": 404, id + "/x": 404, "../" + id + "/0": 404, id: 404, id + "/0/1": 404, "x/state": 404,
		id + "/0": 200, id + "/state": 200,
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
