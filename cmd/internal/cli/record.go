package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler"
	"github.com/rouse-dev/rouse/autoscaler/flight"
)

// recording answers questions about a flight record (package autoscaler/flight). It uses no server.
type recording struct {
	Path     string
	Segments []*flight.Segment
	// Notes are about missing parts, and possible differences here.
	Notes []string
}

// openRecording opens a file or a folder. version is this program's.
func openRecording(path, version string) (*recording, error) {
	all, err := flight.Open(path)
	if err != nil {
		return nil, err
	}
	r := &recording{Path: path}
	var refused error
	all, twice := inOrder(all)
	if twice > 0 {
		r.note("%d of %d segments are there more than once: the one that goes furthest is used", twice, len(all)+twice)
	}
	note := r.note
	left := make(map[string][]*flight.Segment) // by reason
	for k, s := range all {
		if s.Open && k < len(all)-1 {
			note("%s: the segment that begins at %s has no end: its program was killed, or is writing it still, or the file was cut there", s.From, date(s.Began))
		}
		if s.Damage != "" {
			note("%s, %s", s.From, s.Damage)
		}
		if s.Run != "" && s.Version != version {
			note("it was recorded by Rouse %s, and this is %s: decisions may differ", s.Version, version)
		}
		if _, err := autoscaler.NewReplay(s); err != nil {
			left[err.Error()] = append(left[err.Error()], s)
			refused = err
			continue
		}
		if s.Arch != runtime.GOARCH {
			note("it was recorded on %s, and this is %s: numbers with fractions, and by them decisions, may differ", s.Arch, runtime.GOARCH)
		}
		if s.Why != "" && s.Why != flight.Ended {
			note("there is a gap after %s: %s", s.From, s.Why)
		}
		r.Segments = append(r.Segments, s)
	}
	for _, why := range slices.Sorted(maps.Keys(left)) {
		list := left[why]
		if s := list[0]; len(list) == 1 {
			note("%s: the segment that begins at %s is left out: %s", s.From, date(s.Began), why)
			continue
		}
		note("%d segments that begin between %s and %s are left out: %s", len(list), date(list[0].Began), date(list[len(list)-1].Began), why)
	}
	if len(r.Segments) == 0 {
		return nil, fmt.Errorf("%s: %w", path, errors.Join(errors.New("nothing of it can be replayed"), refused))
	}
	return r, nil
}

func (r *recording) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(r.Notes, text) {
		r.Notes = append(r.Notes, text)
	}
}

// inOrder sorts segments by their beginnings. Of one fetched twice it takes the longest; twice is how many it leaves out.
func inOrder(all []*flight.Segment) (list []*flight.Segment, twice int) {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b *flight.Segment) int {
		return cmp.Or(a.Began.Compare(b.Began), cmp.Compare(a.Run, b.Run), cmp.Compare(b.Rounds, a.Rounds))
	})
	list = slices.CompactFunc(slices.Clone(all), func(a, b *flight.Segment) bool {
		return a.Run != "" && a.Run == b.Run && a.Began.Equal(b.Began)
	})
	return list, len(all) - len(list)
}

type difference struct {
	At       time.Time      `json:"at"`
	Recorded []api.Decision `json:"recorded"`
	Decided  []api.Decision `json:"decided"`
	// Error says why the replay ended.
	Error string `json:"error,omitempty"`
}

type checkedSegment struct {
	From      time.Time   `json:"from"`
	To        time.Time   `json:"to"`
	Run       string      `json:"run"`
	Version   string      `json:"version"`
	Functions int         `json:"functions"`
	Rounds    int         `json:"rounds"`
	Decisions int         `json:"decisions"`
	Alike     int         `json:"alike"`
	First     *difference `json:"first,omitempty"`
	// Gap says that the continuation is missing.
	Gap string `json:"gap,omitempty"`
}

// Check stops a segment at the first different decision, on which the rest depends.
func (r *recording) Check(ctx context.Context) (all []checkedSegment, err error) {
	for k, s := range r.Segments {
		c, err := checkSegment(ctx, s)
		if err != nil {
			return all, err
		}
		if next := k + 1; next < len(r.Segments) && c.First == nil && r.Segments[next].Run == s.Run && r.Segments[next].Follows && !r.Segments[next].Began.Equal(c.To) {
			c.Gap = fmt.Sprintf("there is a gap from %s to %s: what was recorded then is not in %s", date(c.To), date(r.Segments[next].Began), r.Path)
		}
		all = append(all, c)
	}
	return all, nil
}

func checkSegment(ctx context.Context, s *flight.Segment) (checkedSegment, error) {
	c := checkedSegment{From: s.Began, To: s.Began, Run: s.Run, Version: s.Version}
	for round, err := range rounds(ctx, s) {
		if err != nil {
			if ctx.Err() != nil {
				return c, context.Cause(ctx)
			}
			c.First = &difference{At: c.To, Error: err.Error()}
			return c, nil
		}
		c.Rounds++
		c.To, c.Functions = round.At, round.replay.Declared()
		c.Decisions += len(round.Recorded)
		if !sameDecisions(round.Decided, round.Recorded) {
			c.First = &difference{At: round.At, Recorded: round.Recorded, Decided: round.Decided}
			return c, nil
		}
		c.Alike += len(round.Recorded)
	}
	return c, nil
}

func sameDecisions(a, b []api.Decision) bool {
	one, err1 := json.Marshal(a)
	other, err2 := json.Marshal(b)
	return len(a) == len(b) && err1 == nil && err2 == nil && string(one) == string(other)
}

type round struct {
	autoscaler.Round
	replay *autoscaler.Replay
}

// rounds replays a segment. An error is the last element.
func rounds(ctx context.Context, s *flight.Segment) func(yield func(round, error) bool) {
	return func(yield func(round, error) bool) {
		replay, err := autoscaler.NewReplay(s)
		if err != nil {
			yield(round{}, err)
			return
		}
		for ctx.Err() == nil {
			next, err := replay.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if !yield(round{next, replay}, err) || err != nil {
				return
			}
		}
		yield(round{}, context.Cause(ctx))
	}
}
