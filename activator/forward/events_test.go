package forward

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// answerOf is an answer whose body comes in the given pieces, then err.
func answerOf(kind Kind, err error, pieces ...string) *Answer {
	return &Answer{
		resp: &http.Response{
			StatusCode: 200, ContentLength: -1, Body: io.NopCloser(&pieceReader{pieces, err}),
			Header: http.Header{"Content-Type": {"text/event-stream; charset=utf-8"}},
		},
		kind: kind, buf: smallBuffers.Get().(*[]byte),
	}
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
		kind Kind
		text string
		err  error
		want string // what the client sees
		cut  bool
	}{
		{"complete", Chat, word + finish + done, io.EOF, word + finish + done, false},
		{"a finish reason is enough", Chat, word + finish, io.EOF, word + finish, false},
		{"[DONE] is enough", Chat, word + done, io.EOF, word + done, false},
		{"CRLF", Chat, "data: x\r\n\r\ndata: [DONE]\r\n\r\n", io.EOF, "data: x\r\n\r\ndata: [DONE]\r\n\r\n", false},
		{"no space after the colon", Chat, "data:[DONE]\n\n", io.EOF, "data:[DONE]\n\n", false},
		{"the last blank line is missing", Chat, word + "data: [DONE]", io.EOF, word + "data: [DONE]", false},
		{"a clean end that is none", Chat, word + word, io.EOF, word + word, true},
		{"text that looks like an end", Chat, lookLike, io.EOF, lookLike, true},
		{"a clean end within an event", Chat, word + `data: {"cho`, io.EOF, word, true},
		{"cut between events", Chat, word, broken, word, true},
		{"cut within an event", Chat, word + `data: {"cho`, broken, word, true},
		{"cut after a finish reason: the usage may be missing", Chat, word + finish, broken, word + finish, true},
		{"cut after [DONE]", Chat, word + done, broken, word + done, false},
		{"the runtime's own error is an end", Chat, word + failed, io.EOF, word + failed, false},
		{"comments only", Chat, ": keepalive\n\n", io.EOF, ": keepalive\n\n", true},
		{"responses", Responses, "event: response.completed\ndata: {}\n\n", io.EOF, "event: response.completed\ndata: {}\n\n", false},
		{"responses without an end", Responses, "event: response.created\ndata: {}\n\n", io.EOF, "event: response.created\ndata: {}\n\n", true},
		{"messages", Messages, "event: message_stop\ndata: {}\n\n", io.EOF, "event: message_stop\ndata: {}\n\n", false},
		{"messages without an end", Messages, "event: ping\ndata: {}\n\n", io.EOF, "event: ping\ndata: {}\n\n", true},
		{"a stream of another kind may end anywhere", Opaque, word, io.EOF, word, false},
		{"but not be cut", Opaque, word, broken, word, true},
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
				if s.String() != tc.want || errors.Is(err, ErrCut) != tc.cut || (err != nil) != tc.cut {
					t.Errorf("client saw %q, error %v; want %q, cut %t", s, err, tc.want, tc.cut)
				}
			})
		}
	}
}

func TestEachEventIsFlushed(t *testing.T) {
	a := answerOf(Chat, io.EOF, word, word, word[:9], word[9:], finish, done)
	s := &sink{}
	if err := a.Copy(s); err != nil || s.flushes != 5 {
		t.Errorf("got %d flushes, %v; want one for each of 5 events", s.flushes, err)
	}
}

func TestAClientThatFails(t *testing.T) {
	gone := errors.New("broken pipe")
	if err := answerOf(Chat, io.EOF, word).Copy(&sink{err: gone}); !errors.Is(err, ErrClient) || !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
}

func TestALargeEventIsKeptWhole(t *testing.T) {
	large := "data: " + strings.Repeat("x", 3<<20) + "\n\n"
	a := answerOf(Chat, io.EOF, large, done)
	s := &sink{}
	if err := a.Copy(s); err != nil || s.String() != large+done || s.flushes != 2 {
		t.Errorf("got %d bytes in %d flushes, %v", s.Len(), s.flushes, err)
	}
}

// FuzzEvents cuts a text anywhere and compares with a twin that reads it line by line.
func FuzzEvents(f *testing.F) {
	for _, s := range []string{word + finish + done, lookLike, "a\r\n\r\nb", "\r\r", "\n\n\n", failed, "data: [DONE]", "x\n\r\ny"} {
		f.Add([]byte(s), uint8(3))
	}
	f.Fuzz(func(t *testing.T, text []byte, size uint8) {
		var pieces []string
		for rest := string(text); rest != ""; {
			n := min(int(size%50)+1, len(rest))
			pieces = append(pieces, rest[:n])
			rest = rest[n:]
		}
		a := answerOf(Chat, io.EOF, pieces...)
		defer a.Close()
		s := &sink{}
		err := a.Copy(s)
		whole, complete := slowEnding(text)
		want := text
		if !complete {
			want = text[:whole]
		}
		// How many empty lines follow the last event makes no difference to anybody.
		if !bytes.Equal(bytes.TrimRight(s.Bytes(), "\r\n"), bytes.TrimRight(want, "\r\n")) || (err == nil) != complete {
			t.Fatalf("text %q: client saw %q, error %v; want %q, complete %t", text, s.Bytes(), err, want, complete)
		}
	})
}

// slowEnding finds the end of the last whole event, and whether the text holds one that ends a chat.
func slowEnding(text []byte) (whole int, complete bool) {
	var line []byte
	empty := false // the line that just ended was empty, after at least one line
	for at := 0; at < len(text); {
		c := text[at]
		at++
		if c == '\r' && at == len(text) {
			break // a line whose end is not known yet
		}
		if c != '\n' && c != '\r' {
			line = append(line, c)
			continue
		}
		crlf := c == '\r' && at < len(text) && text[at] == '\n'
		if crlf {
			at++
		}
		first := at-1 == 0 || (crlf && at-2 == 0)
		empty = len(line) == 0 && !first
		complete = complete || slowEnds(line)
		line = nil
		if empty {
			whole = at
		}
	}
	return whole, complete || slowEnds(line)
}

// slowEnds says whether one line ends a chat.
func slowEnds(line []byte) bool {
	data, found := bytes.CutPrefix(line, []byte("data:"))
	data = bytes.TrimPrefix(data, []byte(" "))
	event, named := bytes.CutPrefix(line, []byte("event:"))
	return found && (string(data) == "[DONE]" || bytes.HasPrefix(data, []byte(`{"error"`))) ||
		named && string(bytes.TrimPrefix(event, []byte(" "))) == "error" ||
		bytes.Contains(line, []byte(`"finish_reason"`)) && finishReason(line)
}

func BenchmarkEvents(b *testing.B) {
	text := []byte(word)
	end := Ending{kind: Chat}
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		end.See(text[:Whole(text)])
	}
}
