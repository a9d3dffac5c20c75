package storetest

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/activator/jobs/store"
)

// testLater: a later request belongs to its owner, and has one answer.
func testLater(t *testing.T, open Opener) {
	again := open(t, store.Limits{})
	s := again()
	l, err := s.NewLater(store.Later{Owner: "a", Caller: []byte("{}"), URI: "/v1/x", Header: http.Header{"K": {"v"}}}, []byte("asked"), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	first, body, err := s.ClaimLater("a", l.ID, false)
	if err != nil {
		t.Fatal(err)
	}
	if got := All(t, body); got != "asked" {
		t.Errorf("the body is %q", got)
	}
	s.LeaveLater(first)
	s = again()
	if got, err := s.Later("a", l.ID); err != nil || got.Done() || got.URI != "/v1/x" {
		t.Errorf("%+v, %v", got, err)
	}
	second, body, err := s.ClaimLater("a", l.ID, false)
	if err != nil || second.Epoch <= first.Epoch {
		t.Fatalf("claimed again: %+v, %v", second, err)
	}
	if got := All(t, body); got != "asked" || second.Header.Get("K") != "v" || string(second.Caller) != "{}" {
		t.Errorf("the body is %q, %+v", got, second)
	}
	if err := s.FinishLater(first, 500, nil, []byte("early")); !errors.Is(err, store.ErrFenced) {
		t.Errorf("the first claim answered: %v", err)
	}
	if err := s.FinishLater(second, 200, http.Header{"X": {"y"}}, []byte("the answer")); err != nil {
		t.Fatal(err)
	}
	if err := s.FinishLater(first, 500, nil, []byte("late")); !errors.Is(err, store.ErrFenced) {
		t.Errorf("the first claim answered: %v", err)
	}
	if _, _, err := s.ClaimLater("a", l.ID, true); !errors.Is(err, store.ErrState) {
		t.Errorf("claimed what was answered: %v", err)
	}
	s = again()
	got, err := s.Later("a", l.ID)
	if err != nil || got.Status != 200 || got.Answer.Get("X") != "y" {
		t.Fatalf("%+v, %v", got, err)
	}
	answer, err := s.Answer(got)
	if err != nil {
		t.Fatal(err)
	}
	if text := All(t, answer); text != "the answer" || s.Bytes() != int64(len(text)) {
		t.Errorf("the answer is %q, of %d bytes in all", text, s.Bytes())
	}
	if _, err := s.Later("b", l.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("another owner's: %v", err)
	}
	if err := s.DeleteLater("b", l.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("another owner deletes it: %v", err)
	}
	if err := s.DeleteLater("a", l.ID); err != nil || s.Bytes() != 0 {
		t.Errorf("deleted: %v, %d bytes are left", err, s.Bytes())
	}
}

// testDeletedWhileServed: no one waits for the answer any more.
func testDeletedWhileServed(t *testing.T, open Opener) {
	s := open(t, store.Limits{})()
	l, err := s.NewLater(store.Later{Owner: "a"}, []byte("asked"), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	claim, body, err := s.ClaimLater("a", l.ID, false)
	if err != nil {
		t.Fatal(err)
	}
	_ = body.Close()
	if err := s.DeleteLater("a", l.ID); err != nil {
		t.Fatal(err)
	}
	if err := s.FinishLater(claim, 200, nil, []byte("answer")); !errors.Is(err, store.ErrFenced) {
		t.Errorf("finished: %v, want ErrFenced", err)
	}
	if _, err := s.Asked(l); !errors.Is(err, store.ErrNotFound) || s.Bytes() != 0 {
		t.Errorf("%v; %d bytes are left", err, s.Bytes())
	}
}

// testResponses: a stored response is available to its owner, also after a restart, until it is deleted or expires,
// and as long as later responses that continue from it.
func testResponses(t *testing.T, open Opener) {
	again := open(t, store.Limits{Keep: time.Hour, MaxResponses: 3})
	s := again()
	old := Keep(t, s, 0, "")
	lone := Keep(t, s, 0, "")
	last := Keep(t, s, -50*time.Minute, old, old)
	if err := s.Fits("a", 1); !errors.Is(err, store.ErrFull) {
		t.Errorf("a fourth: %v", err)
	}
	if err := s.KeepResponse(store.Response{ID: "resp_4", Owner: "a", Created: time.Now()}, nil, nil, nil, nil); !errors.Is(err, store.ErrFull) {
		t.Errorf("a fourth: %v", err)
	}
	s = again()
	if err := s.Fits("a", 1); !errors.Is(err, store.ErrFull) {
		t.Errorf("a fourth, after it was opened again: %v", err)
	}
	if n, err := s.Sweep(time.Now().Add(90 * time.Minute)); n != 1 || err != nil {
		t.Errorf("%d swept, %v; want that from which none goes on", n, err)
	}
	if _, err := s.Response("a", lone); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("what has expired: %v", err)
	}
	for _, id := range []string{old, last} {
		r, err := s.Response("a", id)
		if err != nil {
			t.Fatal(err)
		}
		if input, answer, err := s.ReadResponse(r); string(input) != "asked" || string(answer) != "answered" || err != nil {
			t.Errorf("%s: %q, %q, %v", id, input, answer, err)
		}
		if _, err := s.Response("b", id); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("another owner's: %v", err)
		}
		if err := s.DeleteResponse("b", id); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("another owner deletes it: %v", err)
		}
		if err := s.DeleteResponse("a", id); err != nil {
			t.Error(err)
		}
		if _, _, err := s.ReadResponse(r); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("what was deleted: %v", err)
		}
		if err := s.DeleteResponse("a", id); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("deleted twice: %v", err)
		}
	}
	if err := s.Fits("a", 1); err != nil || s.Bytes() != 0 {
		t.Errorf("%d bytes are left, %v", s.Bytes(), err)
	}
}

// testResponseOfClaim: a response ends the request that it answers, in one step, and only under the last claim.
func testResponseOfClaim(t *testing.T, open Opener) {
	again := open(t, store.Limits{})
	s := again()
	l, err := s.NewLater(store.Later{ID: "resp_1", Owner: "a"}, []byte("body"), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	var claims [2]store.Later
	for k := range claims {
		var body store.Body
		if claims[k], body, err = s.ClaimLater("a", l.ID, true); err != nil {
			t.Fatal(err)
		}
		_ = body.Close()
	}
	r := store.Response{ID: l.ID, Owner: "a", Created: time.Now()}
	if err := s.KeepResponse(r, nil, nil, []byte("late"), &claims[0]); !errors.Is(err, store.ErrFenced) {
		t.Errorf("under an old claim: %v", err)
	}
	if _, err := s.Response("a", l.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("kept under an old claim: %v", err)
	}
	if raw, err := s.Asked(l); string(raw) != "body" || err != nil {
		t.Errorf("asked was %q, %v", raw, err)
	}
	if err := s.KeepResponse(r, nil, nil, []byte("answered"), &claims[1]); err != nil {
		t.Error(err)
	}
	if err := s.KeepResponse(r, nil, nil, []byte("again"), &claims[1]); !errors.Is(err, store.ErrFenced) {
		t.Errorf("a second time: %v", err)
	}
	if _, err := s.Later("a", l.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the request: %v", err)
	}
	s = again()
	kept, err := s.Response("a", l.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, answer, err := s.ReadResponse(kept); string(answer) != "answered" || err != nil || s.Bytes() != int64(len("answered")) {
		t.Errorf("kept is %q, %v, %d bytes", answer, err, s.Bytes())
	}
}
