package store

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

const (
	killedDir   = "ROUSE_TEST_STORE" // the folder of a program that is killed
	killedLines = 250
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(killedDir); dir != "" {
		if err := work(dir, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// work runs the batch of a store, with files and requests beside it, and prints what has been acknowledged as stored.
func work(dir string, out io.Writer) error {
	s, err := Open(Config{At: dir}, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	all, _, err := s.Jobs("a", PrefixBatch, Query{Limit: 1})
	if err != nil {
		return err
	}
	if len(all) == 0 {
		u, err := s.NewUpload("a")
		if err != nil {
			return err
		}
		f, err := u.Commit("in", "batch", 0)
		if err != nil {
			return err
		}
		b, err := create(s, Job{Owner: "a", Batch: Batch{Input: f.ID}}, nil, time.Hour)
		if err != nil {
			return err
		}
		all = []Job{b}
	}
	c, err := s.Claim("a", all[0].ID, false)
	if err != nil {
		return err
	}
	done := c.LinesDone()
	var group []Result
	for n := range killedLines {
		if done[n] {
			continue
		}
		r := result(n, n%3 != 0)
		r.Text = fmt.Appendf(nil, `{"line":%d,"epoch":%d,"filler":%q}`+"\n", n, c.Job().Epoch, strings.Repeat("x", rand.IntN(5000)))
		if group = append(group, r); len(group) < 1+rand.IntN(4) && n < killedLines-1 {
			continue
		}
		if err := c.Record(group); err != nil {
			return err
		}
		group = nil
		if err := beside(s, out); err != nil {
			return err
		}
	}
	if err := c.Record(group); err != nil {
		return err
	}
	return c.Finish(Completed, nil)
}

// beside stores a file, a request and a response.
func beside(s *Store, out io.Writer) error {
	u, err := s.NewUpload("a")
	if err != nil {
		return err
	}
	if _, err := u.Write(bytes.Repeat([]byte("y"), 1+rand.IntN(10_000))); err != nil {
		return err
	}
	f, err := u.Commit("f", "batch", 0)
	if err != nil {
		return err
	}
	l, err := create(s, Job{Owner: "a"}, []byte("asked"), time.Hour)
	if err != nil {
		return err
	}
	r := Job{Owner: "a", Status: Completed}
	r.ID, r.Created = s.NewID(PrefixResponse)
	if err := s.KeepResponse(r, nil, []byte("asked"), bytes.Repeat([]byte("z"), 1+rand.IntN(10_000)), nil); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, f.ID, f.Bytes, l.ID, r.ID)
	return err
}

// TestKilled kills a program while it writes, repeatedly: acknowledged data exists, no line has two results, and none
// is lost.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	said := map[string]int64{} // files
	var asked, kept []string
	kills := 0
	for {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), killedDir+"="+dir)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for left := 5 + rand.IntN(15); lines.Scan(); left-- {
			var file, later, response string
			var n int64
			if _, err := fmt.Sscan(lines.Text(), &file, &n, &later, &response); err != nil {
				t.Fatalf("%q: %v", lines.Text(), err)
			}
			said[file], asked, kept = n, append(asked, later), append(kept, response)
			if left == 0 {
				_ = cmd.Process.Kill() // it is in the middle of the next one
			}
		}
		err = cmd.Wait()
		if err == nil {
			break
		}
		if errs.Len() > 0 {
			t.Fatal(errs.String())
		}
		kills++
	}
	if kills < 5 {
		t.Fatalf("it was killed %d times only", kills)
	}
	s := open(t, Config{At: dir})
	for id, n := range said {
		if got := readFile(t, s, "a", id); int64(len(got)) != n {
			t.Errorf("the file %s has %d bytes, want %d", id, len(got), n)
		}
	}
	for _, id := range asked {
		if raw, err := s.ReadRequest(claim(t, s, id).Job()); string(raw) != "asked" {
			t.Errorf("the request %s has the body %q, %v", id, raw, err)
		}
	}
	for _, id := range kept {
		r, err := s.Job("a", id)
		if err != nil {
			t.Fatal(err)
		}
		if input, answer, err := s.ReadResponse(r); err != nil || string(input) != "asked" || strings.Trim(string(answer), "z") != "" {
			t.Errorf("the response %s has the input %q, %v", id, input, err)
		}
	}
	if got := s.room.used["a"].records; got < len(kept) {
		t.Errorf("%d responses are counted, %d were said to be kept", got, len(kept))
	}
	checkBytes(t, s)
	checkOutput(t, s, kills)
}

// checkOutput: each line is in the output of the only batch once, and the disk has only files that records name.
func checkOutput(t *testing.T, s *Store, kills int) {
	t.Helper()
	all, _, err := s.Jobs("a", PrefixBatch, Query{Limit: 9})
	if err != nil || len(all) != 1 {
		t.Fatalf("batches: %v, %v", all, err)
	}
	b := all[0]
	if b.Status != Completed || b.Completed+b.Failed != killedLines || int(b.Epoch) != kills+1 {
		t.Errorf("after %d kills the batch is %+v", kills, b)
	}
	seen := map[int]int{}
	for text := range strings.Lines(readFile(t, s, "a", b.OutID) + readFile(t, s, "a", b.ErrID)) {
		var l struct{ Line, Epoch int }
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("a line of the output: %v: %.100q", err, text)
		}
		seen[l.Line]++
	}
	for n := range killedLines {
		if seen[n] != 1 {
			t.Errorf("line %d is there %d times", n, seen[n])
		}
	}
	if left := files(t, s, "tmp"); len(left) != 0 {
		t.Errorf("%v is left", left)
	}
	if _, err := s.Job("a", "async_0"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}
