package local

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler"
)

func TestLearned(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	chat := api.Function{Name: "default/chat", Runtime: api.Runtime{Kind: api.RuntimeEngine, Model: "pico", Env: []string{"SECRET=hunter2"}}}
	code := api.Function{Name: "default/code", Runtime: api.Runtime{Kind: api.RuntimeEngine, Model: "pico"}}
	other := chat
	other.Runtime.Model = "another"
	times := autoscaler.Times{Load: time.Second, Wake: [4]time.Duration{0, time.Millisecond}, Sleep: 2 * time.Millisecond}
	var log bytes.Buffer
	open := func() *learned { return newLearned(dir, slog.New(slog.NewTextHandler(&log, nil))) }

	// Two servers share one folder: neither forgets what the other one has measured.
	one, two := open(), open()
	one.observe(chat, times)
	two.observe(code, autoscaler.Times{Load: time.Minute})
	one.write()
	two.write()
	one.write()
	again := open()
	if got := again.Recall(chat); got != times {
		t.Errorf("of chat %+v is known, want %+v", got, times)
	}
	if got := again.Recall(code); got.Load != time.Minute {
		t.Errorf("of code %+v is known", got)
	}
	if got := again.Recall(other); got != (autoscaler.Times{}) {
		t.Errorf("of another model %+v is known", got)
	}
	// When it is wanted is of the function, whatever it runs.
	one.note(string(chat.Name), autoscaler.Times{Rhythm: "text"})
	one.write()
	if got, moved := open().Recall(chat), open().Recall(other); got.Load != times.Load || got.Rhythm != "text" || moved != (autoscaler.Times{Rhythm: "text"}) {
		t.Errorf("with a rhythm %+v is known, and of another model %+v", got, moved)
	}
	path := filepath.Join(dir, "learned.json")
	if raw, err := os.ReadFile(path); err != nil || bytes.Contains(raw, []byte("hunter2")) {
		t.Errorf("the file has a secret: %s, %v", raw, err)
	}
	if log.Len() > 0 {
		t.Errorf("it says %s", log.String())
	}

	// An invalid file is logged once, and replaced.
	for _, bad := range []string{"{", `{"version":1,"functions":{}}`, `{"version":2}`, `[]`, strings.Repeat("x", mostLearnedAt+1), `{"version":2,"checksum":"00000000","value":{"a":{"load":1}}}`} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		log.Reset()
		l := open()
		if got := strings.Count(log.String(), "\n"); got != 1 {
			t.Errorf("%.20q: it says %d lines: %s", bad, got, log.String())
		}
		l.observe(chat, times)
		l.write()
		if got := open().Recall(chat); got != times {
			t.Errorf("%.20q: afterwards %+v is known", bad, got)
		}
	}

	// It is bounded.
	l := open()
	for i := range mostLearned + 50 {
		f := chat
		f.Name = api.FunctionName(fmt.Sprintf("default/f%d", i))
		l.observe(f, times)
	}
	l.write()
	if got := len(open().entries); got != mostLearned {
		t.Errorf("%d functions are kept, want %d", got, mostLearned)
	}
	all := map[string]learnedEntry{"old": {At: time.Now().Add(-learnedFor - time.Hour)}, "new": {At: time.Now()}, "to come": {At: time.Now().Add(time.Hour)}}
	if bound(all, time.Now()); len(all) != 2 || all["to come"].At.After(time.Now()) {
		t.Errorf("of an old one, a new one and one of a time to come %v stay", all)
	}

	// What has another bit, or is cut, is never another time.
	one.write()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	written, err := readLearned(path)
	if err != nil || len(written) == 0 {
		t.Fatal(written, err)
	}
	for n := 0; n < len(raw); n += 1 + len(raw)/500 {
		changed := bytes.Clone(raw)
		changed[n] ^= 1 << (n % 8)
		for _, bad := range [][]byte{raw[:n], changed} {
			if err := os.WriteFile(path, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			if got, err := readLearned(path); err == nil && !maps.Equal(got, written) || err != nil && len(got) > 0 {
				t.Errorf("byte %d: %v is known, %v", n, got, err)
			}
		}
	}

	// Without a folder nothing is kept, and nothing fails.
	none := newLearned("", slog.New(slog.DiscardHandler))
	none.observe(chat, times)
	none.write()
}
