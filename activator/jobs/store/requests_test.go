package store

import (
	"errors"
	"net/http"
	"testing"
	"time"
)

// asked returns the body of a request.
func asked(t *testing.T, s *Store, j Job) string {
	t.Helper()
	body, err := s.OpenRequest(j)
	if err != nil {
		t.Fatal(err)
	}
	return readAll(t, body)
}

// testLater: a later request belongs to its owner, and has one answer.
func testLater(t *testing.T, open opener) {
	again := open(t, Limits{})
	s := again()
	l, err := create(s, Job{Owner: "a", Caller: []byte("{}"), Request: Request{URI: "/v1/x", Header: http.Header{"K": {"v"}}}}, []byte("asked"), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	first := claim(t, s, l.ID)
	if got := asked(t, s, first.Job()); got != "asked" {
		t.Errorf("the body is %q", got)
	}
	first.Close()
	s = again()
	if got, err := s.Job("a", l.ID); err != nil || got.Done() || got.URI != "/v1/x" {
		t.Errorf("%+v, %v", got, err)
	}
	second := claim(t, s, l.ID)
	if j := second.Job(); j.Epoch <= first.Job().Epoch || asked(t, s, j) != "asked" || j.Header.Get("K") != "v" || string(j.Caller) != "{}" {
		t.Errorf("claimed again: %+v", j)
	}
	third, err := s.Claim("a", l.ID, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Answer(500, nil, []byte("early")); !errors.Is(err, ErrFenced) {
		t.Errorf("a claim that was taken answered: %v", err)
	}
	if err := third.Answer(200, http.Header{"X": {"y"}}, []byte("the answer")); err != nil {
		t.Fatal(err)
	}
	if err := second.Answer(500, nil, []byte("late")); !errors.Is(err, ErrFenced) {
		t.Errorf("a claim that was taken answered: %v", err)
	}
	if _, err := s.Claim("a", l.ID, true); !errors.Is(err, ErrState) {
		t.Errorf("claimed what was answered: %v", err)
	}
	s = again()
	got, err := s.Job("a", l.ID)
	if err != nil || got.Code != 200 || got.AnswerHeader.Get("X") != "y" {
		t.Fatalf("%+v, %v", got, err)
	}
	answer, err := s.OpenAnswer(got)
	if err != nil {
		t.Fatal(err)
	}
	if text := readAll(t, answer); text != "the answer" || s.Bytes() != recordBytes+int64(len(text)) {
		t.Errorf("the answer is %q, of %d bytes in all", text, s.Bytes())
	}
	if _, err := s.Job("b", l.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("another owner's: %v", err)
	}
	if err := s.Delete("b", l.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("another owner deletes it: %v", err)
	}
	if err := s.Delete("a", l.ID); err != nil || s.Bytes() != 0 {
		t.Errorf("deleted: %v, %d bytes are left", err, s.Bytes())
	}
}

// testDeletedWhileServed: no one waits for the answer any more.
func testDeletedWhileServed(t *testing.T, open opener) {
	s := open(t, Limits{})()
	l, err := create(s, Job{Owner: "a"}, []byte("asked"), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	c := claim(t, s, l.ID)
	if err := s.Delete("a", l.ID); err != nil {
		t.Fatal(err)
	}
	if err := c.Answer(200, nil, []byte("answer")); !errors.Is(err, ErrFenced) {
		t.Errorf("finished: %v, want ErrFenced", err)
	}
	if _, err := s.ReadRequest(l); !errors.Is(err, ErrNotFound) || s.Bytes() != 0 {
		t.Errorf("%v; %d bytes are left", err, s.Bytes())
	}
}

// testResponses: a stored response is available to its owner, also after a restart, until it is deleted or expires,
// and as long as later responses that continue from it.
func testResponses(t *testing.T, open opener) {
	again := open(t, Limits{Keep: time.Hour, MaxRecords: 3})
	s := again()
	old := keepResponse(t, s, 0, "")
	lone := keepResponse(t, s, 0, "")
	last := keepResponse(t, s, -50*time.Minute, old, old)
	if err := s.Fits("a", 1, 1); !errors.Is(err, ErrFull) {
		t.Errorf("a fourth: %v", err)
	}
	if err := s.KeepResponse(Job{ID: "resp_4", Owner: "a", Created: time.Now()}, nil, nil, nil, nil); !errors.Is(err, ErrFull) {
		t.Errorf("a fourth: %v", err)
	}
	if _, err := create(s, Job{ID: "resp_4", Owner: "a"}, nil, time.Hour); !errors.Is(err, ErrFull) {
		t.Errorf("a fourth in the background: %v", err)
	}
	s = again()
	if err := s.Fits("a", 1, 1); !errors.Is(err, ErrFull) {
		t.Errorf("a fourth, after it was opened again: %v", err)
	}
	if n, err := s.Sweep(time.Now().Add(90 * time.Minute)); n != 1 || err != nil {
		t.Errorf("%d swept, %v; want that from which none goes on", n, err)
	}
	if _, err := s.Job("a", lone); !errors.Is(err, ErrNotFound) {
		t.Errorf("what has expired: %v", err)
	}
	for _, id := range []string{old, last} {
		r, err := s.Job("a", id)
		if err != nil {
			t.Fatal(err)
		}
		if input, answer, err := s.ReadResponse(r); string(input) != "asked" || string(answer) != "answered" || err != nil {
			t.Errorf("%s: %q, %q, %v", id, input, answer, err)
		}
		if _, err := s.Job("b", id); !errors.Is(err, ErrNotFound) {
			t.Errorf("another owner's: %v", err)
		}
		if err := s.Delete("b", id); !errors.Is(err, ErrNotFound) {
			t.Errorf("another owner deletes it: %v", err)
		}
		if err := s.Delete("a", id); err != nil {
			t.Error(err)
		}
		if _, _, err := s.ReadResponse(r); !errors.Is(err, ErrNotFound) {
			t.Errorf("what was deleted: %v", err)
		}
		if err := s.Delete("a", id); !errors.Is(err, ErrNotFound) {
			t.Errorf("deleted twice: %v", err)
		}
	}
	if err := s.Fits("a", 1, 3); err != nil || s.Bytes() != 0 {
		t.Errorf("%d bytes are left, %v", s.Bytes(), err)
	}
}

// testResponseOfClaim: a response ends the request that it answers, in one step, and only under the last claim.
func testResponseOfClaim(t *testing.T, open opener) {
	again := open(t, Limits{})
	s := again()
	l, err := create(s, Job{ID: "resp_1", Owner: "a"}, []byte("body"), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	var claims [2]*Claim
	for k := range claims {
		if claims[k], err = s.Claim("a", l.ID, true); err != nil {
			t.Fatal(err)
		}
	}
	r := Job{ID: l.ID, Owner: "a", Status: Completed, Created: time.Now()}
	if err := s.KeepResponse(r, nil, nil, []byte("late"), claims[0]); !errors.Is(err, ErrFenced) {
		t.Errorf("under an old claim: %v", err)
	}
	if got, err := s.Job("a", l.ID); got.Done() || err != nil {
		t.Errorf("kept under an old claim: %+v, %v", got, err)
	}
	if raw, err := s.ReadRequest(l); string(raw) != "body" || err != nil {
		t.Errorf("asked was %q, %v", raw, err)
	}
	if err := s.KeepResponse(r, nil, nil, []byte("answered"), claims[1]); err != nil {
		t.Error(err)
	}
	if err := s.KeepResponse(r, nil, nil, []byte("again"), claims[1]); !errors.Is(err, ErrFenced) {
		t.Errorf("a second time: %v", err)
	}
	s = again()
	kept, err := s.Job("a", l.ID)
	if err != nil || kept.Status != Completed || !kept.Done() {
		t.Fatalf("%+v, %v", kept, err)
	}
	if _, answer, err := s.ReadResponse(kept); string(answer) != "answered" || err != nil || s.Bytes() != recordBytes+int64(len("answered")) {
		t.Errorf("kept is %q, %v, %d bytes", answer, err, s.Bytes())
	}
}
