package control

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	"github.com/rouse-dev/rouse/api"
)

// TestAnInstanceThatIsNotOurs checks that a foreign instance can neither redirect its caller nor fill its memory.
func TestAnInstanceThatIsNotOurs(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("asked elsewhere: %s %s", r.Method, r.URL)
	}))
	defer elsewhere.Close()
	endless := false
	instance := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !endless {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
			return
		}
		_, _ = io.WriteString(w, `{"message":"`)
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, strings.Repeat("x", 64<<10)); err != nil {
				return
			}
		}
	}))
	defer instance.Close()
	c, at := New(api.NewTransport(1), func() string { return "its own" }), api.Endpoint(instance.URL)
	var refused *api.Error
	if _, err := c.State(t.Context(), at); !errors.As(err, &refused) || refused.Status != http.StatusTemporaryRedirect {
		t.Errorf("state: got %v, want a refusal", err)
	}
	if _, err := c.Wake(t.Context(), at, api.Grant{}); !errors.As(err, &refused) {
		t.Errorf("wake: got %v, want a refusal", err)
	}
	if body, err := c.Logs(t.Context(), at, 1, false); err == nil {
		body.Close()
		t.Error("logs: a redirection was followed")
	}
	endless = true
	if _, err := c.State(t.Context(), at); err == nil || !strings.Contains(err.Error(), "at most 1048576 bytes") {
		t.Errorf("an endless status: got %v", err)
	}
}

// TestNobodyThere checks that the error names the socket as people write it and wraps the original error.
func TestNobodyThere(t *testing.T) {
	at := api.Endpoint("unix:" + t.TempDir() + "/fn.sock")
	_, err := New(api.NewTransport(1), nil).State(t.Context(), at)
	if err == nil || !strings.HasPrefix(err.Error(), "call "+string(at)+": dial unix ") || strings.Contains(err.Error(), "http://") || !errors.Is(err, syscall.ENOENT) {
		t.Errorf("got %v, want that %s can't be reached, without a stand-in", err, at)
	}
}
