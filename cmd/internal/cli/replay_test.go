package cli

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/autoscaler"
	"github.com/rouse-dev/rouse/autoscaler/flight"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
	"github.com/rouse-dev/rouse/autoscaler/simulate"
)

// machine has GPUs on which everything that is asked for works: it is the effects of an autoscaler.
type machine struct {
	a  *autoscaler.Autoscaler
	wg sync.WaitGroup

	mu  sync.Mutex // guards what follows
	seq uint64
}

func (m *machine) become(s api.InstanceStatus, state api.State, level api.Level) api.InstanceStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seq++
	s.State, s.Level, s.Seq, s.Since, s.PID = state, level, m.seq, time.Now(), 7
	s.LoadTime, s.WakeTime, s.SleepTime = 20*time.Second, 300*time.Millisecond, 500*time.Millisecond
	if s.Memory = (api.Memory{Host: api.GiB, Devices: 1, PerDevice: 60 * api.GiB}); state == api.Asleep {
		s.Memory.PerDevice = api.GiB
	}
	m.a.ObserveInstance(s)
	return s
}

func (m *machine) Start(_ context.Context, f api.Function, id api.InstanceID, g api.Grant) (api.InstanceID, error) {
	m.wg.Go(func() {
		time.Sleep(20 * time.Second)
		m.become(api.InstanceStatus{Instance: id, Function: f.Name, Epoch: g.Epoch, Concurrency: f.Concurrency, Devices: g.Devices}, api.Awake, 0)
	})
	return id, nil
}

func (m *machine) Wake(_ context.Context, s api.InstanceStatus, g api.Grant) (api.InstanceStatus, error) {
	time.Sleep(300 * time.Millisecond)
	s.Epoch = g.Epoch
	return m.become(s, api.Awake, 0), nil
}

func (m *machine) Sleep(_ context.Context, s api.InstanceStatus, level api.Level, epoch uint64, _ api.Drain) (api.InstanceStatus, error) {
	time.Sleep(500 * time.Millisecond)
	s.Epoch = epoch
	return m.become(s, api.Asleep, level), nil
}

func (m *machine) Fence(_ context.Context, s api.InstanceStatus, epoch uint64) (api.InstanceStatus, error) {
	s.Epoch = epoch
	return m.become(s, s.State, s.Level), nil
}

func (m *machine) Stop(context.Context, api.InstanceStatus, api.Drain) error      { return nil }
func (m *machine) Adapt(context.Context, api.InstanceStatus, []api.Adapter) error { return nil }
func (m *machine) State(_ context.Context, s api.InstanceStatus) (api.InstanceStatus, error) {
	return s, nil
}
func (m *machine) Grant(context.Context, api.Grant) error                   { return nil }
func (m *machine) Revoke(context.Context, api.Grant) error                  { return nil }
func (m *machine) Fail(context.Context, api.FunctionName, *api.Error) error { return nil }

// hour records an hour in which two functions that share a GPU are asked for in turn, five requests each time, in segments of ten minutes.
func hour(t *testing.T) (folder string) {
	t.Helper()
	folder = t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		m := &machine{}
		gpu := inventory.Device{ID: "GPU-0", Name: "GPU", Capacity: 80 * api.GiB, Total: 80 * api.GiB}
		host := inventory.Device{ID: api.HostMemory, Capacity: 500 * api.GiB, Total: 500 * api.GiB}
		var err error
		m.a, err = autoscaler.New(autoscaler.Config{Devices: []inventory.Device{host, gpu},
			Record: flight.Config{Folder: folder, MostAge: 10 * time.Minute, Version: "v1"}}, m, nil, slog.New(slog.DiscardHandler), nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { done <- m.a.Run(ctx) }()
		names := []api.FunctionName{"default/chat", "default/code"}
		for _, name := range names {
			m.a.PutFunction(api.Function{Name: name, Memory: api.Memory{Host: api.GiB, Devices: 1, PerDevice: 60 * api.GiB}, SleepAfter: time.Minute, NoPrewake: true}.WithDefaults()) // each turn begins with a wake
		}
		began, requests := time.Now(), map[api.FunctionName]int64{}
		for k := range 12 {
			name := names[k%2]
			came := time.Now()
			requests[name] += 5
			for range 30 { // the request waits, or runs, for half a minute
				m.a.ObserveDemand(api.Demand{Function: name, Activator: "door", Waiting: 1, OldestAge: time.Since(came), LastRequest: came, At: time.Now()})
				time.Sleep(time.Second)
			}
			m.a.ObserveDemand(api.Demand{Function: name, Activator: "door", LastRequest: came, At: time.Now()})
			use := api.Use{Begun: began, Tenant: "ann", Requests: requests[name], Input: api.Tokens(700 * requests[name]), Output: api.Tokens(50 * requests[name])}
			if err := m.a.Receive(api.NewEvent(api.EventUsage, "door", name, api.Usage{Function: name, Activator: "door", Uses: []api.Use{use}})); err != nil {
				t.Error(err)
			}
			time.Sleep(270 * time.Second)
		}
		cancel()
		<-done
		m.wg.Wait()
	})
	return folder
}

// TestCheck: a record is replayed as it was; by another version with a note; with a gap, that is said.
func TestCheck(t *testing.T) {
	folder := hour(t)
	r, err := openRecording(folder, "v2")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(r.Notes, "\n"); got != "it was recorded by Rouse v1, and this is v2: decisions may differ" {
		t.Errorf("notes: %q", got)
	}
	all, err := r.Check(t.Context())
	if err != nil || len(all) < 5 {
		t.Fatalf("%d segments, %v", len(all), err)
	}
	decisions := 0
	for _, c := range all {
		if decisions += c.Decisions; c.First != nil || c.Alike != c.Decisions || c.Functions != 2 || !c.To.After(c.From) {
			t.Errorf("segment %+v", c)
		}
	}
	if decisions < 20 {
		t.Errorf("%d decisions", decisions)
	}
	files, err := flight.Files(folder)
	if err != nil {
		t.Fatal(err)
	}
	one := filepath.Join(t.TempDir(), "one.flight")
	var joined []byte
	for _, f := range files[2:4] {
		data, err := os.ReadFile(f.Path)
		if err != nil {
			t.Fatal(err)
		}
		joined = append(joined, data...)
	}
	if err := os.WriteFile(one, joined, 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err = openRecording(one, "v1"); err != nil || len(r.Segments) != 2 || len(r.Notes) != 0 {
		t.Fatalf("two segments in a file: %+v, %v", r, err)
	}
	if all, err = r.Check(t.Context()); err != nil || all[0].First != nil || all[1].First != nil {
		t.Errorf("two segments in a file: %+v, %v", all, err)
	}
}

// TestAt checks that answers contain the knowledge of that time.
func TestAt(t *testing.T) {
	time.Local = time.UTC
	r, err := openRecording(hour(t), "v1")
	if err != nil {
		t.Fatal(err)
	}
	last := -1
	for _, text := range []string{"00:00:10", "00:03", "2000-01-01T00:11", "00:25", "23:59:59"} {
		at, err := r.Time(text)
		if text == "23:59:59" {
			if err != nil || !at.Before(r.Segments[0].Began) {
				t.Errorf("%s is %s, %v: want the day before the record", text, at, err)
			}
			if _, err := r.At(t.Context(), at, "chat"); err == nil || !strings.Contains(err.Error(), "the record begins at") {
				t.Errorf("before the record: %v", err)
			}
			continue
		}
		if err != nil || at.Year() != 2000 {
			t.Fatalf("%s is %s, %v", text, at, err)
		}
		then, err := r.At(t.Context(), at, "chat")
		if err != nil {
			t.Fatal(err)
		}
		why := then.Why(then.Function)
		if len(why) <= last && text != "00:00:10" || then.Function != "default/chat" {
			t.Errorf("at %s %s has %d decisions, and had %d before", text, then.Function, len(why), last)
		}
		if last = len(why); why[last-1].At.After(at) {
			t.Errorf("at %s one of %s is known", at, why[last-1].At)
		}
	}
	if _, err := r.Time("noon"); err == nil {
		t.Error("noon is taken for a time")
	}
	if _, err := r.At(t.Context(), time.Time{}, "none"); err == nil || !strings.Contains(err.Error(), "there was no function none") {
		t.Errorf("no such function: %v", err)
	}
}

// joined are the files of a folder in one.
func joined(t *testing.T, folder string) (data []byte, ends []int) {
	t.Helper()
	files, err := flight.Files(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		one, err := os.ReadFile(f.Path)
		if err != nil {
			t.Fatal(err)
		}
		data = append(data, one...)
		ends = append(ends, len(data))
	}
	return data, ends
}

// opened is a record of a file with data.
func opened(t *testing.T, data []byte) (*recording, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "some.flight")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return openRecording(path, "v1")
}

// TestPutTogether: segments in any order, and two records of one day in one file, give what the whole record gives.
func TestPutTogether(t *testing.T) {
	time.Local = time.UTC
	data, ends := joined(t, hour(t))
	pieces := make([][]byte, len(ends))
	for k, end := range ends {
		pieces[k] = data[append([]int{0}, ends...)[k]:end]
	}
	var reversed []byte
	for _, p := range slices.Backward(pieces) {
		reversed = append(reversed, p...)
	}
	early := append(bytes.Clone(data[:ends[2]]), pieces[3][:len(pieces[3])-20]...) // fetched while the fourth was being written
	for name, tc := range map[string]struct {
		data []byte
		note string
	}{
		"in order": {data, ""}, "reversed": {reversed, ""}, "twice": {slices.Concat(data, data), fmt.Sprintf("%d of %d segments are there more than once", len(ends), 2*len(ends))},
		"early and late": {slices.Concat(early, data), "4 of "}, "late and early": {slices.Concat(data, early), "4 of "},
	} {
		r, err := opened(t, tc.data)
		if err != nil || len(r.Segments) != len(ends) || !strings.HasPrefix(strings.Join(r.Notes, "\n"), tc.note) || (tc.note == "") != (len(r.Notes) == 0) {
			t.Fatalf("%s: %+v, %v", name, r, err)
		}
		if all, err := r.Check(t.Context()); err != nil || slices.ContainsFunc(all, func(c checkedSegment) bool { return c.First != nil || c.Gap != "" }) {
			t.Errorf("%s: %+v, %v", name, all, err)
		}
		if list, err := r.WhatIf(t.Context(), []string{"keepalive"}); err != nil || len(list) != 1 || list[0].Requests != 60 || list[0].Then.Wakes != 10 {
			t.Errorf("%s: %+v, %v", name, list, err)
		}
		at, err := r.Time("00:25")
		if err != nil {
			t.Fatal(err)
		}
		then, err := r.At(t.Context(), at, "chat")
		if err != nil || then.Note != "" || at.Sub(then.Now()) > time.Minute {
			t.Fatalf("%s: at %s it is as at %v, %v", name, at, then, err)
		}
	}
}

// TestNothingThen checks the error for a time without a record, and for a function that existed only earlier.
func TestNothingThen(t *testing.T) {
	time.Local = time.UTC
	data, ends := joined(t, hour(t))
	r, err := opened(t, append(bytes.Clone(data[:ends[1]]), data[ends[2]:]...)) // the third is missing
	if err != nil {
		t.Fatal(err)
	}
	all, err := r.Check(t.Context())
	if err != nil || all[0].Gap != "" || !strings.HasPrefix(all[1].Gap, "there is a gap from 2000-01-01 00:") || all[2].Gap != "" {
		t.Errorf("without the third: %+v, %v", all, err)
	}
	for text, want := range map[string]string{"00:25": "nothing is recorded after ", "2000-01-01T09:00": "nothing is recorded after 2000-01-01 0", "00:12": ""} {
		at, err := r.Time(text)
		if err != nil {
			t.Fatal(err)
		}
		then, err := r.At(t.Context(), at, "chat")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(then.Note, want) || (want == "") != (then.Note == "") || (text == "00:25") != strings.Contains(then.Note, ", until 2000-01-01 00:") {
			t.Errorf("at %s: %q, want %q", text, then.Note, want)
		}
	}
	if _, err := r.At(t.Context(), time.Time{}, "none"); err == nil || !strings.Contains(err.Error(), "there was no function none; there were chat, code") {
		t.Errorf("no such function: %v", err)
	}
}

// TestDamaged replays records that were cut, that have a wrong byte, or that have parts of one segment in another.
// Everything that is replayed is decided as it was, or the replay says from where on it is not.
func TestDamaged(t *testing.T) {
	data, ends := joined(t, hour(t))
	rounds := func(all []checkedSegment) (n int) {
		for _, c := range all {
			n += c.Rounds
		}
		return n
	}
	most := 0
	checkSegment := func(what string, data []byte, whole bool) {
		r, err := opened(t, data)
		if err != nil {
			return
		}
		all, err := r.Check(t.Context())
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		otherwise := slices.ContainsFunc(all, func(c checkedSegment) bool { return c.First != nil })
		gap := slices.ContainsFunc(all, func(c checkedSegment) bool { return c.Gap != "" })
		written := r.Segments[len(r.Segments)-1].Open // a cut between two chunks looks like a file that is being written
		if most == 0 {
			most = rounds(all)
			return
		}
		if whole && otherwise || len(r.Notes) == 0 && !otherwise && !gap && !written && len(all) == len(ends) && rounds(all) < most {
			t.Errorf("%s: otherwise: %t, notes %q", what, otherwise, r.Notes)
		}
	}
	checkSegment("the whole record", data, true)
	for n := 1; n < len(data); n += len(data)/40 + 1 {
		checkSegment(fmt.Sprintf("cut at %d", n), data[:n], true)
		changed := bytes.Clone(data)
		changed[n] ^= 1 << (n % 8)
		checkSegment(fmt.Sprintf("byte %d", n), changed, true)
		rest := min(n+500, len(data))
		checkSegment(fmt.Sprintf("without %d to %d", n, rest), append(bytes.Clone(data[:n]), data[rest:]...), true)
	}
}

// TestWhatIf checks that all requests of the record are simulated with the measured times, and that assumptions are
// listed.
func TestWhatIf(t *testing.T) {
	r, err := openRecording(hour(t), "v1")
	if err != nil {
		t.Fatal(err)
	}
	list, err := r.WhatIf(t.Context(), []string{"rouse", "knative", "keepalive", "random"})
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	w := list[0]
	if !w.GPUs || w.Requests != 60 || w.Models != 2 || len(w.Policies) != 4 {
		t.Errorf("%d requests for %d models by %d policies, want 60, 2, 4", w.Requests, w.Models, len(w.Policies))
	}
	for _, p := range w.Policies {
		if p.Served+p.Refused != 60 || p.GPUHours <= 0 || p.ColdHits < 2 {
			t.Errorf("%+v", p)
		}
	}
	rouse, keepalive := w.Policies[0], w.Policies[2]
	if rouse.Starts != 2 || keepalive.Starts < 10 || rouse.P95 >= keepalive.P95 {
		t.Errorf("rouse starts %d, keepalive %d; p95 %f and %f: want that sleepers are woken", rouse.Starts, keepalive.Starts, rouse.P95, keepalive.P95)
	}
	// Each turn is half a minute of demand and one of keeping; the starts take 20 s of it.
	if h := w.Then.GPUHours; w.Then.ColdHits != 12 || w.Then.Starts != 2 || w.Then.Wakes != 10 || h < 0.2 || h > 0.5 {
		t.Errorf("then: %+v", w.Then)
	}
	text := fmt.Sprint(w.Assumes)
	for _, want := range []string{"of 48 requests only the number is known", "of 2 of 2 models the time to load, to wake or per token was not measured", "the mean number of tokens"} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q: %s", want, text)
		}
	}
	if _, err := r.WhatIf(t.Context(), []string{"best"}); err == nil {
		t.Error("an unknown policy is taken")
	}
}

// TestModelsKeepWhatIsDeclared: a function is simulated with its own times.
func TestModelsKeepWhatIsDeclared(t *testing.T) {
	f := admin.Function{Function: api.Function{Name: api.NewFunctionName("", "a"), UnloadAfter: time.Hour, NoPrewake: true, Rehearse: api.RehearseNever},
		Need: api.Memory{Host: api.GiB, Devices: 1, PerDevice: 10 * api.GiB}, Learned: admin.Learned{Sleep: time.Second, FirstSleep: 9 * time.Second}}
	for after, want := range map[time.Duration]time.Duration{20 * time.Second: 20 * time.Second, 0: simulate.Forever} {
		f.Function.SleepAfter = after
		m, _ := model(f, true, simulate.Config{DeviceMemory: 80 * api.GiB, HostMemory: api.TiB})
		if got := *m.Declared; got != (simulate.Declared{SleepAfter: want, UnloadAfter: time.Hour, NoPrewake: true, Rehearse: api.RehearseNever}) {
			t.Errorf("sleep-after %s: %+v", after, got)
		}
		if m.Sleep != time.Second || m.FirstSleep != 9*time.Second {
			t.Errorf("sleeps of %s and %s, want those that were measured", m.Sleep, m.FirstSleep)
		}
	}
}
