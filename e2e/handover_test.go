package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
	"github.com/rouse-dev/rouse/internal/relay"
)

// texts are those of the events of a stream, without what each server says of itself.
func (e *engineServer) texts(t *testing.T, body string, state *relay.State, seen func(n int)) (texts []string, whole bool) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.url+"/v1/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(control.HeaderState, state.Header())
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		raw, _ := io.ReadAll(resp.Body)
		t.Fatalf("%s: %s", resp.Status, raw)
	}
	event := ""
	for lines := bufio.NewReader(resp.Body); ; {
		line, err := lines.ReadString('\n')
		if event += line; line == "\n" {
			data := strings.TrimSpace(strings.TrimPrefix(string(state.Take([]byte(event))), "data: "))
			event = ""
			if data == "[DONE]" {
				return texts, true
			}
			_, choices, _ := strings.Cut(data, `"choices":`)
			texts = append(texts, choices)
			seen(len(texts))
		}
		if err != nil {
			return texts, false
		}
	}
}

// TestHandOverIsKilled: an engine is killed while it writes what it has computed of a stream for another one. That one goes on with the stream as if
// there had been nothing to read, and reads nothing of the half file.
func TestHandOverIsKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	p, err := newPlace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	})
	folder := t.TempDir()
	model := infertest.File(t, infertest.Spec{Dim: 512, Layers: 16, Vocab: 4000, Context: 1024})
	args := []string{"--model", model, "--name", "m", "--threads", "1", "--conversation-folder", folder}
	from, to := p.engine(t, args...), p.engine(t, args...)
	body := func(n int) string {
		return fmt.Sprintf(`{"model":"m","prompt":"%d %s","stream":true,"ignore_eos":true,"temperature":0,"max_tokens":120}`, n, strings.Repeat("what was said before. ", 60))
	}
	files := func(pattern string) int {
		found, err := filepath.Glob(filepath.Join(folder, "conversations", pattern))
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	for n := range 40 {
		var state relay.State
		finished := files("*.kv")
		begun, whole := from.texts(t, body(n), &state, func(n int) {
			if n != 30 {
				return
			}
			slept := make(chan struct{}) // closed when the move has ended
			go func() {
				defer close(slept)
				_, _, _ = from.post(t.Context(), "/sleep?level=1&mode=move", "") // it may be killed
			}()
			for !from.killed {
				select {
				case <-slept: // nothing was written, or too fast
					return
				default:
				}
				if files("*.kv.tmp") == 0 {
					continue
				}
				_ = from.cmd.Process.Signal(syscall.SIGSTOP)
				if files("*.kv.tmp") == 0 || files("*.kv") > finished { // it was too late
					_ = from.cmd.Process.Signal(syscall.SIGCONT)
					<-slept
					return
				}
				from.killed = true
				_ = from.cmd.Process.Kill()
			}
			<-slept
		})
		if whole {
			t.Fatal("the stream was not cut")
		}
		if !from.killed {
			if status, raw, err := from.post(t.Context(), "/wake_up", ""); err != nil || status != http.StatusOK {
				t.Fatalf("wake: %d %s, %v", status, raw, err)
			}
			continue
		}
		if files("*.kv.tmp") != 1 {
			t.Fatal("there is no half file")
		}
		rest, whole := to.texts(t, body(n), &state, func(int) {})
		read, err := to.metric("rouse_engine_conversation_blocks_recalled_total")
		if err != nil || read != 0 {
			t.Errorf("%v blocks were read, %v", read, err)
		}
		want, all := to.texts(t, body(n), &relay.State{}, func(int) {})
		if diff := cmp.Diff(want, append(begun, rest...)); diff != "" || !whole || !all || len(begun) < 30 || len(rest) == 0 {
			t.Errorf("%d and %d events, whole %v %v (-undisturbed +killed):\n%s", len(begun), len(rest), whole, all, diff)
		}
		t.Logf("killed in the %d. hand-over, behind %d events", n+1, len(begun))
		return
	}
	t.Error("no hand-over could be met")
}
