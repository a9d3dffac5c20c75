package store

import (
	"errors"
	"testing"
	"time"
)

// keep keeps a response of a's, created some time ago.
func keep(t *testing.T, s *Store, ago time.Duration, previous string, before ...string) string {
	t.Helper()
	r := Response{Owner: "a", Status: Completed, Previous: previous}
	r.ID, r.Created = s.NewResponseID()
	r.Created = r.Created.Add(-ago)
	if err := s.KeepResponse(r, before, []byte("asked"), []byte("answered"), nil); err != nil {
		t.Fatal(err)
	}
	return r.ID
}

// TestResponses: what is kept is there for its owner, after a restart too, until it is deleted or expires; and for as long as what goes on from it.
func TestResponses(t *testing.T) {
	s := open(t, Config{Keep: time.Hour, MaxResponses: 3})
	old := keep(t, s, 50*time.Minute, "")
	lone := keep(t, s, 50*time.Minute, "")
	last := keep(t, s, 0, old, old)
	if err := s.Fits("a", 1); !errors.Is(err, ErrFull) {
		t.Errorf("a fourth: %v", err)
	}
	if err := s.KeepResponse(Response{ID: "resp_4", Owner: "a", Created: time.Now()}, nil, nil, nil, nil); !errors.Is(err, ErrFull) {
		t.Errorf("a fourth: %v", err)
	}
	s = s.again(t)
	if n, err := s.Sweep(time.Now().Add(30 * time.Minute)); n != 1 || err != nil {
		t.Errorf("%d swept, %v; want that from which none goes on", n, err)
	}
	if _, err := s.Response("a", lone); !errors.Is(err, ErrNotFound) {
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
		if _, err := s.Response("b", id); !errors.Is(err, ErrNotFound) {
			t.Errorf("another owner's: %v", err)
		}
		if err := s.DeleteResponse("b", id); !errors.Is(err, ErrNotFound) {
			t.Errorf("another owner deletes it: %v", err)
		}
		if err := s.DeleteResponse("a", id); err != nil {
			t.Error(err)
		}
		if _, _, err := s.ReadResponse(r); !errors.Is(err, ErrNotFound) {
			t.Errorf("what was deleted: %v", err)
		}
		if err := s.DeleteResponse("a", id); !errors.Is(err, ErrNotFound) {
			t.Errorf("deleted twice: %v", err)
		}
	}
	if s.Bytes() != 0 || len(s.responses) != 0 || len(files(t, s, dirResponses)) != 0 {
		t.Errorf("%d bytes and %v are left", s.Bytes(), s.responses)
	}
}

// TestResponseOfClaim: a response ends the request that it answers, in one step, and only under the last claim.
func TestResponseOfClaim(t *testing.T) {
	s := open(t, Config{})
	l, err := s.NewLater(Later{ID: "resp_1", Owner: "a"}, []byte("body"), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	var claims [2]Later
	for k := range claims {
		var body interface{ Close() error }
		if claims[k], body, err = s.ClaimLater("a", l.ID); err != nil {
			t.Fatal(err)
		}
		_ = body.Close()
	}
	r := Response{ID: l.ID, Owner: "a", Created: time.Now()}
	if err := s.KeepResponse(r, nil, nil, []byte("late"), &claims[0]); !errors.Is(err, ErrFenced) {
		t.Errorf("under an old claim: %v", err)
	}
	if raw, err := s.Asked(l); string(raw) != "body" || err != nil {
		t.Errorf("asked was %q, %v", raw, err)
	}
	if err := s.KeepResponse(r, nil, nil, []byte("answered"), &claims[1]); err != nil {
		t.Error(err)
	}
	if err := s.KeepResponse(r, nil, nil, []byte("again"), &claims[1]); !errors.Is(err, ErrFenced) {
		t.Errorf("a second time: %v", err)
	}
	if _, err := s.Later("a", l.ID); !errors.Is(err, ErrNotFound) || len(files(t, s, dirLater)) != 0 {
		t.Errorf("the request: %v, %v", err, files(t, s, dirLater))
	}
	s = s.again(t)
	kept, err := s.Response("a", l.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, answer, err := s.ReadResponse(kept); string(answer) != "answered" || err != nil || s.Bytes() != int64(len("answered")) {
		t.Errorf("kept is %q, %v, %d bytes", answer, err, s.Bytes())
	}
}
