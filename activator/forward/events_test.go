package forward

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/relay"
)

// answerOf is an answer whose body comes in the given pieces, then err.
func answerOf(kind api.Stream, err error, pieces ...string) *Answer {
	return newAnswer(&http.Response{
		StatusCode: 200, ContentLength: -1, Body: io.NopCloser(&pieceReader{pieces, err}),
		Header: http.Header{"Content-Type": {"text/event-stream; charset=utf-8"}},
	}, Call{Kind: kind}, &held{})
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
	word     = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":null}]}\n\n"
	lookLike = "data: {\"choices\":[{\"delta\":{\"content\":\"\\\"finish_reason\\\":\\\"stop\\\" data: [DONE]\"},\"finish_reason\":null}]}\n\n"
	finish   = "data: {\"choices\":[{\"delta\":{},\"finish_reason\": \"stop\"}]}\n\n"
	done     = "data: [DONE]\n\n"
	failed   = "data: {\"error\":{\"message\":\"m\"}}\n\n"
)

func TestEndsOfStreams(t *testing.T) {
	broken := errors.New("connection reset")
	for _, tc := range []struct {
		name string
		kind api.Stream
		text string
		err  error
		want string // what the client sees
		cut  bool
	}{
		{"complete", api.StreamCompletion, word + finish + done, io.EOF, word + finish + done, false},
		{"a finish reason is enough", api.StreamCompletion, word + finish, io.EOF, word + finish, false},
		{"[DONE] is enough", api.StreamCompletion, word + done, io.EOF, word + done, false},
		{"CRLF", api.StreamCompletion, "data: x\r\n\r\ndata: [DONE]\r\n\r\n", io.EOF, "data: x\r\n\r\ndata: [DONE]\r\n\r\n", false},
		{"no space after the colon", api.StreamCompletion, "data:[DONE]\n\n", io.EOF, "data:[DONE]\n\n", false},
		{"the last blank line is missing", api.StreamCompletion, word + "data: [DONE]", io.EOF, word + "data: [DONE]", false},
		{"a clean end that is none", api.StreamCompletion, word + word, io.EOF, word + word, true},
		{"text that looks like an end", api.StreamCompletion, lookLike, io.EOF, lookLike, true},
		{"a clean end within an event", api.StreamCompletion, word + `data: {"cho`, io.EOF, word, true},
		{"cut between events", api.StreamCompletion, word, broken, word, true},
		{"cut within an event", api.StreamCompletion, word + `data: {"cho`, broken, word, true},
		{"cut after a finish reason: the usage may be missing", api.StreamCompletion, word + finish, broken, word + finish, true},
		{"cut after [DONE]", api.StreamCompletion, word + done, broken, word + done, false},
		{"the runtime's own error is an end", api.StreamCompletion, word + failed, io.EOF, word + failed, false},
		{"comments only", api.StreamCompletion, ": keepalive\n\n", io.EOF, ": keepalive\n\n", true},
		{"responses", api.StreamResponses, "event: response.completed\ndata: {}\n\n", io.EOF, "event: response.completed\ndata: {}\n\n", false},
		{"responses without an end", api.StreamResponses, "event: response.created\ndata: {}\n\n", io.EOF, "event: response.created\ndata: {}\n\n", true},
		{"messages", api.StreamMessages, "event: message_stop\ndata: {}\n\n", io.EOF, "event: message_stop\ndata: {}\n\n", false},
		{"messages without an end", api.StreamMessages, "event: ping\ndata: {}\n\n", io.EOF, "event: ping\ndata: {}\n\n", true},
		{"a stream of another kind may end anywhere", api.StreamPlain, word, io.EOF, word, false},
		{"but not be cut", api.StreamPlain, word, broken, word, true},
	} {
		for _, size := range []int{1, 3, 7, 1000} {
			t.Run(fmt.Sprintf("%s/%d", tc.name, size), func(t *testing.T) {
				var pieces []string
				for rest := tc.text; rest != ""; rest = rest[min(size, len(rest)):] {
					pieces = append(pieces, rest[:min(size, len(rest))])
				}
				a := answerOf(tc.kind, tc.err, pieces...)
				defer a.Close()
				s := &sink{}
				err := a.Copy(s)
				if s.String() != tc.want || errors.Is(err, relay.ErrCut) != tc.cut || (err != nil) != tc.cut {
					t.Errorf("client saw %q, error %v; want %q, cut %t", s, err, tc.want, tc.cut)
				}
			})
		}
	}
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

// Lines of JSON are passed on whole, each at once, and must say that they are done.
func TestLines(t *testing.T) {
	const token, last = `{"message":{"content":"a"},"done":false}` + "\n", `{"done":true}` + "\n"
	for _, tc := range []struct {
		name   string
		pieces []string
		err    error
		want   string
		cut    bool
	}{
		{"complete", []string{token, token[:9], token[9:] + last}, io.EOF, token + token + last, false},
		{"the last line has no end", []string{token, `{"done":true}`}, io.EOF, token + `{"done":true}`, false},
		{"a clean end that is none", []string{token, token}, io.EOF, token + token, true},
		{"cut within a line", []string{token, token[:9]}, errors.New("connection reset"), token, true},
		{"cut after the last line", []string{token, last}, errors.New("connection reset"), token + last, false},
		{"the runtime's own error", []string{token, `{"error":"m"}` + "\n"}, io.EOF, token + `{"error":"m"}` + "\n", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := answerOf(api.StreamPlain, tc.err, tc.pieces...)
			a.media = "application/x-ndjson"
			defer a.Close()
			s := &sink{}
			err := a.Copy(s)
			if s.String() != tc.want || errors.Is(err, relay.ErrCut) != tc.cut || s.flushes == 0 {
				t.Errorf("client saw %q in %d flushes, error %v; want %q, cut %t", s, s.flushes, err, tc.want, tc.cut)
			}
		})
	}
}
