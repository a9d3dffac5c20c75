package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/term"
)

// script are the lines of a person, who then leaves.
type script []string

func (l *script) ReadLine(bool) (string, error) {
	if len(*l) == 0 {
		return "", io.EOF
	}
	line := (*l)[0]
	*l = (*l)[1:]
	return line, nil
}

// screen collects what is displayed.
type screen struct {
	bytes.Buffer
	written chan struct{} // has an element after a write; one place, so that writers never block
}

func newScreen() *screen { return &screen{written: make(chan struct{}, 1)} }

func (s *screen) Write(p []byte) (int, error) {
	defer func() {
		select {
		case s.written <- struct{}{}:
		default:
		}
	}()
	return s.Buffer.Write(p)
}

// talker answers "yes" to everything but "long", whose answer ends with its client only, who leaves once it is on the screen.
func talker(t *testing.T, on *screen) (door endpoint, asked func() [][]message) {
	t.Helper()
	var all [][]message
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Messages []message }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		all = append(all, body.Messages)
		select {
		case <-on.written: // of the answer before
		default:
		}
		_, _ = io.WriteString(w, ": rouse stage=waking waited=1.0s\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"yes\"}}]}\n\n")
		if body.Messages[len(body.Messages)-1].Content == "long" {
			w.(http.Flusher).Flush()
			<-on.written
			if err := syscall.Kill(syscall.Getpid(), syscall.SIGINT); err != nil { // Ctrl-C
				t.Error(err)
			}
			<-r.Context().Done()
			return
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}))
	t.Cleanup(server.Close)
	return endpoint(server.URL), func() [][]message { return all }
}

// full is a disk that is full.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestAnswerNotWritten: an answer that can't be printed is an error, and one without text is explained.
func TestAnswerNotWritten(t *testing.T) {
	door, _ := talker(t, newScreen())
	c := &conversation{client: newClient(door, ""), door: door, out: full{}, errs: io.Discard}
	if err := c.turn(t.Context(), "one"); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v, want the error of the disk", err)
	}
	empty := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "data: [DONE]\n\n") }))
	t.Cleanup(empty.Close)
	var errs bytes.Buffer
	c = &conversation{client: newClient(endpoint(empty.URL), ""), door: endpoint(empty.URL), out: io.Discard, errs: &errs}
	if err := c.turn(t.Context(), "one"); err != nil || !strings.Contains(errs.String(), "the answer has no text") {
		t.Errorf("got %q, %v", errs.String(), err)
	}
}

// TestConversation: what was said is remembered until /clear; /? and /help ask nobody; Ctrl-C ends an answer and not the conversation; /bye ends that.
func TestConversation(t *testing.T) {
	out := newScreen()
	door, asked := talker(t, out)
	var errs bytes.Buffer
	c := &conversation{client: newClient(door, ""), door: door, out: out, errs: &errs}
	lines := script{"one", "", "long", "/?", "two", "/clear", "/help", "three", "/bye", "never"}
	if err := c.talk(t.Context(), &lines); err != nil {
		t.Fatal(err)
	}
	want := [][]message{
		{{"user", "one"}},
		{{"user", "one"}, {"assistant", "yes"}, {"user", "long"}},
		{{"user", "one"}, {"assistant", "yes"}, {"user", "long"}, {"assistant", "yes"}, {"user", "two"}},
		{{"user", "three"}},
	}
	if diff := cmp.Diff(want, asked()); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	if got := out.String(); got != "yes\nyes\nyes\nyes\n" {
		t.Errorf("it prints %q", got)
	}
	if got := errs.String(); strings.Contains(got, "\x1b") || !strings.Contains(got, "stage=waking waited=1.0s\n") {
		t.Errorf("what is no terminal gets %q, want lines without escapes", got)
	}
	if got := strings.Count(errs.String(), "Ctrl-C ends an answer, then the conversation"); got != 2 {
		t.Errorf("help is printed %d times, want twice, in %q", got, errs.String())
	}
	if len(lines) != 1 {
		t.Errorf("left are %q", lines)
	}
}

// impatient types Ctrl-C behind each line, before the answer is asked for.
type impatient struct{ script }

func (l *impatient) ReadLine(more bool) (string, error) {
	line, err := l.script.ReadLine(more)
	failed := syscall.Kill(syscall.Getpid(), syscall.SIGINT)
	time.Sleep(10 * time.Millisecond) // any thread may get it, a moment later
	return line, errors.Join(err, failed)
}

// TestInterruptedBetween: Ctrl-C between a line and its answer ends nothing.
func TestInterruptedBetween(t *testing.T) {
	out := newScreen()
	door, asked := talker(t, out)
	c := &conversation{client: newClient(door, ""), door: door, out: out, errs: io.Discard}
	if err := c.talk(t.Context(), &impatient{script{"/?", "/clear", "/set"}}); err != nil || len(asked()) > 0 {
		t.Errorf("%v, and %q was asked", err, asked())
	}
}

// TestPasted: lines that are pasted together are one turn, which is sent when a line is entered by hand.
func TestPasted(t *testing.T) {
	for keys, want := range map[string][]string{
		"one\rtwo\r": {"one", "two"},
		"\x1b[200~one\rtwo\rthree\x1b[201~ and more\rnext\r": {"one\ntwo\nthree and more", "next"},
		"\x1b[200~one\rtwo\r\x1b[201~\r":                     {"one\ntwo\n"},
		"see: \x1b[200~one\x1b[201~\r":                       {"see: one"},
	} {
		lines := term.NewTerminal(struct {
			io.Reader
			io.Writer
		}{strings.NewReader(keys), io.Discard}, prompt)
		lines.SetBracketedPasteMode(true)
		var got []string
		for {
			line, err := pasted(lines, prompt)
			if err != nil {
				break
			}
			got = append(got, line)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", keys, diff)
		}
	}
}

// TestInterrupted: Ctrl-C ends a single question with the shell's code.
func TestInterrupted(t *testing.T) {
	out := newScreen()
	door, _ := talker(t, out)
	c := &conversation{client: newClient(door, ""), door: door, out: out, errs: io.Discard}
	var exit *ExitError
	if err := c.run(t.Context(), "long", strings.NewReader("")); !errors.As(err, &exit) || exit.Code != 130 {
		t.Errorf("got %v, want the exit code 130", err)
	}
}

// TestRate: what came all at once says nothing of speed.
func TestRate(t *testing.T) {
	for _, tc := range []struct {
		m    measured
		want float64
	}{
		{measured{tokens: 21, firstToken: time.Second, total: time.Second + 100*time.Microsecond}, 0},
		{measured{tokens: 21, firstToken: time.Second, total: 2 * time.Second}, 20},
		{measured{tokens: 1, firstToken: time.Second, total: 2 * time.Second}, 0},
	} {
		if got := tc.m.rate(); got != tc.want {
			t.Errorf("%+v: got %.0f, want %.0f", tc.m, got, tc.want)
		}
	}
}
