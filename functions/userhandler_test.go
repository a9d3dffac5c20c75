//go:build linux

package functions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/process"
)

// runHandler runs the program in one of its modes before a runtime that echoes path and body.
func runHandler(t *testing.T, mode string, change ...func(*userHandlerConfig)) (*userHandler, *process.Log) {
	t.Helper()
	log := process.NewLog(50, nil)
	cfg := userHandlerConfig{
		Command: []string{os.Args[0]}, Env: append(os.Environ(), "HANDLER_TEST="+mode), Model: "m", Log: log, Start: process.StartChild, Logger: slog.New(slog.DiscardHandler),
		Runtime: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			raw, err := io.ReadAll(r.Body)
			if err != nil || r.Header.Get("Authorization") != "" {
				t.Errorf("the runtime got %v and the header Authorization %q", err, r.Header.Get("Authorization"))
			}
			fmt.Fprintf(w, "%s %s", r.URL.Path, raw)
		}),
	}
	for _, c := range change {
		c(&cfg)
	}
	h, err := newUserHandler(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
		if _, refused := h.Base(); refused == nil || refused.Code != api.CodeShutdown {
			t.Errorf("after the end it is refused with %v, want %s", refused, api.CodeShutdown)
		}
	})
	return h, log
}

func postTo(t *testing.T, h *userHandler, path, body string) (string, error) {
	t.Helper()
	base, refused := h.Base()
	if refused != nil {
		t.Fatal(refused)
	}
	resp, err := http.Post(base+path, "text/plain", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return string(raw), err
}

func TestRequestsGoThroughTheProgram(t *testing.T) {
	h, _ := runHandler(t, "upper")
	if err := h.Await(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := postTo(t, h, "/v1/chat/completions", "hello")
	if want := "/V1/CHAT/COMPLETIONS HELLO for m"; got != want || err != nil {
		t.Errorf("answer %q, %v; want %q", got, err, want)
	}
}

func TestACrashedProgramIsStartedAgain(t *testing.T) {
	h, _ := runHandler(t, "upper")
	if err := h.Await(t.Context()); err != nil {
		t.Fatal(err)
	}
	before, _ := h.Base()
	if _, err := postTo(t, h, "/crash", ""); err == nil {
		t.Error("the program answered although it crashed")
	}
	for base := before; base == before; { // until the end is noticed, which is soon
		base, _ = h.Base()
	}
	if err := h.Await(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := postTo(t, h, "/", "again"); !strings.Contains(got, "AGAIN") {
		t.Errorf("answer %q, %v; want AGAIN in it", got, err)
	}
}

// Clients are told that the handler does not run; the operator is told why.
func TestRefusalsSayWhatIsWrong(t *testing.T) {
	for mode, want := range map[string][]string{
		"exits":   {"exit status 3", "no configuration found"},
		"deaf":    {"$PORT", "waiting for nothing"},
		"missing": {"/no/such/program"},
	} {
		t.Run(mode, func(t *testing.T) {
			h, _ := runHandler(t, mode, func(c *userHandlerConfig) {
				switch mode {
				case "missing":
					c.Command = []string{"/no/such/program"}
				case "deaf":
					c.Command = []string{"/bin/sh", "-c", "echo waiting for nothing; exec sleep 3600"}
					c.StartTimeout = 200 * time.Millisecond
				}
			})
			_, refused := h.Base()
			for refused == nil || refused.Code != api.CodeUnhealthy {
				goruntime.Gosched()
				_, refused = h.Base()
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			err := h.Await(ctx)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("await: %v, want that its context has ended", err)
			}
			for _, w := range want {
				if strings.Contains(refused.Message, w) {
					t.Errorf("the refusal %q tells a client %q", refused.Message, w)
				}
				if !strings.Contains(err.Error(), w) {
					t.Errorf("the reason %q lacks %q", err, w)
				}
			}
		})
	}
}

// The inner door requires the program's key.
func TestTheInnerDoorWantsTheKey(t *testing.T) {
	h, log := runHandler(t, "upper", func(c *userHandlerConfig) {
		c.Command = []string{"/bin/sh", "-c", `echo "at $ROUSE_RUNTIME_URL"; exec ` + os.Args[0]}
	})
	if err := h.Await(t.Context()); err != nil {
		t.Fatal(err)
	}
	inner := ""
	found := errors.New("found")
	if err := log.Follow(t.Context(), -1, func(line string) error { // which may come after the first connection
		if at, ok := strings.CutPrefix(line, "at "); ok {
			inner = at
			return found
		}
		return nil
	}); !errors.Is(err, found) {
		t.Fatal(err)
	}
	resp, err := http.Post(inner+"/v1/chat/completions", "", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without the key: %s, want 401", resp.Status)
	}
}

func TestUserHandlerRefuses(t *testing.T) {
	if _, err := newUserHandler(userHandlerConfig{}); err == nil {
		t.Error("no command: no error")
	}
}
