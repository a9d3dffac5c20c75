package proxy_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/proxy"
)

// TestStreamStateGoesToOurRuntimeAlone: our own runtime is asked for the state of a stream. If it is cut the connection ends, so that
// the activator continues it elsewhere. Other runtimes are not asked, and a handler's requests have no state.
func TestStreamStateGoesToOurRuntimeAlone(t *testing.T) {
	const event = control.StateComment + "1,2\ndata: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"
	for name, test := range map[string]struct {
		state string
		cfg   func(*proxy.Config)
		told  string // by the runtime
		why   string // what it does not report
		event bool   // the cut is reported by an event
	}{
		"ours":           {"new", func(c *proxy.Config) { c.Tenants = true }, "new", "", false},
		"ours, not told": {"", func(c *proxy.Config) { c.Tenants = true }, "", "", true},
		"another":        {"new", func(*proxy.Config) {}, "", "", true},
		"a handler's":    {"new", func(c *proxy.Config) { c.Tenants, c.Inside = true, true }, "", "", true},
		"a transport":    {"new", func(c *proxy.Config) { c.States = true }, "new", "", false},
		"it says no":     {"new", func(c *proxy.Config) { c.States = true }, "new", "the field stop does not allow that", true},
		"another's no":   {"new", func(*proxy.Config) {}, "", "a word of its own", true},
	} {
		t.Run(name, func(t *testing.T) {
			told := make(chan string, 1)
			b := set(t, func(w http.ResponseWriter, r *http.Request) {
				told <- r.Header.Get(control.HeaderState)
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "text/event-stream")
				if test.why != "" {
					w.Header().Set(control.HeaderState, test.why)
				}
				_, _ = io.WriteString(w, event)
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}, test.cfg)
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.URL+"/v1/chat/completions", strings.NewReader(`{"stream":true}`))
			if err != nil {
				t.Fatal(err)
			}
			if test.state != "" {
				r.Header.Set(control.HeaderState, test.state)
			}
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			raw, err := io.ReadAll(resp.Body)
			if got := <-told; got != test.told {
				t.Errorf("the runtime was told %q, want %q", got, test.told)
			}
			switch rest, found := strings.CutPrefix(string(raw), event); {
			case !found:
				t.Errorf("got %q", raw)
			case test.event && (err != nil || !strings.Contains(rest, api.CodeStreamCut) || strings.Contains(rest, "has a handler") != (name == "a handler's")):
				t.Errorf("got %q, %v; want an error event", rest, err)
			case test.told != "" && !strings.Contains(rest, test.why), test.told == "" && test.why != "" && strings.Contains(rest, test.why), resp.Header.Get(control.HeaderState) != "":
				t.Errorf("got %v %q, want it with the reason %q if it is one", resp.Header, rest, test.why)
			case !test.event && (!errors.Is(err, io.ErrUnexpectedEOF) || rest != ""):
				t.Errorf("got %q, %v; want an answer that breaks off", rest, err)
			}
			if o := b.wantIdle(t); o.Code != api.CodeStreamCut {
				t.Errorf("outcome %+v", o)
			}
		})
	}
}

// TestStreamOfAnotherRuntime: a runtime that can't continue a stream does not get the request: it would answer from the beginning, and
// the client has a part.
func TestStreamOfAnotherRuntime(t *testing.T) {
	b := set(t, func(http.ResponseWriter, *http.Request) { t.Error("the runtime is asked") })
	for _, state := range []string{"id:1::0:m:1,2", control.StateScores + control.StateReplay + "id:1::0:m:1*1"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.URL+"/v1/chat/completions", strings.NewReader(`{"stream":true}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(control.HeaderState, state)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(resp.Body)
		if resp.Body.Close(); err != nil || resp.StatusCode != http.StatusBadRequest || code(t, string(raw)) != api.CodeStreamCut {
			t.Errorf("got %s %q, %v; want it refused", resp.Status, raw, err)
		}
		b.wantIdle(t)
	}
}
