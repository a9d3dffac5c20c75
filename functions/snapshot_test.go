package functions_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// fakeCRIU obeys criu's command line: an image is the process's own command line, which restore runs again.
const fakeCRIU = `#!/bin/sh
case $1 in
dump) tr '\0' '\n' <"/proc/$3/cmdline" >"$5/pages.img" ;;
restore)
	cd "$3"; set --
	while IFS= read -r word; do set -- "$@" "$word"; done <pages.img
	FUNCTION_TEST=runtime exec "$@" ;;
esac
`

// said is a log that tells when it has a text.
type said struct {
	text  string
	heard chan struct{} // closed by Write
}

func (s *said) Write(line []byte) (int, error) {
	if strings.Contains(string(line), s.text) {
		select {
		case <-s.heard:
		default:
			close(s.heard)
		}
	}
	return len(line), nil
}

func (s *said) await(t *testing.T) {
	t.Helper()
	select {
	case <-s.heard:
	case <-time.After(30 * time.Second):
		t.Fatalf("it does not log %q within 30 s", s.text)
	}
}

// TestSnapshot: a function that says so has a snapshot, and its next start restores it.
func TestSnapshot(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "criu"), []byte(fakeCRIU), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	i := newInstance(t)
	made, restored := &said{"made a snapshot", make(chan struct{})}, &said{"restoring a snapshot", make(chan struct{})}
	starts := filepath.Join(bin, "starts")
	cfg := i.config("-starts=" + starts)
	cfg.Function.Snapshot, cfg.Models = true, filepath.Join(bin, "cache")
	cfg.Logger = slog.New(slog.NewMultiHandler(slog.NewTextHandler(made, nil), slog.NewTextHandler(restored, nil)))
	stop := i.run(cfg)
	i.until(api.Awake)
	made.await(t)
	for st := i.until(api.Awake); st.Snapshot == nil || st.Snapshot.Size == 0; { // it is reported
		st = i.until(api.Awake)
	}
	stop()
	if raw, _ := os.ReadFile(starts); len(raw) != 1 {
		t.Errorf("%d starts, want one", len(raw))
	}
	i = newInstance(t)
	cfg.Listen, cfg.Events = i.at, api.Endpoint(i.receive.URL)
	i.run(cfg)
	i.until(api.Awake)
	restored.await(t)
	i.wantAnswer()
	i = newInstance(t)
	cfg.Listen, cfg.Events, cfg.Function.CanaryTokens = i.at, api.Endpoint(i.receive.URL), -1
	i.run(cfg)
	if st := i.until(api.Awake); st.Snapshot == nil || !strings.Contains(st.Snapshot.Missing, "no canary") {
		t.Errorf("without a canary the snapshot is reported as %+v", st.Snapshot)
	}
}
