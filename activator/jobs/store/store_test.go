package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/internal/s3"
	"github.com/rouse-dev/rouse/internal/s3/s3test"
)

// opener creates an empty store for a test, within limits. The function that it returns opens it: each call closes
// the previous one.
type opener func(t *testing.T, l Limits) (again func() *Store)

// quick returns the configuration of a store in a bucket, with short times.
func quick(service s3.Service, l Limits) Config {
	return Config{At: "s3://bucket/a/b", S3: service, Limits: l, Poll: 20 * time.Millisecond, Lease: time.Minute, Survey: 1, Piece: 100_000, Merge: 20_000}
}

func open(t testing.TB, cfg Config) *Store {
	t.Helper()
	if cfg.At == "" {
		cfg.At = t.TempDir()
	}
	s, err := Open(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.objects.Close() })
	return s
}

// again closes a store and reopens it.
func (s *Store) again(t *testing.T) *Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return open(t, s.cfg)
}

// TestStore tests a store in a folder, in a service in memory, and in a real one.
func TestStore(t *testing.T) {
	for place, config := range map[string]func(*testing.T, Limits) Config{
		"folder": func(t *testing.T, l Limits) Config {
			return Config{At: t.TempDir(), Limits: l, Poll: 20 * time.Millisecond, Survey: 1, Piece: 100_000, Merge: 20_000}
		},
		"fake":    func(t *testing.T, l Limits) Config { return quick(s3test.Serve(t, s3test.NewFake()), l) },
		"gateway": func(t *testing.T, l Limits) Config { return quick(s3test.Gateway(t), l) },
	} {
		t.Run(place, func(t *testing.T) {
			for name, test := range map[string]func(*testing.T, opener){
				"Files": testFiles, "Bodies": testBodies, "Lists": testLists, "Fencing": testFencing, "Cancel": testCancel, "Groups": testGroups, "NoResults": testNoResults,
				"Messages": testMessages, "Later": testLater, "DeletedWhileServed": testDeletedWhileServed, "Watch": testWatch, "Sweep": testSweep, "Limits": testLimits, "Records": testRecords,
				"Responses": testResponses, "ResponseOfClaim": testResponseOfClaim, "Names": testNames,
			} {
				t.Run(name, func(t *testing.T) {
					var last func() *Store
					defer func() { checkBytes(t, last()) }()
					test(t, func(t *testing.T, l Limits) func() *Store {
						cfg := config(t, l)
						var s *Store
						last = func() *Store { return s }
						return func() *Store {
							if s != nil {
								if err := s.Close(); err != nil {
									t.Fatal(err)
								}
							}
							s = open(t, cfg)
							return s
						}
					})
				})
			}
		})
	}
}

// checkBytes counts what is stored: all of it is known, and has a record.
func checkBytes(t *testing.T, s *Store) {
	t.Helper()
	v, err := s.survey()
	if err != nil {
		t.Fatal(err)
	}
	size := int64(0)
	for _, d := range v.data {
		size += d.Size
		parts := strings.Split(d.Key, "/")
		_, file := v.records[kindFile+"/"+parts[1]+"/"+parts[2]]
		_, job := v.records[kindJob+"/"+parts[1]+"/"+parts[2]]
		if !file && !job {
			t.Errorf("%s is left", d.Key)
		}
	}
	for key := range v.records {
		size += recordOf(filepath.Base(key), 0).bytes
	}
	if size != s.Bytes() {
		t.Errorf("%d bytes are stored, %d are counted", size, s.Bytes())
	}
	if diff := cmp.Diff(v.used, s.room.used, cmp.AllowUnexported(use{})); diff != "" {
		t.Errorf("stored and counted of each owner: %s", diff)
	}
}

// stops is objects that stop before a write, as a process that is killed.
type stops struct {
	Objects
	writes int
}

var errKilled = errors.New("the process is killed")

func (s *stops) Put(key string, body []byte, when Condition) (string, error) {
	if s.writes--; s.writes < 0 {
		return "", errKilled
	}
	return s.Objects.Put(key, body, when)
}

// TestFinishTwice: the end of a batch is completed by the next process after a kill between any two of its writes.
func TestFinishTwice(t *testing.T) {
	for writes := range 4 {
		s := open(t, Config{})
		c := newBatch(t, s, putFile(t, s, "a", "…").ID)
		if err := c.Record([]Result{result(0, true)}); err != nil {
			t.Fatal(err)
		}
		s.objects = &stops{Objects: s.objects, writes: writes}
		if err := c.Finish(Completed, nil); (err == nil) != (writes == 3) {
			t.Fatalf("after %d writes: %v", writes, err)
		}
		b := c.Job()
		s = s.again(t)
		next, err := s.Claim("a", b.ID, false)
		if err == nil {
			err = next.Finish(Completed, nil)
		} else if errors.Is(err, ErrState) && writes > 0 {
			err = nil
		}
		if err != nil {
			t.Fatalf("after %d writes: %v", writes, err)
		}
		if got := readFile(t, s, "a", b.OutID); got != "line 0\n" {
			t.Errorf("the output is %q", got)
		}
		if _, err := s.File("a", b.ErrID); !errors.Is(err, ErrNotFound) {
			t.Errorf("a file without errors: %v, want ErrNotFound", err)
		}
	}
}

// TestOneServer: a store in a folder can be open in one process only.
func TestOneServer(t *testing.T) {
	s := open(t, Config{})
	cfg := s.cfg
	cfg.Wait = time.Millisecond
	if _, err := Open(cfg, nil); err == nil || !strings.Contains(err.Error(), "another server uses") {
		t.Errorf("opened twice: %v", err)
	}
	cfg.Wait = time.Minute
	opened := make(chan error)
	go func() {
		next, err := Open(cfg, nil)
		if err == nil {
			err = next.Close()
		}
		opened <- err
	}()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-opened; err != nil {
		t.Errorf("opened once the other has ended: %v", err)
	}
}

// files returns the names in a folder of a store.
func files(t *testing.T, s *Store, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(s.cfg.At, dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// putFile stores a file of an owner.
func putFile(t *testing.T, s *Store, owner, text string) File {
	t.Helper()
	u, err := s.NewUpload(owner)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(u, text); err != nil {
		t.Fatal(err)
	}
	f, err := u.Commit("in.jsonl", "batch", 0)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// readFile returns a file of an owner.
func readFile(t *testing.T, s *Store, owner, id string) string {
	t.Helper()
	body, _, err := s.OpenFile(owner, id)
	if err != nil {
		t.Fatal(err)
	}
	return readAll(t, body)
}

// readAll reads a body to its end, and closes it.
func readAll(t *testing.T, body Body) string {
	t.Helper()
	defer body.Close()
	raw, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// create stores a job under a new id, unless it has one.
func create(s *Store, j Job, body []byte, window time.Duration) (Job, error) {
	prefix := PrefixAsync
	switch {
	case j.Messages:
		prefix = PrefixMessages
	case j.Input != "":
		prefix = PrefixBatch
	}
	if j.ID == "" {
		j.ID, _ = s.NewID(prefix)
	}
	return s.New(j, body, window)
}

// newBatch creates a batch of the owner a and claims it.
func newBatch(t *testing.T, s *Store, input string) *Claim {
	t.Helper()
	b, err := create(s, Job{Owner: "a", Batch: Batch{Input: input, Endpoint: "/v1/x"}}, nil, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	c := claim(t, s, b.ID)
	if done := c.LinesDone(); len(done) != 0 {
		t.Fatalf("claimed with %v done", done)
	}
	return c
}

// result returns a result for a line.
func result(n int, ok bool) Result {
	return Result{Line: n, OK: ok, Text: fmt.Appendf(nil, "line %d\n", n), Tokens: Tokens{Output: 2}}
}

// keepResponse stores a response of the owner a, created some time ago.
func keepResponse(t *testing.T, s *Store, ago time.Duration, previous string, before ...string) string {
	t.Helper()
	r := Job{Owner: "a", Status: Completed, Response: Response{Previous: previous}}
	r.ID, r.Created = s.NewID(PrefixResponse)
	r.Created = r.Created.Add(-ago)
	if err := s.KeepResponse(r, before, []byte("asked"), []byte("answered"), nil); err != nil {
		t.Fatal(err)
	}
	return r.ID
}

// claim claims a job of the owner a.
func claim(t *testing.T, s *Store, id string) *Claim {
	t.Helper()
	c, err := s.Claim("a", id, false)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestNotAStore: Open detects a bucket that can't be used.
func TestNotAStore(t *testing.T) {
	f := s3test.NewFake()
	f.IgnoreConditions = true
	if _, err := Open(quick(s3test.Serve(t, f), Limits{}), nil); !errors.Is(err, ErrConditions) {
		t.Errorf("a service without conditions: %v", err)
	}
	s := open(t, quick(s3test.Serve(t, s3test.NewFake()), Limits{}))
	key := "format"
	_, version, err := read[format](s, key)
	if err == nil {
		_, err = put(s, key, Condition{Version: version}, &format{Version: thisFormat + 1})
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(s.cfg, nil); err == nil || !strings.Contains(err.Error(), "another version of Rouse") {
		t.Errorf("a store of another format: %v", err)
	}
}
