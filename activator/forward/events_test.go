package forward

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/relay"
	"github.com/rouse-dev/rouse/internal/relay/relaytest"
)

// answerOf returns an answer whose body comes in the given pieces, then err.
func answerOf(kind api.Stream, err error, pieces ...string) *Answer {
	return newAnswer(context.Background(), &http.Response{
		StatusCode: 200, ContentLength: -1, Body: io.NopCloser(&pieceReader{pieces, err}),
		Header: http.Header{"Content-Type": {"text/event-stream; charset=utf-8"}},
	}, Call{Kind: kind}, headerMemory{})
}

type pieceReader struct {
	pieces []string
	err    error
}

func (p *pieceReader) Read(b []byte) (int, error) {
	if len(p.pieces) == 0 {
		return 0, p.err
	}
	n := copy(b, p.pieces[0])
	if p.pieces[0] = p.pieces[0][n:]; p.pieces[0] == "" {
		p.pieces = p.pieces[1:]
	}
	return n, nil
}

const (
	word   = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":null}]}\n\n"
	finish = "data: {\"choices\":[{\"delta\":{},\"finish_reason\": \"stop\"}]}\n\n"
	done   = "data: [DONE]\n\n"
)

func TestEndsOfStreams(t *testing.T) {
	relaytest.Ends{Through: func(_ *testing.T, s relaytest.Stream) string {
		end := io.EOF
		if s.Broken {
			end = errors.New("connection reset")
		}
		kind := api.EventsOf(s.Path)
		a := answerOf(kind, end, s.Pieces...)
		a.media, _, _ = strings.Cut(s.ContentType, ";")
		defer a.Close()
		client := &sink{}
		if err := a.Copy(client); errors.Is(err, relay.ErrCut) {
			if a.Lines() {
				kind = api.StreamLines
			}
			client.Write(kind.Error(api.Errorf(http.StatusBadGateway, api.CodeStreamCut, "cut"), a.Next()))
		}
		return client.String()
	}}.Run(t)
}

func TestEachEventIsFlushed(t *testing.T) {
	a := answerOf(api.StreamCompletion, io.EOF, word, word, word[:9], word[9:], finish, done)
	s := &sink{}
	if err := a.Copy(s); err != nil || s.flushes != 5 {
		t.Errorf("got %d flushes, %v; want one for each of 5 events", s.flushes, err)
	}
}

func TestAClientThatFails(t *testing.T) {
	gone := errors.New("broken pipe")
	if err := answerOf(api.StreamCompletion, io.EOF, word).Copy(&sink{err: gone}); !errors.Is(err, ErrClient) || !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
}

func TestALargeEventIsKeptWhole(t *testing.T) {
	large := "data: " + strings.Repeat("x", 1000<<10) + "\n\n"
	a := answerOf(api.StreamCompletion, io.EOF, large, done)
	s := &sink{}
	if err := a.Copy(s); err != nil || s.String() != large+done || s.flushes != 2 {
		t.Errorf("got %d bytes in %d flushes, %v", s.Len(), s.flushes, err)
	}
}

// TestUsageIsForTheActivator: an instance's report of usage is counted and removed, or passed on to a front door that
// counts too.
func TestUsageIsForTheActivator(t *testing.T) {
	const said = ": rouse-usage 20 5 3\n"
	for _, counts := range []bool{false, true} {
		var u relay.Usage
		a := newAnswer(t.Context(), &http.Response{
			StatusCode: 200, ContentLength: -1, Body: io.NopCloser(&pieceReader{[]string{said[:7], said[7:] + word, "event: x\n" + said + finish + done}, io.EOF}),
			Header: http.Header{"Content-Type": {"text/event-stream"}, control.HeaderUsage: {"2 1 0"}},
		}, Call{Kind: api.StreamCompletion, Usage: &u, Counts: counts}, headerMemory{})
		if u.Prompt != 2 || u.Cached != 1 {
			t.Errorf("the header is counted as %+v", u)
		}
		s, h := &sink{}, http.Header{}
		a.Header(h)
		if err := a.Copy(s); err != nil || u.Prompt != 20 || u.Cached != 5 || u.Tokens() != 3 {
			t.Errorf("%v: %+v", err, u)
		}
		want := word + "event: x\n" + finish + done
		if counts {
			want = said + word + "event: x\n" + said + finish + done
		}
		if s.String() != want || (h.Get(control.HeaderUsage) != "") != counts {
			t.Errorf("got %q and %v, want %q", s.String(), h, want)
		}
	}
}
