package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler"
	"github.com/rouse-dev/rouse/autoscaler/flight"
)

// times are the shapes in which a time may be said, those without a date last.
var times = []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04", "15:04:05", "15:04"}

// Time is what a person means by text, in the time zone of this machine, as all times are printed: a time of day is the last one in the record.
func (r *Record) Time(text string) (time.Time, error) {
	first, last := r.Segments[0], r.Segments[len(r.Segments)-1]
	for k, shape := range times {
		t, err := time.ParseInLocation(shape, text, time.Local)
		if err != nil {
			continue
		}
		if k < len(times)-2 {
			return t, nil
		}
		end, err := r.end(last)
		if err != nil {
			return t, err
		}
		end = end.Local()
		day := time.Date(end.Year(), end.Month(), end.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.Local)
		for ; day.After(end) && day.After(first.Began); day = day.AddDate(0, 0, -1) {
		}
		return day, nil
	}
	return time.Time{}, fmt.Errorf("%q is no time: want 03:12, 03:12:30, or 2006-01-02T03:12", text)
}

// end is when a segment's last round was.
func (r *Record) end(s *flight.Segment) (time.Time, error) {
	end := s.Began.In(s.Location())
	for round, err := range r.rounds(context.Background(), s) {
		if err != nil {
			return end, err
		}
		end = round.At
	}
	return end, nil
}

// At is the autoscaler as it was at a time; zero: at the end. Close it. Where a segment has another function of that name or none, an
// earlier one of another run may have it: name chooses, if it is not empty.
func (r *Record) At(ctx context.Context, at time.Time, name string) (*autoscaler.Replay, api.FunctionName, error) {
	if first := r.Segments[0].Began; !at.IsZero() && at.Before(first) {
		return nil, "", fmt.Errorf("the record begins at %s: nothing is known of %s", first.Format(time.DateTime), at.Format(time.DateTime))
	}
	for k := len(r.Segments) - 1; k >= 0; k-- {
		s := r.Segments[k]
		if !at.IsZero() && s.Began.After(at) {
			continue
		}
		replay, err := r.until(ctx, s, at)
		if err != nil {
			return nil, "", err
		}
		if name == "" {
			return replay, "", nil
		}
		if f, found := find(replay, name); found {
			return replay, f, nil
		}
		replay.Close()
	}
	return nil, "", fmt.Errorf("there was no function %s: rouse replay %s shows which there were", name, r.Path)
}

// until replays s until the last round that is not after a time.
func (r *Record) until(ctx context.Context, s *flight.Segment, at time.Time) (*autoscaler.Replay, error) {
	replay, err := autoscaler.NewReplay(s, r.version)
	if err != nil {
		return nil, err
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
	if err != nil && !errors.Is(err, io.EOF) {
		replay.Close()
		return nil, err
	}
	return replay, nil
}

// find is the function that a person means by a name: its own, with or without its namespace, or that of its model or service.
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
