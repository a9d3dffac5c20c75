package autoscaler

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler/decide"
	"github.com/rouse-dev/rouse/autoscaler/flight"
	"github.com/rouse-dev/rouse/autoscaler/rhythm"
)

// replayed is the result of a replay.
type replayed struct{ segments, followed, rounds, decisions int }

// replayAll replays each segment of a record alone. It returns an error if a replayed byte differs, or if a segment
// does not begin with the state that the one before it ended with.
func replayAll(path string) (n replayed, err error) {
	segments, err := flight.Open(path)
	if err != nil {
		return n, err
	}
	var ended *saved
	for _, s := range segments {
		if s.Damage != "" {
			return n, errors.New(s.Damage)
		}
		if ended, err = n.replay(s, ended); err != nil {
			return n, fmt.Errorf("%s: %w", s.From, err)
		}
	}
	return n, nil
}

// replay replays s. before is the state at the end of the segment before, and what it returns the one at its own.
func (n *replayed) replay(s *flight.Segment, before *saved) (*saved, error) {
	r, err := NewReplay(s)
	if err != nil {
		return nil, err
	}
	if s.Follows {
		if d := cmp.Diff(before, r.a.save(), cmpopts.EquateEmpty(), cmp.AllowUnexported(rhythm.Rhythm{}, savedInstance{}), cmpopts.IgnoreUnexported(decide.Function{}, decide.Instance{}, call{})); d != "" {
			return nil, fmt.Errorf("it begins with another state than the one before ends (-end +begin):\n%s", d)
		}
		n.followed++
	}
	for n.segments++; ; n.rounds++ {
		round, err := r.Next()
		if errors.Is(err, io.EOF) {
			return r.a.save(), nil
		}
		if err != nil {
			return nil, err
		}
		n.decisions += len(round.Decided)
		if got, want := lines(round.Decided), lines(round.Recorded); got != want {
			return nil, fmt.Errorf("at %s it was decided:\n%sand now:\n%s", round.At, want, got)
		}
	}
}

func lines(ds []api.Decision) (text string) {
	for _, d := range ds {
		line, _ := json.Marshal(d)
		text += string(line) + "\n"
	}
	return text
}

// recorded is the record of a run of the kind of TestChaos, in which functions have secrets, and instances fail with what they have printed.
func recorded(t *testing.T) (segments []*flight.Segment, data []byte) {
	t.Helper()
	inWorld(t, 3*api.GiB, func(w *fleet) {
		for k, f := range []*fakeFunction{w.add("secret", api.GiB, nil), w.add("fails", api.GiB, nil), w.add("gives-way", 2*api.GiB, nil)} {
			f.spec.Runtime = api.Runtime{Kind: api.RuntimeCommand, Model: "https://u:" + secret + "@host/m", Command: []string{"serve", "--key", secret},
				Env: []string{"TOKEN=" + secret}, Args: []string{secret}, Adapters: []api.Adapter{{Name: "l", Path: secret}}}
			f.spec.Manifest, f.spec.ProviderPatch, f.spec.Handler, f.spec.Origin = secret, secret, []string{secret}, secret
			f.spec.SleepAfter = 3 * time.Second
			w.a.PutFunction(f.spec)
			if f.spec.Name.Name() == "fails" {
				f.failStarts, f.load = 2, time.Second
				f.says = "the model file is broken; its last output:\nprompt: " + secret
			}
			w.request(f, 2, time.Duration(k+1)*time.Second)
		}
		pass(time.Minute)
		w.a.ObserveDemand(api.Demand{Function: "default/secret", Activator: "other", Tenants: map[string]int{secret: 1}, Trace: secret, At: time.Now()})
		_ = w.a.Receive(api.NewEvent(api.EventUsage, "", "default/secret", api.Usage{Function: "default/secret", Activator: "door",
			Uses: []api.Use{{Begun: time.Now(), Tenant: secret, Key: secret, Requests: 3, Input: 50, Output: 20}}})) // it is fine
		pass(time.Minute)
		if err := w.a.Scale(w.t.Context(), "default/secret", 1, time.Minute, "somebody"); err != nil {
			t.Error(err)
		}
		pass(30 * time.Minute)
		w.finally = func() {
			var err error
			if segments, err = flight.Open(w.record); err != nil {
				t.Error(err)
			}
			var all bytes.Buffer
			if err := w.a.round.rec.Copy(&all); err != nil {
				t.Error(err)
			}
			data = all.Bytes()
		}
	})
	return segments, data
}

const secret = "s3cr3t-s3cr3t"

// TestNoSecrets checks that an uncompressed record has no text from declared commands, environments or references, from
// a runtime's output, or from tenants. Each decision is replayed the same without them.
func TestNoSecrets(t *testing.T) {
	_, data := recorded(t)
	fails := 0
	for _, line := range unzipped(t, data) {
		if at := bytes.Index(line, []byte(secret)); at >= 0 {
			t.Errorf("there is a secret in it: %q", line[max(0, at-200):at+20])
		}
		if bytes.Contains(line, []byte("the model file is broken; its last output: ~")) {
			fails++
		}
	}
	if fails == 0 {
		t.Error("nothing says why the start failed")
	}
}

// TestHidden: a status is the same after it was recorded, with the fields that its JSON leaves out.
func TestHidden(t *testing.T) {
	s := api.InstanceStatus{Instance: "a", Candidates: []string{"node"}, Spare: api.Requests{"cpu": 1}, Shrunk: true, Taken: true, Way: time.Second, Cost: 2.5, Waits: 3, Memory: api.Memory{Assumed: true}}
	for k := range reflect.TypeOf(s).NumField() {
		if f := reflect.TypeOf(s).Field(k); f.Tag.Get("json") == "-" && reflect.ValueOf(s).Field(k).IsZero() {
			t.Errorf("%s is not in this test", f.Name)
		}
	}
	var got instanceReported
	data, err := json.Marshal(newRedactor().input(&instanceReported{Status: s}))
	if err = errors.Join(err, json.Unmarshal(data, &got)); err != nil {
		t.Fatal(err)
	}
	got.Hidden.restore(&got.Status)
	if d := cmp.Diff(s, got.Status); d != "" {
		t.Errorf("(-status +recorded):\n%s", d)
	}
}

// mutant returns a planner that does one thing otherwise.
func mutant(plan planner, change func(*decide.Action) (keep bool)) planner {
	return func(s decide.Snapshot, now time.Time) ([]decide.Action, time.Time) {
		actions, next := plan(s, now)
		kept := actions[:0]
		for _, a := range actions {
			if change(&a) {
				kept = append(kept, a)
			}
		}
		return kept, next
	}
}

// TestChangedDecisionIsFound checks that the replay finds a difference if a program leaves out one decision of any
// kind, or has another reason or instance.
func TestChangedDecisionIsFound(t *testing.T) {
	segments, _ := recorded(t)
	n := 0
	for _, kind := range []decide.Kind{decide.Start, decide.Wake, decide.Sleep, decide.Stop, decide.Grant, decide.Revoke, decide.Wait} {
		for name, change := range map[string]func(*decide.Action) bool{
			"left out":       func(a *decide.Action) bool { return a.Kind != kind },
			"another reason": func(a *decide.Action) bool { a.Reason += "."; return true },
		} {
			seen := false
			var found error
			for _, s := range segments {
				r, err := NewReplay(s)
				if err != nil {
					t.Fatal(err)
				}
				r.a.decide = mutant(r.a.decide, func(a *decide.Action) bool {
					if a.Kind != kind {
						return true
					}
					seen = true
					return change(a)
				})
				for found == nil {
					round, err := r.Next()
					if errors.Is(err, io.EOF) {
						break
					}
					if found = err; lines(round.Decided) != lines(round.Recorded) {
						found = errors.New("it is not alike")
					}
				}
			}
			if seen && found == nil {
				t.Errorf("%s, %s: the replay is alike", kind, name)
			}
			if seen {
				n++
			}
		}
	}
	if n < 10 {
		t.Errorf("%d mutants had something to change, want 10 at least", n)
	}
}

// unzipped returns the lines of a record.
func unzipped(t *testing.T, data []byte) [][]byte {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(zip)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Collect(bytes.Lines(text))
}

// FuzzReplay replays records of which some bytes are others, with sums that are right: it may end with an error, and nothing else.
func FuzzReplay(f *testing.F) {
	f.Add(uint32(0), byte(0))
	f.Add(uint32(100), byte(3))
	f.Add(uint32(5000), byte(255))
	var lines [][]byte
	var head gzip.Header
	f.Fuzz(func(t *testing.T, at uint32, value byte) {
		if lines == nil {
			_, data := recorded(t)
			lines = slices.DeleteFunc(unzipped(t, data), func(line []byte) bool { return bytes.HasPrefix(line, []byte(`{"sum":`)) })
			first := slices.IndexFunc(lines, func(line []byte) bool { return bytes.HasPrefix(line, []byte(`{"end":`)) })
			lines = lines[:first+1]
			zip, err := gzip.NewReader(bytes.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			head = zip.Header
		}
		changed := bytes.Join(lines, nil)
		changed[int(at)%len(changed)] = value
		var b bytes.Buffer
		zip := gzip.NewWriter(&b)
		zip.Header = head
		_, err := fmt.Fprintf(zip, "%s{\"sum\":%d}\n", changed, crc32.Checksum(changed, crc32.MakeTable(crc32.Castagnoli)))
		if err = errors.Join(err, zip.Close()); err != nil {
			t.Fatal(err)
		}
		segments, err := flight.Parse(b.Bytes())
		if err != nil {
			return
		}
		r, err := NewReplay(segments[0])
		if err != nil {
			return
		}
		for range 1000 {
			if _, err := r.Next(); err != nil {
				return
			}
		}
	})
}
