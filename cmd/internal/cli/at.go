package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler"
	"github.com/rouse-dev/rouse/autoscaler/flight"
)

// times are forms of a time, those without a date last.
var times = []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04", "15:04:05", "15:04"}

// Time takes a time of day for the last one in the record. Times are in this machine's zone.
func (r *recording) Time(text string) (time.Time, error) {
	first, last := r.Segments[0], r.Segments[len(r.Segments)-1]
	for k, shape := range times {
		t, err := time.ParseInLocation(shape, text, time.Local)
		if err != nil {
			continue
		}
		if k < len(times)-2 {
			return t, nil
		}
		end := last.Last.Local()
		day := time.Date(end.Year(), end.Month(), end.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.Local)
		for ; day.After(end) && day.After(first.Began); day = day.AddDate(0, 0, -1) {
		}
		return day, nil
	}
	return time.Time{}, fmt.Errorf("%q is no time: want 03:12, 03:12:30, or 2006-01-02T03:12", text)
}

// Past is the autoscaler as it was at a time.
type Past struct {
	*autoscaler.Replay
	Function api.FunctionName
	// Note says why this is an earlier state than the requested one.
	Note string
}

// At returns the state at a time; zero: at the end. If a segment has no function of that name, an earlier one may.
func (r *recording) At(ctx context.Context, at time.Time, name string) (*Past, error) {
	if first := r.Segments[0].Began; !at.IsZero() && at.Before(first) {
		return nil, fmt.Errorf("the record begins at %s: nothing is known of %s", date(first), date(at))
	}
	names, earlier := make(map[string]bool), false
	for k := len(r.Segments) - 1; k >= 0; k-- {
		s := r.Segments[k]
		if !at.IsZero() && s.Began.After(at) {
			continue
		}
		replay, ended, err := r.until(ctx, s, at)
		if err != nil {
			return nil, err
		}
		then := &Past{Replay: replay}
		found := name == ""
		if !found {
			then.Function, found = find(replay, name)
		}
		if found {
			if ended {
				then.Note = r.stale(k, replay.Now(), at, name, earlier)
			}
			return then, nil
		}
		for _, f := range replay.Functions() {
			names[f.Function.Name.Name()] = true
		}
		earlier = true
	}
	return nil, fmt.Errorf("there was no function %s%s", name, there(names))
}

func there(names map[string]bool) string {
	const most = 10
	list := slices.Sorted(maps.Keys(names))
	switch {
	case len(list) == 0:
		return ", nor any other"
	case len(list) > most:
		return fmt.Sprintf("; there were %d others: list has them", len(list))
	}
	return "; there were " + strings.Join(list, ", ")
}

// stale says why the kth segment's end, at last, is not the state at a time, or "". earlier: later segments lack the function.
func (r *recording) stale(k int, last, at time.Time, name string, earlier bool) string {
	of, until := "", ""
	switch next := k + 1; {
	case earlier:
		of = " of " + name
	case at.IsZero():
		return ""
	case next < len(r.Segments) && r.Segments[next].Run == r.Segments[k].Run && r.Segments[next].Follows && r.Segments[next].Began.Equal(last):
		return "" // nothing happened in between
	case next < len(r.Segments):
		until = ", until " + date(r.Segments[next].Began)
	}
	return fmt.Sprintf("nothing is recorded%s after %s%s: this is how it was then", of, date(last), until)
}

func date(t time.Time) string { return t.Local().Format(time.DateTime) }

// until replays s up to a time. ended: no round follows.
func (r *recording) until(ctx context.Context, s *flight.Segment, at time.Time) (replay *autoscaler.Replay, ended bool, err error) {
	if replay, err = autoscaler.NewReplay(s); err != nil {
		return nil, false, err
	}
	for {
		if err = ctx.Err(); err != nil {
			err = context.Cause(ctx)
			break
		}
		var next time.Time
		if next, err = replay.Peek(); err != nil || !at.IsZero() && next.After(at) {
			break
		}
		if _, err = replay.Next(); err != nil {
			break
		}
	}
	if ended = errors.Is(err, io.EOF); err != nil && !ended {
		return nil, false, err
	}
	return replay, ended, nil
}

// find also takes the name of a model or service.
func find(r *autoscaler.Replay, name string) (api.FunctionName, bool) {
	for _, is := range []func(api.Function) bool{
		func(f api.Function) bool { return string(f.Name) == name },
		func(f api.Function) bool { return f.Name.Name() == name },
		func(f api.Function) bool { return f.ServiceName().Name() == name || string(f.ServiceName()) == name },
		func(f api.Function) bool { return string(f.Model) == name },
	} {
		for _, f := range r.Functions() {
			if is(f.Function) {
				return f.Function.Name, true
			}
		}
	}
	return "", false
}
