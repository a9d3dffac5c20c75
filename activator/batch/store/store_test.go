package store

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func open(t *testing.T, cfg Config) *Store {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// again closes a store and opens it anew.
func (s *Store) again(t *testing.T) *Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return open(t, s.cfg)
}

func upload(t *testing.T, s *Store, owner, text string) File {
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

func read(t *testing.T, s *Store, owner, id string) string {
	t.Helper()
	body, _, err := s.OpenFile(owner, id)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	raw, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// files are the names in a folder of a store.
func files(t *testing.T, s *Store, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(s.path(dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestFiles: a file is its owner's, is listed in order, and is there after the store was opened again.
func TestFiles(t *testing.T) {
	s := open(t, Config{})
	var ids []string
	for n := range 5 {
		ids = append(ids, upload(t, s, "a", fmt.Sprint("text ", n)).ID)
	}
	other := upload(t, s, "b", "b's")
	upload(t, s, "a\x01", "of one that is called almost the same")
	s = s.again(t)
	if got := read(t, s, "a", ids[3]); got != "text 3" {
		t.Errorf("read %q", got)
	}
	if _, err := s.File("a", other.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("another owner's file: %v, want ErrNotFound", err)
	}
	if err := s.DeleteFile("a", other.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("delete another owner's file: %v, want ErrNotFound", err)
	}
	for _, tc := range []struct {
		q    Query
		want string
		more bool
	}{
		{Query{Limit: 9}, "4 3 2 1 0", false},
		{Query{Limit: 9, Oldest: true}, "0 1 2 3 4", false},
		{Query{Limit: 2}, "4 3", true},
		{Query{Limit: 2, After: ids[3]}, "2 1", true},
		{Query{Limit: 2, After: ids[1], Oldest: true}, "2 3", true},
		{Query{Limit: 2, After: ids[2], Oldest: true}, "3 4", false},
		{Query{Limit: 2, After: ids[0]}, "", false},
	} {
		list, more, err := s.Files("a", "batch", tc.q)
		var got []string
		for _, f := range list {
			for n, id := range ids {
				if f.ID == id {
					got = append(got, fmt.Sprint(n))
				}
			}
		}
		if text := strings.Join(got, " "); err != nil || text != tc.want || more != tc.more {
			t.Errorf("%+v: %q, more %v, %v; want %q, %v", tc.q, text, more, err, tc.want, tc.more)
		}
	}
	if list, _, err := s.Files("a", "else", Query{Limit: 9}); err != nil || len(list) != 0 {
		t.Errorf("files of another purpose: %v, %v", list, err)
	}
	if _, _, err := s.Files("a", "", Query{Limit: 9, After: other.ID}); !errors.Is(err, ErrNotFound) {
		t.Errorf("a list after another owner's file: %v, want ErrNotFound", err)
	}
	if err := s.DeleteFile("a", ids[0]); err != nil {
		t.Error(err)
	}
	if _, err := s.File("a", ids[0]); !errors.Is(err, ErrNotFound) {
		t.Errorf("a file that was deleted: %v", err)
	}
	if got := len(files(t, s, dirFiles)); got != 6 {
		t.Errorf("%d files on disk, want 6", got)
	}
}

// batch makes a batch and claims it.
func batch(t *testing.T, s *Store, input string) *Claim {
	t.Helper()
	b, err := s.NewBatch(Batch{Owner: "a", Input: input, Endpoint: "/v1/x"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	c, done, err := s.Claim("a", b.ID)
	if err != nil || len(done) != 0 {
		t.Fatalf("claimed with %v done, %v", done, err)
	}
	return c
}

func result(n int, ok bool) Result {
	return Result{Line: n, OK: ok, Text: fmt.Appendf(nil, "line %d\n", n), Tokens: Tokens{Output: 2}}
}

// TestFencing: who lost its claim records nothing; no line gets two results; what was written without a transaction is not there.
func TestFencing(t *testing.T) {
	s := open(t, Config{})
	in := upload(t, s, "a", "…")
	c := batch(t, s, in.ID)
	if err := c.Record([]Result{result(0, true), result(1, false)}); err != nil {
		t.Fatal(err)
	}
	if err := c.Record([]Result{result(2, true), result(0, true)}); !errors.Is(err, ErrFenced) {
		t.Fatalf("a line got a second result: %v", err)
	}
	before := s.Bytes()
	next, done, err := s.Claim("a", c.ID)
	if err != nil || cmp.Diff(map[int]bool{0: true, 1: true}, done) != "" {
		t.Fatalf("claimed again: %v, %v", done, err)
	}
	if err := c.Record([]Result{result(3, true)}); !errors.Is(err, ErrFenced) {
		t.Errorf("the first claim recorded a line: %v", err)
	}
	if err := c.Change(func(b *Batch) { b.Status = Completed }); !errors.Is(err, ErrFenced) {
		t.Errorf("the first claim changed the batch: %v", err)
	}
	if err := c.Finish(Completed, nil); !errors.Is(err, ErrFenced) {
		t.Errorf("the first claim finished the batch: %v", err)
	}
	if got := s.Bytes(); got != before {
		t.Errorf("%d bytes are counted, want %d", got, before)
	}
	if err := s.DeleteFile("a", in.ID); !errors.Is(err, ErrInUse) {
		t.Errorf("delete the input: %v, want ErrInUse", err)
	}
	if err := next.Record([]Result{result(2, true)}); err != nil {
		t.Fatal(err)
	}
	if err := next.Finish(Completed, nil); err != nil {
		t.Fatal(err)
	}
	s = s.again(t)
	b, err := s.Batch("a", c.ID)
	if err != nil || b.Status != Completed || b.Completed != 2 || b.Failed != 1 || b.Tokens.Output != 6 {
		t.Fatalf("the batch is %+v, %v", b, err)
	}
	if got := read(t, s, "a", b.OutID); got != "line 0\nline 2\n" {
		t.Errorf("the output is %q", got)
	}
	if got := read(t, s, "a", b.ErrID); got != "line 1\n" {
		t.Errorf("the errors are %q", got)
	}
	if _, _, err := s.Claim("a", c.ID); !errors.Is(err, ErrState) {
		t.Errorf("claim what has ended: %v, want ErrState", err)
	}
	if left := files(t, s, dirParts); len(left) != 0 {
		t.Errorf("parts are left: %v", left)
	}
	if err := s.DeleteFile("a", in.ID); err != nil {
		t.Errorf("delete the input of a batch that has ended: %v", err)
	}
}

// TestFinishTwice: a kill between the renaming of the parts and the transaction.
func TestFinishTwice(t *testing.T) {
	s := open(t, Config{})
	c := batch(t, s, upload(t, s, "a", "…").ID)
	if err := c.Record([]Result{result(0, true)}); err != nil {
		t.Fatal(err)
	}
	for _, p := range c.Batch.parts() {
		if err := c.publish(p); err != nil {
			t.Fatal(err)
		}
	}
	s = s.again(t)
	next, _, err := s.Claim("a", c.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Finish(Completed, nil); err != nil {
		t.Fatal(err)
	}
	if got := read(t, s, "a", c.OutID); got != "line 0\n" {
		t.Errorf("the output is %q", got)
	}
	if _, err := s.File("a", c.ErrID); !errors.Is(err, ErrNotFound) {
		t.Errorf("a file without errors: %v, want ErrNotFound", err)
	}
}

// TestLater: a request that is answered later is its owner's, and has one answer.
func TestLater(t *testing.T) {
	s := open(t, Config{})
	l, err := s.NewLater(Later{Owner: "a", URI: "/v1/x", Header: http.Header{"K": {"v"}}}, []byte("asked"), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	first, body, err := s.ClaimLater("a", l.ID)
	if err != nil {
		t.Fatal(err)
	}
	_ = body.Close()
	s = s.again(t)
	all, err := s.Unanswered()
	if err != nil || len(all) != 1 || all[0].ID != l.ID {
		t.Fatalf("unanswered are %+v, %v", all, err)
	}
	second, body, err := s.ClaimLater("a", l.ID)
	if err != nil {
		t.Fatal(err)
	}
	raw, _ := io.ReadAll(body)
	_ = body.Close()
	if string(raw) != "asked" || second.Header.Get("K") != "v" {
		t.Errorf("the body is %q, the header %v", raw, second.Header)
	}
	if err := s.FinishLater(second, 200, http.Header{"X": {"y"}}, []byte("the answer")); err != nil {
		t.Fatal(err)
	}
	if err := s.FinishLater(first, 500, nil, []byte("late")); !errors.Is(err, ErrFenced) {
		t.Errorf("the first claim answered: %v", err)
	}
	s = s.again(t)
	got, err := s.Later("a", l.ID)
	if err != nil || got.Status != 200 || got.Answer.Get("X") != "y" {
		t.Fatalf("%+v, %v", got, err)
	}
	answer, err := s.Answer(got)
	if err != nil {
		t.Fatal(err)
	}
	raw, _ = io.ReadAll(answer)
	_ = answer.Close()
	if string(raw) != "the answer" || s.Bytes() != int64(len(raw)) {
		t.Errorf("the answer is %q, of %d bytes in all", raw, s.Bytes())
	}
	if _, err := s.Later("b", l.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("another owner's: %v", err)
	}
	if err := s.DeleteLater("a", l.ID); err != nil {
		t.Fatal(err)
	}
	if left := files(t, s, dirLater); len(left) != 0 || s.Bytes() != 0 {
		t.Errorf("%v is left, %d bytes", left, s.Bytes())
	}
}

// TestDeletedWhileServed: nobody waits for the answer any more.
func TestDeletedWhileServed(t *testing.T) {
	s := open(t, Config{})
	l, err := s.NewLater(Later{Owner: "a"}, []byte("asked"), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	claim, body, err := s.ClaimLater("a", l.ID)
	if err != nil {
		t.Fatal(err)
	}
	_ = body.Close()
	if err := s.DeleteLater("a", l.ID); err != nil {
		t.Fatal(err)
	}
	if err := s.FinishLater(claim, 200, nil, []byte("answer")); !errors.Is(err, ErrFenced) {
		t.Errorf("finished: %v, want ErrFenced", err)
	}
	if left := files(t, s, dirLater); len(left) != 0 || s.Bytes() != 0 {
		t.Errorf("%v is left, %d bytes", left, s.Bytes())
	}
}

// TestSweep: what has expired is gone, but for the input of a batch that runs.
func TestSweep(t *testing.T) {
	s := open(t, Config{Keep: time.Hour})
	old, used := upload(t, s, "a", "old"), upload(t, s, "a", "used")
	c := batch(t, s, used.ID)
	l, err := s.NewLater(Later{Owner: "a"}, []byte("asked"), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := s.Sweep(time.Now()); n != 0 || err != nil {
		t.Errorf("%d swept at once, %v", n, err)
	}
	later := time.Now().Add(2 * time.Hour)
	if n, err := s.Sweep(later); n != 1 || err != nil {
		t.Errorf("%d swept, %v; want the old file", n, err)
	}
	if _, err := os.Stat(s.path(filepath.Join(dirFiles, old.ID))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its body: %v", err)
	}
	if _, err := s.Later("a", l.ID); err != nil {
		t.Errorf("a request that waits: %v", err)
	}
	if err := c.Finish(Cancelled, nil); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Sweep(later); n != 2 || err != nil {
		t.Errorf("%d swept, %v; want the input and the batch", n, err)
	}
}

// TestLimits: no owner has more than half, and all together no more than all.
func TestLimits(t *testing.T) {
	s := open(t, Config{MaxBytes: 100, Shared: "all"})
	try := func(owner string, n int) error {
		t.Helper()
		u, err := s.NewUpload(owner)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := u.Write(make([]byte, n)); err != nil {
			u.Discard()
			return err
		}
		_, err = u.Commit("f", "batch", 0)
		return err
	}
	if err := try("a", 51); !errors.Is(err, ErrFull) {
		t.Errorf("more than half: %v, want ErrFull", err)
	}
	if err := try("a", 50); err != nil {
		t.Error(err)
	}
	if _, err := s.NewLater(Later{Owner: "a"}, []byte("x"), time.Minute); !errors.Is(err, ErrFull) {
		t.Errorf("a request beyond half: %v, want ErrFull", err)
	}
	if err := try("all", 50); err != nil {
		t.Error(err)
	}
	if err := try("b", 1); !errors.Is(err, ErrFull) {
		t.Errorf("more than all: %v, want ErrFull", err)
	}
	if s = s.again(t); s.Bytes() != 100 {
		t.Errorf("%d bytes after it was opened again, want 100", s.Bytes())
	}
	if left := files(t, s, dirTmp); len(left) != 0 {
		t.Errorf("%v is left", left)
	}
}

// TestOneServer: a store has one server.
func TestOneServer(t *testing.T) {
	s := open(t, Config{})
	cfg := s.cfg
	cfg.Wait = time.Millisecond
	if _, err := Open(cfg); err == nil || !strings.Contains(err.Error(), "another server uses") {
		t.Errorf("opened twice: %v", err)
	}
	cfg.Wait = time.Minute
	opened := make(chan error)
	go func() {
		next, err := Open(cfg)
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
