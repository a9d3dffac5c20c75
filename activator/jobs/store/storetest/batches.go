package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/activator/jobs/store"
)

// testFencing: a lost claim records nothing; no line gets two results; recorded results exist after the store was
// opened again.
func testFencing(t *testing.T, open Opener) {
	again := open(t, store.Limits{})
	s := again()
	in := Upload(t, s, "a", "…")
	c := Batch(t, s, in.ID)
	id := c.Batch().ID
	if err := c.Record([]store.Result{Result(0, true), Result(1, false)}); err != nil {
		t.Fatal(err)
	}
	if err := c.Record([]store.Result{Result(2, true), Result(0, true)}); !errors.Is(err, store.ErrFenced) {
		t.Fatalf("a line got a second result: %v", err)
	}
	before := s.Bytes()
	next, done, err := s.Claim("a", id)
	if err != nil || cmp.Diff(map[int]bool{0: true, 1: true}, done) != "" {
		t.Fatalf("claimed again: %v, %v", done, err)
	}
	if err := c.Record([]store.Result{Result(3, true)}); !errors.Is(err, store.ErrFenced) {
		t.Errorf("the first claim recorded a line: %v", err)
	}
	if err := c.Change(func(b *store.Batch) { b.Status = store.Completed }); !errors.Is(err, store.ErrFenced) {
		t.Errorf("the first claim changed the batch: %v", err)
	}
	if err := c.Finish(store.Completed, nil); !errors.Is(err, store.ErrFenced) {
		t.Errorf("the first claim finished the batch: %v", err)
	}
	if got := s.Bytes(); got != before {
		t.Errorf("%d bytes are counted, want %d", got, before)
	}
	if err := s.DeleteFile("a", in.ID); !errors.Is(err, store.ErrInUse) {
		t.Errorf("delete the input: %v, want ErrInUse", err)
	}
	if err := next.Record([]store.Result{Result(2, true)}); err != nil {
		t.Fatal(err)
	}
	if err := next.Finish(store.Completed, nil); err != nil {
		t.Fatal(err)
	}
	s = again()
	b, err := s.Batch("a", id)
	if err != nil || b.Status != store.Completed || b.Completed != 2 || b.Failed != 1 || b.Tokens.Output != 6 || b.Epoch != 2 {
		t.Fatalf("the batch is %+v, %v", b, err)
	}
	if got := Read(t, s, "a", b.OutID); got != "line 0\nline 2\n" {
		t.Errorf("the output is %q", got)
	}
	if got := Read(t, s, "a", b.ErrID); got != "line 1\n" {
		t.Errorf("the errors are %q", got)
	}
	if _, _, err := s.Claim("a", id); !errors.Is(err, store.ErrState) {
		t.Errorf("claim what has ended: %v, want ErrState", err)
	}
	if err := s.DeleteFile("a", in.ID); err != nil {
		t.Errorf("delete the input of a batch that has ended: %v", err)
	}
	if err := s.DeleteBatch("b", id); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("another owner deletes it: %v", err)
	}
	if err := s.DeleteBatch("a", id); err != nil || s.Bytes() != 0 {
		t.Errorf("deleted: %v, %d bytes are left", err, s.Bytes())
	}
	if _, err := s.File("a", b.OutID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the output of a batch that was deleted: %v", err)
	}
}

// testGroups: many results in many groups, over several claims, exist once each, in the order of recording.
func testGroups(t *testing.T, open Opener) {
	again := open(t, store.Limits{})
	s := again()
	c := Batch(t, s, Upload(t, s, "a", "…").ID)
	id, want := c.Batch().ID, [2]strings.Builder{}
	for line := 0; line < 600; {
		var group []store.Result
		for range 1 + line%7 {
			r := Result(line, line%5 != 0)
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
			next, done, err := s.Claim("a", id)
			if err != nil || len(done) != line {
				t.Fatalf("%d lines are done, %v; want %d", len(done), err, line)
			}
			c = next
		}
	}
	if err := c.Finish(store.Completed, nil); err != nil {
		t.Fatal(err)
	}
	b, err := s.Batch("a", id)
	if err != nil || b.OutBytes != int64(want[0].Len()) || b.ErrBytes != int64(want[1].Len()) {
		t.Fatalf("%+v, %v", b, err)
	}
	for k, file := range []string{b.OutID, b.ErrID} {
		if got := Read(t, s, "a", file); got != want[k].String() {
			t.Errorf("the file %d has %d bytes, which are not the %d that were recorded", k, len(got), want[k].Len())
		}
	}
	if got := again().Bytes(); got != b.OutBytes+b.ErrBytes+int64(len("…")) {
		t.Errorf("%d bytes are counted, want %d", got, b.OutBytes+b.ErrBytes+3)
	}
}

// testNoResults: a batch that failed has no files.
func testNoResults(t *testing.T, open Opener) {
	s := open(t, store.Limits{})()
	c := Batch(t, s, Upload(t, s, "a", "…").ID)
	if err := c.Finish(store.Failed, []store.Fault{{Code: "x", Line: 3}}); err != nil {
		t.Fatal(err)
	}
	b, err := s.Batch("a", c.Batch().ID)
	if err != nil || b.Status != store.Failed || len(b.Faults) != 1 || b.Faults[0].Line != 3 {
		t.Errorf("%+v, %v", b, err)
	}
	for _, file := range []string{b.OutID, b.ErrID} {
		if _, err := s.File("a", file); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("a file without results: %v, want ErrNotFound", err)
		}
	}
	if _, err := s.NewBatch(store.Batch{Owner: "b", Input: b.Input}, time.Hour); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a batch of another owner's file: %v", err)
	}
	if all, _, err := s.Batches("b", false, store.Query{Limit: 9}); err != nil || len(all) != 0 {
		t.Errorf("b has the batches %v, %v", all, err)
	}
}

// testCancel: a claim notices a cancellation by any client.
func testCancel(t *testing.T, open Opener) {
	s := open(t, store.Limits{})()
	c := Batch(t, s, Upload(t, s, "a", "…").ID)
	id := c.Batch().ID
	if _, err := s.CancelBatch("b", id); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("another owner cancels: %v", err)
	}
	if b, err := s.CancelBatch("a", id); err != nil || b.Status != store.Cancelling || b.CancelAsked.IsZero() {
		t.Errorf("cancelled: %+v, %v", b, err)
	}
	if err := s.DeleteBatch("a", id); !errors.Is(err, store.ErrState) {
		t.Errorf("delete what runs: %v", err)
	}
	if err := c.Record([]store.Result{Result(0, true)}); err != nil || c.Batch().Status != store.Cancelling {
		t.Errorf("the claim knows the status %s, %v", c.Batch().Status, err)
	}
	if _, err := s.CancelBatch("a", id); err != nil {
		t.Errorf("cancelled twice: %v", err)
	}
	if err := c.Finish(store.Cancelled, nil); err != nil {
		t.Error(err)
	}
	if b, err := s.CancelBatch("a", id); !errors.Is(err, store.ErrState) || b.Status != store.Cancelled {
		t.Errorf("cancelled when it had ended: %+v, %v", b, err)
	}
}

// testMessages: batches of messages and their files are not among the others.
func testMessages(t *testing.T, open Opener) {
	s := open(t, store.Limits{})()
	u, err := s.NewUpload("a")
	if err != nil {
		t.Fatal(err)
	}
	f, err := u.Commit("requests.jsonl", store.MessagesInput, 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.NewBatch(store.Batch{Owner: "a", Input: f.ID, Messages: true}, time.Hour)
	if err != nil || !strings.HasPrefix(b.ID, store.PrefixMessages) {
		t.Fatalf("%+v, %v", b, err)
	}
	other := Batch(t, s, Upload(t, s, "a", "…").ID).Batch()
	for messages, want := range map[bool]string{true: b.ID, false: other.ID} {
		if all, more, err := s.Batches("a", messages, store.Query{Limit: 1}); err != nil || more || len(all) != 1 || all[0].ID != want {
			t.Errorf("the batches are %+v, %v, %v; want %s", all, more, err, want)
		}
	}
	c, _, err := s.Claim("a", b.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Record([]store.Result{Result(0, true)}), c.Finish(store.Completed, nil)); err != nil {
		t.Fatal(err)
	}
	if got := Read(t, s, "a", b.OutID); got != "line 0\n" {
		t.Errorf("the results are %q", got)
	}
	if all, _, err := s.Files("a", "", store.Query{Limit: 9}); err != nil || len(all) != 1 || all[0].ID != other.Input {
		t.Errorf("listed are %+v, %v", all, err)
	}
}

// testWatch: unfinished work is reported to the user that opens the store.
func testWatch(t *testing.T, open Opener) {
	again := open(t, store.Limits{})
	s := again()
	in := Upload(t, s, "a", "…").ID
	ended, runs := Batch(t, s, in), Batch(t, s, in)
	if err := ended.Finish(store.Completed, nil); err != nil {
		t.Fatal(err)
	}
	runs.Close()
	var laters []store.Later
	for range 3 {
		l, err := s.NewLater(store.Later{Owner: "b"}, []byte("asked"), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		laters = append(laters, l)
	}
	claim, body, err := s.ClaimLater("b", laters[0].ID, false)
	if err != nil {
		t.Fatal(err)
	}
	_ = body.Close()
	if err := s.FinishLater(claim, 200, nil, nil); err != nil {
		t.Fatal(err)
	}
	s = again()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	want := []string{runs.Batch().ID, laters[1].ID, laters[2].ID}
	var got []string
	err = s.Watch(ctx, func(n store.News) {
		got = nil
		for _, r := range slices.Concat(n.Batches, n.Laters) {
			got = append(got, r.ID)
		}
		if cmp.Diff(want, got) == "" {
			cancel()
		}
	})
	if err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("told was %v, %v; want %v", got, err, want)
	}
}
