package relay_test

import (
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/relay"
	"golang.org/x/net/http/httpguts"
)

const stateLine = control.StateComment

// TestStateOfStrangeAnswers checks that for any output of an instance the client gets its events. Another instance
// may continue only if each event has its piece and the pieces are valid in a header.
func TestStateOfStrangeAnswers(t *testing.T) {
	const a, b = "data: {\"a\":1}\n\n", "data: {\"b\":1}\n\n"
	for name, test := range map[string]struct {
		takes  []string
		got    string
		header string // empty: it cannot continue
	}{
		"each event has its piece":           {[]string{stateLine + "i:1\n" + a, stateLine + "2\n" + b}, a + b, "i:1;2"},
		"the end needs none":                 {[]string{stateLine + "i:1\n" + a, "data: [DONE]\n\n"}, a + "data: [DONE]\n\n", "i:1"},
		"a ping needs none":                  {[]string{stateLine + "i:1\n" + a, "event: ping\ndata: {\"type\":\"ping\"}\n\n"}, a + "event: ping\ndata: {\"type\":\"ping\"}\n\n", "i:1"},
		"an error needs none":                {[]string{stateLine + "i:1\n" + a, "data: {\"error\":{}}\n\n"}, a + "data: {\"error\":{}}\n\n", "i:1"},
		"comments alone":                     {[]string{": x\n\n", ": y\n\n"}, ": x\n\n: y\n\n", control.StateNew},
		"a line of no kind":                  {[]string{stateLine + "i:1\n" + a, " {\"b\":1}\n"}, a + " {\"b\":1}\n", ""},
		"a comment needs none":               {[]string{stateLine + "i:1\n" + a, ": keep\n\n"}, a + ": keep\n\n", "i:1"},
		"lines of one event need one":        {[]string{stateLine + "i:1\n" + "data: {\ndata: }\n\n", stateLine + "2\n" + b}, "data: {\ndata: }\n\n" + b, "i:1;2"},
		"a later event without":              {[]string{stateLine + "i:1\n" + a, b}, a + b, ""},
		"an earlier event without":           {[]string{a, stateLine + "i:1\n" + b}, a + b, ""},
		"two events behind one piece":        {[]string{stateLine + "i:1\n" + a + b}, a + b, ""},
		"two lines behind one piece":         {[]string{stateLine + "i:1\n{\"a\":1}\n{\"b\":1}\n"}, "{\"a\":1}\n{\"b\":1}\n", ""},
		"another beginning in the middle":    {[]string{stateLine + "i:1\n" + a, stateLine + "j:1\n" + b}, a + b, ""},
		"a control character":                {[]string{stateLine + "i:1\x00\n" + a}, a, ""},
		"a blank":                            {[]string{stateLine + "i:1 2\n" + a}, a, ""},
		"no ASCII":                           {[]string{stateLine + "i:é\n" + a}, a, ""},
		"what would begin another header":    {[]string{stateLine + "i:1\rX-Rouse-Tenant: b\n" + a}, "X-Rouse-Tenant: b\n" + a, ""},
		"lines that end otherwise":           {[]string{stateLine + "i:1\rdata: {\"a\":1}\r\r\n\n"}, "data: {\"a\":1}\r\r\n\n", ""},
		"more than is kept":                  {[]string{stateLine + "i:" + strings.Repeat("1,", relay.MaxState/2) + "\n" + a, stateLine + "2\n" + b}, a + b, ""},
		"a piece whose event does not come":  {[]string{stateLine + "i:1\n" + a, stateLine + "2\n"}, a, "i:1"},
		"an empty piece":                     {[]string{stateLine + "i:1\n" + a, stateLine + "\n" + b}, a + b, ""},
		"a part of an event that is too big": {[]string{stateLine + "i:1\n" + a, stateLine + "2\ndata: {", "}\n\n"}, a + "data: {}\n\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var s relay.State
			if s.Header() != control.StateNew {
				t.Fatalf("a new one asks for %q", s.Header())
			}
			got := ""
			for _, p := range test.takes {
				got += string(s.Take([]byte(p)))
			}
			if got != test.got || s.Known() != (test.header != "") || s.Again() {
				t.Errorf("the client gets %q, known %v, again %v; want %q and %v", got, s.Known(), s.Again(), test.got, test.header != "")
			}
			if s.Known() && s.Header() != test.header {
				t.Errorf("the state is %q, want %q", s.Header(), test.header)
			}
		})
	}
}

// TestStateOfWhoBeginsAgain checks that the client gets nothing of an answer that should continue and starts over.
func TestStateOfWhoBeginsAgain(t *testing.T) {
	const first = "data: {\"a\":1}\n\n"
	for name, test := range map[string]struct {
		answer, got string
		again       bool
	}{
		"it goes on":               {stateLine + "2\n" + first, first, false},
		"it ends":                  {"data: [DONE]\n\n", "data: [DONE]\n\n", false},
		"it says what is wrong":    {"data: {\"error\":{}}\n\n", "data: {\"error\":{}}\n\n", false},
		"no state":                 {first + first, "", true},
		"no state, behind a ping":  {": x\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\n" + first, ": x\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\n", true},
		"no state, with a name":    {"event: message_start\n" + first, "", true},
		"a state of its own":       {stateLine + "j:1::0:m:5\n" + first, "", true},
		"an event without an end":  {"data: " + strings.Repeat("x", 99), "", true},
		"a state that can't be":    {stateLine + "2\r" + first, "", true},
		"no state, in lines":       {"{\"a\":1}\n", "", true},
		"no state, then the state": {first + stateLine + "2\n" + first, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			var s relay.State
			s.Take([]byte(stateLine + "i:1::0:m:5\n" + first + stateLine + "6\n")) // its event did not come
			if s.Header() != "i:1::0:m:5" {
				t.Fatalf("the state is %q", s.Header())
			}
			got := string(s.Take([]byte(test.answer)))
			if got += string(s.Take([]byte(stateLine + "3\n" + first))); !test.again {
				test.got += first
			}
			if got != test.got || s.Again() != test.again || s.Known() == test.again {
				t.Errorf("the client gets %q, again %v, known %v; want %q, %v", got, s.Again(), s.Known(), test.got, test.again)
			}
		})
	}
}

// FuzzState checks that for any output of an instance the state is valid in a header, within its limit, and has a
// piece for each event that the client received. No state comment reaches the client.
func FuzzState(f *testing.F) {
	for _, s := range []string{
		stateLine + "i:1\ndata: {}\n\n" + stateLine + "2\ndata: {}\n\ndata: [DONE]\n\n", "data: {}\n\n" + stateLine + "i:1\ndata: {}\n\n", stateLine + "1\r\ndata: x\r\n\r\n",
		stateLine + "1\rdata: x\n\n" + control.MovedComment + "\n\n", "event: x\n" + stateLine + "1\ndata: y\ndata: z\n\n", stateLine + "1\n{}\n{}\n", ": x\n\n" + stateLine + "\x00\ndata: a\n",
	} {
		f.Add(s, uint16(len(s)/2))
	}
	f.Fuzz(func(t *testing.T, text string, cut uint16) {
		for _, began := range []bool{false, true} {
			var s relay.State
			got := ""
			if began {
				got = string(s.Take([]byte(stateLine + "i:1\ndata: {}\n\n")))
				_ = s.Header()
			}
			at := min(int(cut), len(text))
			at = strings.LastIndexByte(text[:at], '\n') + 1
			for _, p := range []string{text[:at], text[at:]} {
				got += string(s.Take([]byte(p)))
			}
			if s.Again() && s.Known() {
				t.Fatalf("%q: it has begun again, and is to go on", text)
			}
			if !s.Known() {
				continue
			}
			events, empty := 0, true
			for line := range strings.Lines(got) {
				if strings.HasPrefix(line, stateLine) {
					t.Fatalf("%q: the client gets %q", text, line)
				}
				if empty && strings.HasPrefix(line, "data: {}") {
					events++
				}
				empty = line == "\n"
			}
			h := s.Header()
			if h != control.StateNew && len(h) > relay.MaxState || !httpguts.ValidHeaderFieldValue(h) || strings.TrimSpace(h) != h {
				t.Fatalf("%q: the state is %q", text, h)
			}
			if events > 0 && (h == control.StateNew || events > strings.Count(h, ";")+1) {
				t.Fatalf("%q: the client has got %q, and the state is %q", text, got, h)
			}
		}
	})
}
