package cli

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/term"
)

// TestTurnsOfSeveralLines: what stands between quotes is one turn.
func TestTurnsOfSeveralLines(t *testing.T) {
	out := newScreen()
	door, asked := talker(t, out)
	c := &conversation{client: newClient(door, ""), door: door, out: out, errs: io.Discard}
	lines := script{`"""one`, "two", "", `three"""`, "/clear", `"""four"""`, "/clear", `"""`, "/bye is asked here", `"""`}
	if err := c.talk(t.Context(), &lines); err != nil {
		t.Fatal(err)
	}
	want := [][]message{{{"user", "one\ntwo\n\nthree"}}, {{"user", "four"}}, {{"user", "/bye is asked here"}}}
	if diff := cmp.Diff(want, asked()); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

// TestSet changes settings, and refuses what can't be meant without asking the model.
func TestSet(t *testing.T) {
	out := newScreen()
	door, asked := talker(t, out)
	var errs bytes.Buffer
	c := &conversation{client: newClient(door, ""), door: door, out: out, errs: &errs}
	lines := script{"/set system 'Be brief.'", "/set temperature 0.7", "/set top_p 0.9", "/set seed 7", "/set max-tokens 5", "/set stats off", "hello", "/set"}
	if err := c.talk(t.Context(), &lines); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([][]message{{{"system", "Be brief."}, {"user", "hello"}}}, asked()); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	if got, want := c.options, (chatOptions{system: "Be brief.", temperature: 0.7, topP: 0.9, seed: 7, maxTokens: 5}); got != want {
		t.Errorf("settings are %+v, want %+v", got, want)
	}
	if got := errs.String(); strings.Contains(got, "first token") || !strings.Contains(got, "  max-tokens   5 ") {
		t.Errorf("it prints %q, want the list and no figures", got)
	}
	for line, want := range map[string]string{
		"/set temperature warm": "want a number from 0 to 2", "/set temperature NaN": "want a number", "/set max-tokens -1": "at least 0",
		"/set stats maybe": "want on or off", "/set colour red": "there is no setting colour", "/quantize": "there is no command /quantize",
	} {
		errs.Reset()
		if err := c.talk(t.Context(), &script{line}); err != nil || !strings.Contains(errs.String(), want) {
			t.Errorf("%s prints %q, %v; want %q", line, errs.String(), err, want)
		}
	}
	if n := len(asked()); n != 1 {
		t.Errorf("the model was asked %d times", n)
	}
	if command, _ := slashed("/etc/passwd what is it?"); command != "" {
		t.Errorf("a path is the command %q", command)
	}
}

// TestWait reads what a server says while it wakes a function.
func TestWait(t *testing.T) {
	for text, want := range map[string]wait{
		`stage=loading waited=1.5s expected=3.0s why="no GPU is free, and \"b\" is busy"`: {stage: "loading", waited: 1500 * time.Millisecond, expected: 3 * time.Second, why: `no GPU is free, and "b" is busy`},
		"stage=fetching waited=2.0s progress=40%":                                         {stage: "fetching", waited: 2 * time.Second, progress: 40},
		"stage=queue waited=x progress=y why=z":                                           {stage: "queue"},
	} {
		if got := readWait(text); got != want {
			t.Errorf("%s: got %+v, want %+v", text, got, want)
		}
	}
	for _, test := range []struct {
		said  wait
		since time.Duration
		want  float64
	}{
		{wait{}, time.Second, 0},
		{wait{progress: 40}, time.Minute, 0.4},
		{wait{waited: time.Second, expected: 3 * time.Second}, 0, 0.25},
		{wait{waited: time.Second, expected: 3 * time.Second, progress: 10}, time.Second, 0.5},
		{wait{waited: time.Second, expected: 3 * time.Second, progress: 60}, time.Second, 0.6},
		{wait{waited: time.Second, expected: 3 * time.Second}, time.Hour, 1},
	} {
		if got := test.said.share(test.since); got != test.want {
			t.Errorf("%v after %+v it is at %v, want %v", test.since, test.said, got, test.want)
		}
	}
}

// TestWaitBar: it goes on while the server says nothing, until it is cleared.
func TestWaitBar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer // below b.mu
		b := newWaitBar(&out)
		drawn := func() int {
			b.mu.Lock()
			defer b.mu.Unlock()
			return strings.Count(out.String(), "m: loading")
		}
		b.clear() // nothing is there
		b.says("m", wait{stage: "loading", waited: time.Second, expected: time.Minute}, time.Now())
		time.Sleep(time.Second)
		synctest.Wait()
		n := drawn()
		if n < 4 {
			t.Errorf("it is drawn %d times in a second", n)
		}
		b.clear()
		time.Sleep(time.Minute)
		if got := drawn(); got != n {
			t.Errorf("it is drawn %d times after it was cleared", got-n)
		}
	})
}

// TestHistory: lines are kept for the next program, also where two run at once, within bounds and readable by nobody else.
func TestHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "history")
	one, two := newTyped(path), newTyped(path)
	one.Add("first")
	one.Add("first")
	one.Add("  ")
	one.Add("bad \x1b[2J line")
	one.Add(strings.Repeat("x", longestTyped+1))
	two.Add("second")
	for _, h := range []*typed{one, two} {
		if err := h.close(); err != nil {
			t.Fatal(err)
		}
	}
	h := newTyped(path)
	if h.Len() != 2 || h.At(0) != "second" || h.At(1) != "first" {
		t.Errorf("kept are %q", h.lines)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file's mode is %v, %v", info.Mode(), err)
	}
	for range mostTyped {
		h.Add("again")
		h.Add("and again")
	}
	if err := h.close(); err != nil {
		t.Fatal(err)
	}
	if n := newTyped(path).Len(); n != mostTyped {
		t.Errorf("%d lines are kept, want %d", n, mostTyped)
	}
	if err := os.WriteFile(path, []byte("good\n\x1b]0;bad\x07\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := newTyped(path).lines; !slices.Equal(got, []string{"good"}) {
		t.Errorf("of a spoiled file %q are read", got)
	}
	folder := newTyped(t.TempDir())
	folder.Add("line")
	if err := folder.close(); err == nil {
		t.Error("a folder takes lines")
	}
	if newTyped("").close() != nil {
		t.Error("no file is an error")
	}
}

// TestEditor types on a terminal: keys edit, arrows find what was typed before, in another program too, Ctrl-C and Ctrl-D are told apart.
func TestEditor(t *testing.T) {
	person, program, err := pty.Open()
	if err != nil {
		t.Skipf("no pseudo terminal: %v", err)
	}
	if _, err := term.MakeRaw(int(program.Fd())); err != nil { // or what is typed before a line is read would mean something else
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(io.Discard, person) }) // what is drawn, until nobody has the other side
	defer person.Close()
	defer reading.Wait()
	defer program.Close()
	path := filepath.Join(t.TempDir(), "history")
	before := newTyped(path)
	before.Add("of yesterday")
	if err := before.close(); err != nil {
		t.Fatal(err)
	}
	history := newTyped(path)
	e := newEditor(program, io.Discard, history)
	for _, step := range []struct {
		keys, want string
		err        error
	}{
		{"helo\x1b[Dl\r", "hello", nil}, // left, then a letter
		{"\x1b[A\r", "hello", nil},      // up
		{"\x1b[A\x1b[A\r", "of yesterday", nil},
		{"what\x15other\r", "other", nil}, // Ctrl-U
		{"\x03", "", errInterrupted},
		{"\x04", "", io.EOF},
	} {
		if _, err := person.WriteString(step.keys); err != nil {
			t.Fatal(err)
		}
		if got, err := e.ReadLine(false); got != step.want || err != step.err {
			t.Errorf("%q: got %q, %v; want %q, %v", step.keys, got, err, step.want, step.err)
		}
	}
	if err := history.close(); err != nil {
		t.Fatal(err)
	}
	if got, want := newTyped(path).lines, []string{"of yesterday", "hello", "of yesterday", "other"}; !slices.Equal(got, want) {
		t.Errorf("kept are %q, want %q", got, want)
	}
}
