package forward

import (
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/stream"
)

// maxEvent is the default of [Call.MaxEvent].
const maxEvent = 1 << 20

// copyEvents is Copy for server-sent events, and for lines of JSON.
func (a *Answer) copyEvents(sink Sink, kind api.Stream) error {
	judge := stream.NewJudge(kind)
	defer func() { a.next = judge.Next() }()
	split := stream.Splitter{Lines: kind == api.StreamLines}
	seen := 0 // bytes in the buffer that the splitter has seen
	for {
		last := errors.Is(a.err, io.EOF)
		n := split.Split((*a.buf)[seen:a.n])
		if n > 0 {
			n += seen
		}
		judge.See((*a.buf)[:n])
		switch {
		case last && n < a.n: // an event without its end: pass it on if it completes the stream
			whole := judge
			if whole.See((*a.buf)[n:a.n]); whole.Whole(true) {
				n, judge = a.n, whole
			}
		case n == 0 && (a.n >= a.maxEvent || !last && a.err == nil && !a.room()):
			n = a.n
			judge.See((*a.buf)[:n])
		}
		if err := a.hand(sink, n, true); err != nil {
			return err
		}
		seen = a.n
		switch {
		case last && judge.Whole(true):
			return nil
		case last:
			return errors.Join(ErrCut, errors.New("the stream ended without a finish reason"))
		case a.err != nil && judge.Whole(false):
			return nil // the client has its last event
		case a.err != nil:
			return errors.Join(ErrCut, a.err)
		}
		a.read()
	}
}

// hand passes the first n bytes of the buffer on.
func (a *Answer) hand(sink Sink, n int, flush bool) error {
	if n == 0 {
		return nil
	}
	if _, err := sink.Write((*a.buf)[:n]); err != nil {
		return errors.Join(ErrClient, err)
	}
	if flush {
		if err := sink.Flush(); err != nil {
			return errors.Join(ErrClient, err)
		}
	}
	a.n = copy(*a.buf, (*a.buf)[n:a.n])
	return nil
}

// appendMillis appends d in milliseconds with three decimals at most.
func appendMillis(b []byte, d time.Duration) []byte {
	return strconv.AppendFloat(b, float64(d.Microseconds())/1000, 'f', -1, 64)
}
