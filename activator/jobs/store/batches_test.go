package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// testFencing: a lost claim records nothing; no line gets two results; recorded results exist after the store was
// opened again.
func testFencing(t *testing.T, open opener) {
	again := open(t, Limits{})
	s := again()
	in := putFile(t, s, "a", "…")
	c := newBatch(t, s, in.ID)
	id := c.Job().ID
	if err := c.Record([]Result{result(0, true), result(1, false)}); err != nil {
		t.Fatal(err)
	}
	if err := c.Record([]Result{result(2, true), result(0, true)}); !errors.Is(err, ErrFenced) {
		t.Fatalf("a line got a second result: %v", err)
	}
	before := s.Bytes()
	next := claim(t, s, id)
	if done := next.LinesDone(); cmp.Diff(map[int]bool{0: true, 1: true}, done) != "" {
		t.Fatalf("claimed again: %v", done)
	}
	if err := c.Record([]Result{result(3, true)}); !errors.Is(err, ErrFenced) {
		t.Errorf("the first claim recorded a line: %v", err)
	}
	if err := c.Change(func(b *Job) error { b.Status = Completed; return nil }); !errors.Is(err, ErrFenced) {
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
	s = again()
	b, err := s.Job("a", id)
	if err != nil || b.Status != Completed || b.Completed != 2 || b.Failed != 1 || b.Tokens.Output != 6 || b.Epoch != 2 {
		t.Fatalf("the batch is %+v, %v", b, err)
	}
	if got := readFile(t, s, "a", b.OutID); got != "line 0\nline 2\n" {
		t.Errorf("the output is %q", got)
	}
	if got := readFile(t, s, "a", b.ErrID); got != "line 1\n" {
		t.Errorf("the errors are %q", got)
	}
	if _, err := s.Claim("a", id, false); !errors.Is(err, ErrState) {
		t.Errorf("claim what has ended: %v, want ErrState", err)
	}
	if err := s.DeleteFile("a", in.ID); err != nil {
		t.Errorf("delete the input of a batch that has ended: %v", err)
	}
	if err := s.Delete("b", id); !errors.Is(err, ErrNotFound) {
		t.Errorf("another owner deletes it: %v", err)
	}
	if err := s.Delete("a", id); err != nil || s.Bytes() != 0 {
		t.Errorf("deleted: %v, %d bytes are left", err, s.Bytes())
	}
	if _, err := s.File("a", b.OutID); !errors.Is(err, ErrNotFound) {
		t.Errorf("the output of a batch that was deleted: %v", err)
	}
}

// testGroups: many results in many groups, over several claims, exist once each, in the order of recording.
func testGroups(t *testing.T, open opener) {
	again := open(t, Limits{})
	s := again()
	c := newBatch(t, s, putFile(t, s, "a", "…").ID)
	id, want := c.Job().ID, [2]strings.Builder{}
	for line := 0; line < 600; {
		var group []Result
		for range 1 + line%7 {
			r := result(line, line%5 != 0)
			r.Text = fmt.Appendf(nil, "%d %s\n", line, strings.Repeat("x", line*7))
			k := 0
			if !r.OK {
				k = 1
			}
			want[k].Write(r.Text)
			group = append(group, r)
			line++
		}
		if err := c.Record(group); err != nil {
			t.Fatal(err)
		}
		if line%100 < 7 {
			c.Close()
			s = again()
			c = claim(t, s, id)
			if done := c.LinesDone(); len(done) != line {
				t.Fatalf("%d lines are done; want %d", len(done), line)
			}
		}
	}
	if err := c.Finish(Completed, nil); err != nil {
		t.Fatal(err)
	}
	b, err := s.Job("a", id)
	if err != nil || b.OutBytes != int64(want[0].Len()) || b.ErrBytes != int64(want[1].Len()) {
		t.Fatalf("%+v, %v", b, err)
	}
	for k, file := range []string{b.OutID, b.ErrID} {
		if got := readFile(t, s, "a", file); got != want[k].String() {
			t.Errorf("the file %d has %d bytes, which are not the %d that were recorded", k, len(got), want[k].Len())
		}
	}
	if got, want := again().Bytes(), 3*recordBytes+batchBytes+b.OutBytes+b.ErrBytes+int64(len("…")); got != want {
		t.Errorf("%d bytes are counted, want %d", got, want)
	}
}

// testNoResults: a batch that failed has no files.
func testNoResults(t *testing.T, open opener) {
	s := open(t, Limits{})()
	c := newBatch(t, s, putFile(t, s, "a", "…").ID)
	if err := c.Finish(Failed, []Fault{{Code: "x", Line: 3}}); err != nil {
		t.Fatal(err)
	}
	b, err := s.Job("a", c.Job().ID)
	if err != nil || b.Status != Failed || len(b.Faults) != 1 || b.Faults[0].Line != 3 {
		t.Errorf("%+v, %v", b, err)
	}
	for _, file := range []string{b.OutID, b.ErrID} {
		if _, err := s.File("a", file); !errors.Is(err, ErrNotFound) {
			t.Errorf("a file without results: %v, want ErrNotFound", err)
		}
	}
	if _, err := create(s, Job{Owner: "b", Batch: Batch{Input: b.Input}}, nil, time.Hour); !errors.Is(err, ErrNotFound) {
		t.Errorf("a batch of another owner's file: %v", err)
	}
	if all, _, err := s.Jobs("b", PrefixBatch, Query{Limit: 9}); err != nil || len(all) != 0 {
		t.Errorf("b has the batches %v, %v", all, err)
	}
}

// testCancel: a claim notices a cancellation by any client.
func testCancel(t *testing.T, open opener) {
	s := open(t, Limits{})()
	c := newBatch(t, s, putFile(t, s, "a", "…").ID)
	id := c.Job().ID
	if _, err := s.Cancel("b", id); !errors.Is(err, ErrNotFound) {
		t.Errorf("another owner cancels: %v", err)
	}
	if b, err := s.Cancel("a", id); err != nil || b.Status != Cancelling || b.CancelAsked.IsZero() {
		t.Errorf("cancelled: %+v, %v", b, err)
	}
	if err := s.Delete("a", id); !errors.Is(err, ErrState) {
		t.Errorf("delete what runs: %v", err)
	}
	if err := c.Record([]Result{result(0, true)}); err != nil || c.Job().Status != Cancelling {
		t.Errorf("the claim knows the status %s, %v", c.Job().Status, err)
	}
	if _, err := s.Cancel("a", id); err != nil {
		t.Errorf("cancelled twice: %v", err)
	}
	if err := c.Finish(Cancelled, nil); err != nil {
		t.Error(err)
	}
	if b, err := s.Cancel("a", id); !errors.Is(err, ErrState) || b.Status != Cancelled {
		t.Errorf("cancelled when it had ended: %+v, %v", b, err)
	}
}

// testMessages: batches of messages and their files are not among the others.
func testMessages(t *testing.T, open opener) {
	s := open(t, Limits{})()
	u, err := s.NewUpload("a")
	if err != nil {
		t.Fatal(err)
	}
	f, err := u.Commit("requests.jsonl", MessagesInput, 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := create(s, Job{Owner: "a", Batch: Batch{Input: f.ID, Messages: true}}, nil, time.Hour)
	if err != nil || !strings.HasPrefix(b.ID, PrefixMessages) {
		t.Fatalf("%+v, %v", b, err)
	}
	other := newBatch(t, s, putFile(t, s, "a", "…").ID).Job()
	for prefix, want := range map[string]string{PrefixMessages: b.ID, PrefixBatch: other.ID} {
		if all, more, err := s.Jobs("a", prefix, Query{Limit: 1}); err != nil || more || len(all) != 1 || all[0].ID != want {
			t.Errorf("the batches are %+v, %v, %v; want %s", all, more, err, want)
		}
	}
	c := claim(t, s, b.ID)
	if err := errors.Join(c.Record([]Result{result(0, true)}), c.Finish(Completed, nil)); err != nil {
		t.Fatal(err)
	}
	if got := readFile(t, s, "a", b.OutID); got != "line 0\n" {
		t.Errorf("the results are %q", got)
	}
	if all, _, err := s.Files("a", "", Query{Limit: 9}); err != nil || len(all) != 1 || all[0].ID != other.Input {
		t.Errorf("listed are %+v, %v", all, err)
	}
}

// testWatch: unfinished work is reported to the user that opens the
func testWatch(t *testing.T, open opener) {
	again := open(t, Limits{})
	s := again()
	in := putFile(t, s, "a", "…").ID
	ended, runs := newBatch(t, s, in), newBatch(t, s, in)
	if err := ended.Finish(Completed, nil); err != nil {
		t.Fatal(err)
	}
	runs.Close()
	var asked []Job
	for range 3 {
		j, err := create(s, Job{Owner: "a"}, []byte("asked"), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		asked = append(asked, j)
	}
	if err := claim(t, s, asked[0].ID).Answer(200, nil, nil); err != nil {
		t.Fatal(err)
	}
	s = again()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	want := []string{asked[1].ID, asked[2].ID, runs.Job().ID}
	var got []string
	s.Watch(ctx, func(n News) {
		got = nil
		for _, r := range n.Free {
			got = append(got, r.ID)
		}
		if cmp.Diff(want, got) == "" {
			cancel()
		}
	})
	if cmp.Diff(want, got) != "" {
		t.Errorf("told was %v; want %v", got, want)
	}
}
