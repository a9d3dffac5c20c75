package jsonlog_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/internal/jsonlog"
)

func TestNew(t *testing.T) {
	var out strings.Builder
	log := jsonlog.New(&out, slog.LevelWarn).With("every", time.Minute)
	log.Info("not said")
	log.Warn("lost", "after", 3273*time.Millisecond, slog.Group("of", "wait", 2*time.Second), "n", 5)
	if _, got, _ := strings.Cut(out.String(), `"msg":`); got != `"lost","every":"1m0s","after":"3.273s","of":{"wait":"2s"},"n":5}`+"\n" {
		t.Errorf("got %s", out.String())
	}
}
