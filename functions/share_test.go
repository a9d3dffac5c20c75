package functions

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/fetch"
)

// TestModelsShared: an instance fetches its model's file from another instance, also if its own port is taken.
func TestModelsShared(t *testing.T) {
	content := bytes.Repeat([]byte("weights "), 3<<17)
	var sent atomic.Int64
	files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.Header.Get("Range"), "=0-0") {
			sent.Add(1)
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}))
	defer files.Close()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("sixteen bytes or more"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	l.Close()
	var log bytes.Buffer
	for i := range 2 {
		m, err := newModels(Config{
			Function: api.Function{Runtime: api.Runtime{Kind: api.RuntimeVLLM, Model: fmt.Sprintf("%s/m#sha256=%x", files.URL, sha256.Sum256(content))}}, Models: t.TempDir(),
			Env:   []string{"ROUSE_SHARE_PEERS=" + at, "ROUSE_SHARE_LISTEN=" + at},
			Share: fetch.Share{SecretFile: secret}, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer m.release()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			m.share(ctx, slog.New(slog.NewTextHandler(&log, nil)))
		}()
		defer func() { cancel(); <-ended }()
		if i == 0 {
			answers(t, at)
		} else {
			<-ended // its port is taken
			sent.Store(0)
		}
		if _, err := m.prepare(t.Context(), func(float64) {}); err != nil {
			t.Fatal(err)
		}
		if n := sent.Load(); (n == 0) != (i == 1) {
			t.Errorf("instance %d: the source was asked %d times", i, n)
		}
	}
	if !strings.Contains(log.String(), "models for other caches (--share-listen) are not served") {
		t.Errorf("log: %s", log.String())
	}
}

// answers waits until a server listens.
func answers(t *testing.T, at string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; {
		c, err := net.Dial("tcp", at)
		if err == nil {
			c.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}
