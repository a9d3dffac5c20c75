package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/activator/jobs/store/faulty"
	"github.com/rouse-dev/rouse/internal/s3"
	"github.com/rouse-dev/rouse/internal/s3/s3test"
)

// watch runs Watch until the test ends, or stop is called, and returns the news on a channel.
func watch(t *testing.T, s *Store) (_ <-chan News, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	news, ended := make(chan News), make(chan struct{})
	go func() {
		defer close(ended)
		s.Watch(ctx, func(n News) {
			select {
			case news <- n:
			case <-ctx.Done():
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return news, cancel
}

// until waits for news for which want returns true.
func until(t *testing.T, news <-chan News, what string, want func(News) bool) {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case n := <-news:
			if want(n) {
				return
			}
		case <-timeout:
			t.Fatalf("there is no news that %s", what)
		}
	}
}

// stopped stops a member's beat: as after kill -9, its object stays.
func (s *Store) stopped() {
	_ = s.objects.Close()
}

// TestMembers: a live member keeps its claims; those that it gives up, or has when it dies, are reported to the
// others; a late member writes nothing.
func TestMembers(t *testing.T) {
	cfg := quick(s3test.Serve(t, s3test.NewFake()), Limits{})
	cfg.Lease = 3 * time.Second
	one, two := open(t, cfg), open(t, cfg)
	oneNews, _ := watch(t, one)
	twoNews, stop := watch(t, two)
	go func() { // nothing is reported to this member
		for range oneNews {
		}
	}()
	c := newBatch(t, one, putFile(t, one, "a", "…").ID)
	id := c.Job().ID
	l, err := create(one, Job{Owner: "a"}, []byte("asked"), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	late := claim(t, one, l.ID)
	if _, err := two.Claim("a", id, false); !errors.Is(err, ErrHeld) {
		t.Fatalf("claimed what a member that lives has: %v", err)
	}
	if _, err := two.Claim("a", l.ID, false); !errors.Is(err, ErrHeld) {
		t.Fatalf("claimed what a member that lives has: %v", err)
	}
	if err := c.Record([]Result{result(0, true)}); err != nil {
		t.Fatal(err)
	}
	c.Close()
	until(t, twoNews, "a batch is nobody's", func(n News) bool { return slices.Contains(n.Free, Ref{Owner: "a", ID: id}) })
	next := claim(t, two, id)
	if done := next.LinesDone(); len(done) != 1 {
		t.Fatalf("claimed: %v", done)
	}
	three := open(t, cfg)
	if _, err := three.Claim("a", id, false); !errors.Is(err, ErrHeld) {
		t.Fatalf("claimed what another has just claimed: %v", err)
	}
	threeNews, _ := watch(t, three)
	until(t, threeNews, "the members are known", func(News) bool { return true })
	stop() // it hangs, or is killed: its object stays
	until(t, threeNews, "a member has died", func(n News) bool {
		if slices.Contains(n.Free, Ref{Owner: "a", ID: l.ID}) {
			t.Error("what a member has that lives is told to be free")
		}
		return slices.Contains(n.Free, Ref{Owner: "a", ID: id})
	})
	last := claim(t, three, id)
	if done := last.LinesDone(); len(done) != 1 || last.Job().Epoch != 3 {
		t.Fatalf("taken over: %v", done)
	}
	// It was only slow, and comes back.
	if err := next.Record([]Result{result(1, true)}); !errors.Is(err, ErrFenced) {
		t.Errorf("a late member recorded: %v", err)
	}
	if err := next.Finish(Completed, nil); !errors.Is(err, ErrFenced) {
		t.Errorf("a late member finished: %v", err)
	}
	if err := errors.Join(last.Record([]Result{result(1, false)}), last.Finish(Completed, nil)); err != nil {
		t.Fatal(err)
	}
	b, err := one.Job("a", id)
	if err != nil || b.Completed != 1 || b.Failed != 1 {
		t.Errorf("%+v, %v", b, err)
	}
	if err := late.Answer(200, nil, []byte("answered")); err != nil {
		t.Error(err)
	}
	if got, err := three.Job("a", l.ID); err != nil || got.Code != 200 {
		t.Errorf("another member finds %+v, %v", got, err)
	}
}

// TestElsewhere: cancellations and deletions elsewhere are reported to the claimant; a response that is taken from it
// has one winner.
func TestElsewhere(t *testing.T) {
	cfg := quick(s3test.Serve(t, s3test.NewFake()), Limits{})
	one, two := open(t, cfg), open(t, cfg)
	news, _ := watch(t, one)
	c := newBatch(t, one, putFile(t, one, "a", "…").ID)
	id := c.Job().ID
	if _, err := two.Cancel("a", id); err != nil {
		t.Fatal(err)
	}
	until(t, news, "a batch is cancelled", func(n News) bool { return slices.Contains(n.Cancelled, id) })
	if err := c.Record([]Result{result(0, true)}); err != nil || c.Job().Status != Cancelling {
		t.Errorf("%s, %v", c.Job().Status, err)
	}
	if err := c.Finish(Cancelled, nil); err != nil {
		t.Error(err)
	}
	var claims []*Claim
	for _, name := range []string{"resp_1", "resp_2"} {
		l, err := create(one, Job{ID: name, Owner: "a"}, []byte("asked"), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		claims = append(claims, claim(t, one, l.ID))
	}
	if err := two.Delete("a", "resp_1"); err != nil {
		t.Fatal(err)
	}
	until(t, news, "a request is deleted", func(n News) bool { return slices.Contains(n.Lost, "resp_1") })
	taken, err := two.Claim("a", "resp_2", true)
	if err != nil {
		t.Fatal(err)
	}
	until(t, news, "a request is another's", func(n News) bool { return slices.Contains(n.Lost, "resp_2") })
	r := Job{ID: "resp_2", Owner: "a", Created: time.Now(), Status: Cancelled, Response: Response{Background: true}}
	if err := two.KeepResponse(r, nil, []byte("[]"), []byte("{}"), taken); err != nil {
		t.Fatal(err)
	}
	if err := one.KeepResponse(r, nil, []byte("[]"), []byte("late"), claims[1]); !errors.Is(err, ErrFenced) {
		t.Errorf("a late answer: %v", err)
	}
	if got, err := one.Job("a", "resp_2"); err != nil || got.Status != "cancelled" {
		t.Errorf("the first finds %+v, %v", got, err)
	}
	if err := one.Delete("a", "resp_2"); err != nil {
		t.Error(err)
	}
	if _, err := two.Job("a", "resp_2"); !errors.Is(err, ErrNotFound) {
		t.Errorf("deleted elsewhere: %v", err)
	}
	for _, key := range one.keys(t) {
		if strings.Contains(key, "/open/") || strings.Contains(key, "/data/a/resp_") {
			t.Errorf("%s is left", key)
		}
	}
}

// keys returns the keys of all objects.
func (s *Store) keys(t *testing.T) (keys []string) {
	t.Helper()
	all, err := s.objects.List("")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		keys = append(keys, "/"+e.Key)
	}
	return keys
}

// TestFaults: three members record the lines of some batches while the service fails and members die and come back;
// each line is recorded once.
func TestFaults(t *testing.T) {
	for name, serve := range map[string]func(*testing.T) s3.Service{
		"fake":    func(t *testing.T) s3.Service { return s3test.Serve(t, s3test.NewFake()) },
		"gateway": func(t *testing.T) s3.Service { return s3test.Gateway(t) },
	} {
		t.Run(name, func(t *testing.T) {
			faulty, service := faulty.New(t, serve(t))
			cfg := quick(service, Limits{})
			cfg.Lease, cfg.Try, cfg.Timeout = 200*time.Millisecond, 200*time.Millisecond, time.Second
			first := open(t, cfg)
			in := putFile(t, first, "a", "…").ID
			var ids []string
			for range 3 {
				b, err := create(first, Job{Owner: "a", Batch: Batch{Input: in}}, nil, time.Hour)
				if err != nil {
					t.Fatal(err)
				}
				ids = append(ids, b.ID)
			}
			faulty.Fail(80)
			var all sync.WaitGroup
			for n := range 3 {
				all.Go(func() { faultyMember(t, cfg, ids, n) })
			}
			all.Wait()
			faulty.Fail(0)
			if faulty.Faults.Load() < 10 {
				t.Errorf("there were %d faults only", faulty.Faults.Load())
			}
			for _, id := range ids {
				checkLines(t, first, id)
			}
			if n, err := first.Sweep(time.Now()); n != 0 || err != nil {
				t.Errorf("swept %d, %v", n, err)
			}
		})
	}
}

const faultyLines = 120

// faultyMember works on batches until all have ended: it claims what is reported, gives some of it back, and is
// killed now and then.
func faultyMember(t *testing.T, cfg Config, ids []string, n int) {
	deadline := time.Now().Add(3 * time.Minute)
	for time.Now().Before(deadline) {
		s, err := Open(cfg, nil)
		if err != nil {
			t.Error(err)
			return
		}
		ctx, cancel := context.WithCancel(t.Context())
		var told sync.WaitGroup
		refs := make(chan Ref, 16)
		told.Go(func() {
			s.Watch(ctx, func(n News) {
				for _, r := range n.Free {
					select {
					case refs <- r:
					default: // it is reported again
					}
				}
			})
		})
		ended := faultyLife(t, s, ids, refs, 1+rand.IntN(6)+n)
		cancel()
		told.Wait()
		if rand.IntN(2) == 0 {
			s.stopped()
		} else {
			_ = s.Close()
		}
		if ended {
			return
		}
	}
	t.Error("the batches do not end")
}

// faultyLife records groups of lines, and reports whether all batches have ended.
func faultyLife(t *testing.T, s *Store, ids []string, refs <-chan Ref, groups int) bool {
	for groups > 0 {
		var ref Ref
		select {
		case ref = <-refs:
		case <-time.After(100 * time.Millisecond):
			ended := 0
			for _, id := range ids {
				if b, err := s.Job("a", id); err == nil && b.Done() {
					ended++
				}
			}
			if ended == len(ids) {
				return true
			}
			continue
		}
		c, err := s.Claim(ref.Owner, ref.ID, false)
		if err != nil {
			continue
		}
		groups -= faultyRun(c, groups)
		c.Close()
	}
	return false
}

func faultyRun(c *Claim, groups int) (used int) {
	done := c.LinesDone()
	var group []Result
	for line := range faultyLines {
		if done[line] {
			continue
		}
		r := result(line, line%4 != 0)
		r.Text = fmt.Appendf(nil, "%d %d %s\n", line, c.Job().Epoch, strings.Repeat("x", rand.IntN(3000)))
		if group = append(group, r); len(group) < 10 && line < faultyLines-1 {
			continue
		}
		for tries := 0; ; tries++ {
			err := c.Record(group)
			if err == nil {
				break
			}
			if !Passing(err) || tries > 3 {
				return used + 1
			}
		}
		group = nil
		if used++; used >= groups {
			return used
		}
	}
	if err := c.Record(group); err == nil {
		_ = c.Finish(Completed, nil) // otherwise another does
	}
	return used + 1
}

// checkLines: each line is in a file of the batch once, and counted once.
func checkLines(t *testing.T, s *Store, id string) {
	t.Helper()
	b, err := s.Job("a", id)
	if err != nil || b.Status != Completed || b.Completed != faultyLines*3/4 || b.Failed != faultyLines/4 || b.Tokens.Output != 2*faultyLines {
		t.Errorf("%+v, %v", b, err)
		return
	}
	seen := map[int]int{}
	for text := range strings.Lines(readFile(t, s, "a", b.OutID) + readFile(t, s, "a", b.ErrID)) {
		var line, epoch int
		if _, err := fmt.Sscan(text, &line, &epoch); err != nil {
			t.Errorf("%.50q: %v", text, err)
		}
		seen[line]++
	}
	for line := range faultyLines {
		if seen[line] != 1 {
			t.Errorf("the line %d of %s is there %d times", line, id, seen[line])
		}
	}
}

// TestDown: while the service is unavailable, everything returns ErrUnavailable, also at the start, and works again
// afterwards.
func TestDown(t *testing.T) {
	faulty, service := faulty.New(t, s3test.Serve(t, s3test.NewFake()))
	cfg := quick(service, Limits{})
	cfg.Try, cfg.Timeout = 100*time.Millisecond, 100*time.Millisecond
	faulty.Down(true)
	s := open(t, cfg)
	calls := map[string]func() error{
		"upload": func() error {
			u, err := s.NewUpload("a")
			if err == nil {
				u.Discard()
			}
			return err
		},
		"file":  func() error { _, err := s.File("a", "file-1"); return err },
		"files": func() error { _, _, err := s.Files("a", "", Query{Limit: 1}); return err },
		"batch": func() error {
			_, err := create(s, Job{Owner: "a", Batch: Batch{Input: "file-1"}}, nil, time.Hour)
			return err
		},
		"claim":    func() error { _, err := s.Claim("a", "batch_1", false); return err },
		"cancel":   func() error { _, err := s.Cancel("a", "batch_1"); return err },
		"later":    func() error { _, err := create(s, Job{Owner: "a"}, []byte("x"), time.Hour); return err },
		"response": func() error { return s.KeepResponse(Job{ID: "resp_1", Owner: "a"}, nil, nil, nil, nil) },
		"fits":     func() error { return s.Fits("a", 1, 0) },
		"sweep":    func() error { _, err := s.Sweep(time.Now()); return err },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, ErrUnavailable) {
			t.Errorf("%s at the start: %v", name, err)
		}
	}
	faulty.Down(false)
	var id string
	for n := 0; ; n++ {
		u, err := s.NewUpload("a")
		if err == nil {
			_, _ = u.Write([]byte("text"))
			var f File
			if f, err = u.Commit("f", "batch", 0); err == nil {
				id = f.ID
				break
			}
		}
		if n > 100 {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	faulty.Down(true)
	for name, call := range calls {
		if err := call(); name != "fits" && name != "upload" && !errors.Is(err, ErrUnavailable) {
			t.Errorf("%s later: %v", name, err)
		}
	}
	if want := int64(recordBytes + 4); s.Bytes() != want {
		t.Errorf("%d bytes are counted, want %d", s.Bytes(), want)
	}
	faulty.Down(false)
	if got := readFile(t, s, "a", id); got != "text" {
		t.Errorf("read %q", got)
	}
}

// TestCost: the number of requests depends on groups of results, not on lines; and a batch has few pieces.
func TestCost(t *testing.T) {
	f := s3test.NewFake()
	cfg := quick(s3test.Serve(t, f), Limits{})
	s := open(t, cfg)
	c := newBatch(t, s, putFile(t, s, "a", "…").ID)
	f.Asked(http.MethodPut)
	f.Asked(http.MethodGet)
	const groups, lines = 50, 40
	for g := range groups {
		var results []Result
		for n := range lines {
			results = append(results, result(g*lines+n, true))
		}
		if err := c.Record(results); err != nil {
			t.Fatal(err)
		}
	}
	puts, gets := f.Asked(http.MethodPut), f.Asked(http.MethodGet)
	if puts != 2*groups || gets != 0 {
		t.Errorf("%d groups of results took %d writes and %d reads, want %d and none", groups, puts, gets, 2*groups)
	}
	if n := len(c.job.Pieces[0]); n > 3 {
		t.Errorf("%d bytes are in %d pieces", c.Job().OutBytes, n)
	}
	if err := c.Finish(Completed, nil); err != nil {
		t.Fatal(err)
	}
	var raw []string
	for _, k := range f.Keys() {
		if strings.Contains(k, "/data/a/batch_") {
			raw = append(raw, k)
		}
	}
	if len(raw) > 3 {
		t.Errorf("left are %v", raw)
	}
}
