package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/engine/infer/infertest"
)

// three is a server with three instances of one function that are awake, whose streams take long enough to be cut in the middle.
type three struct {
	*place
	t    *testing.T
	http *http.Client // of the server's administrative paths: a stream does not wait for a command
}

func newThree(t *testing.T) *three {
	t.Helper()
	model := infertest.File(t, infertest.Spec{Dim: 512, Layers: 16, Vocab: 4000, Context: 512})
	manifest := filepath.Join(t.TempDir(), "three.yaml")
	if err := os.WriteFile(manifest, fmt.Appendf(nil, `apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: slow}
spec:
  template:
    metadata: {annotations: {rouse.dev/model: %s, rouse.dev/memory: 256Mi, autoscaling.knative.dev/min-scale: "3", autoscaling.knative.dev/max-scale: "3"}}
    spec: {containerConcurrency: 4, containers: [{image: a, args: [--threads=1]}]}
`, model), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &three{newServer(t, "-f", manifest, "--memory", "1Gi", "--access-log", "json"), t, &http.Client{Transport: api.NewTransport(4)}}
	t.Cleanup(p.http.CloseIdleConnections)
	return p
}

// get reads what an administrative path says.
func (p *three) get(path string, into any) error {
	resp, err := p.http.Get(api.Endpoint(p.server.admin).URL(path))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s %s, %v", path, resp.Status, raw, err) //nolint:errorlint // it may be nil
	}
	return json.Unmarshal(raw, into)
}

// runtimes are the runtimes of the instances that are awake, by instance.
func (p *three) runtimes() (map[string]int, error) {
	var f admin.Function
	if err := p.get(admin.FunctionPath("default/slow", ""), &f); err != nil {
		return nil, err
	}
	awake := map[string]int{}
	for _, i := range f.Instances {
		if i.PID > 0 && i.State == api.Awake {
			awake[string(i.Instance)] = i.PID
		}
	}
	return awake, nil
}

// ready waits until all three are awake.
func (p *three) ready() (awake map[string]int) {
	p.t.Helper()
	if err := retry(func() (err error) {
		if awake, err = p.runtimes(); err == nil && len(awake) != 3 {
			err = fmt.Errorf("%d instances are awake: %v", len(awake), awake)
		}
		return err
	}); err != nil {
		p.t.Fatal(err)
	}
	return awake
}

// with waits until a request is with its nth instance, and returns which it is.
func (p *three) with(request string, nth int) (id string, err error) {
	err = retry(func() error {
		var picks []api.Pick
		if err := p.get(admin.PicksPath(request), &picks); err != nil {
			return err
		}
		if len(picks) < nth {
			return fmt.Errorf("%d instances were chosen: %+v", len(picks), picks)
		}
		id = string(picks[nth-1].Instance)
		return nil
	})
	return id, err
}

// kill ends the runtime of the nth instance of a request, or that instance's own process.
func (p *three) kill(request string, nth int, function bool) {
	id, err := p.with(request, nth)
	if err != nil {
		p.t.Error(err)
		return
	}
	awake, err := p.runtimes()
	pid := awake[id]
	if err == nil && function && pid > 0 {
		pid, err = parentOf(pid)
	}
	if err != nil || pid <= 1 || pid == p.server.cmd.Process.Pid {
		p.t.Errorf("kill instance %d of %s, %s of %v: %v", nth, request, id, awake, err)
		return
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

// signal sends a signal to runtimes.
func signal(s syscall.Signal, pids map[string]int, but string) {
	for id, pid := range pids {
		if id != but {
			_ = syscall.Kill(pid, s)
		}
	}
}

const deathsForm = `{"model":"slow","prompt":"a stream that many die for","stream":true,"ignore_eos":true,"temperature":0,"max_tokens":300}`

// ask reads a stream, calls seen with the number of each event, and returns the text of the events and the codes of the errors.
func (p *three) ask(ctx context.Context, request string, seen func(n int), header ...string) (texts, failures []string, whole bool) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.server.url+"/v1/completions", strings.NewReader(deathsForm))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("X-Request-Id", request)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		if ctx.Err() == nil {
			p.t.Error(err)
		}
		return nil, nil, false
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		data, found := strings.CutPrefix(lines.Text(), "data: ")
		switch {
		case strings.Contains(lines.Text(), "rouse-state"), strings.Contains(lines.Text(), "rouse-moved"):
			p.t.Errorf("the client got %s", lines.Text())
		case data == "[DONE]":
			whole = true
		case found:
			var c struct {
				Choices []struct{ Text string }
				Error   struct{ Code string }
			}
			if err := json.Unmarshal([]byte(data), &c); err != nil {
				p.t.Errorf("event %q: %v", data, err)
			}
			if c.Error.Code != "" {
				failures = append(failures, c.Error.Code)
				continue
			}
			for _, choice := range c.Choices {
				texts = append(texts, choice.Text)
			}
			seen(len(texts))
		}
	}
	return texts, failures, whole
}

// some is how many events come of an instance before it dies.
const some = 10

// dying is ask of a stream whose instances die in mid-answer, so many, the second by its function's process. It is read all the time, so that what comes
// is known to be of the instance that was asked last.
func (p *three) dying(t *testing.T, request string, deaths int) (texts, failures []string, whole bool) {
	t.Helper()
	var come atomic.Int32
	var killer sync.WaitGroup
	killer.Go(func() {
		for nth := 1; nth <= deaths; nth++ {
			if _, err := p.with(request, nth); err != nil {
				t.Error(err)
				return
			}
			due := come.Load() + some
			if err := retry(func() error {
				if n := come.Load(); n < due {
					return fmt.Errorf("%d events of %d have come of instance %d", n, due, nth)
				}
				return nil
			}); err != nil {
				t.Error(err)
				return
			}
			p.kill(request, nth, nth == 2)
		}
	})
	texts, failures, whole = p.ask(t.Context(), request, func(n int) { come.Store(int32(n)) })
	killer.Wait()
	return texts, failures, whole
}

// once checks that a request has one line in the access log, with what is given in it, and that nothing is taken any more.
func (p *three) once(request string, has ...string) {
	p.t.Helper()
	if err := retry(func() error {
		var lines []string
		for line := range strings.Lines(p.server.output()) {
			if strings.Contains(line, `"msg":"request"`) && strings.Contains(line, `"request":"`+request+`"`) {
				lines = append(lines, line)
			}
		}
		if len(lines) != 1 {
			return fmt.Errorf("%s has %d lines in the access log: %q", request, len(lines), lines)
		}
		for _, s := range has {
			if !strings.Contains(lines[0], s) {
				return fmt.Errorf("the line of %s lacks %s: %s", request, s, lines[0])
			}
		}
		return p.counts("slow", 0, 0)
	}); err != nil {
		p.t.Error(err)
	}
}

// TestDeathsInOneStream kills what generates a stream, and what goes on with it: once before its first token, again and again, before the one that is
// to go on has made a token. The client gets what it would have got; after too many deaths one error; and a client that leaves leaves nothing.
func TestDeathsInOneStream(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	p := newThree(t)
	p.ready()
	want, failures, whole := p.ask(t.Context(), "undisturbed", func(int) {})
	if !whole || len(failures) > 0 || len(want) < 200 {
		t.Fatalf("undisturbed: %d events, %q, whole %v", len(want), failures, whole)
	}
	p.once("undisturbed")
	same := func(t *testing.T, got, failures []string, whole bool) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" || len(failures) > 0 || !whole {
			t.Errorf("errors %q, whole %v (-undisturbed +killed):\n%s", failures, whole, diff)
		}
	}
	t.Run("what a client says of a state is nothing", func(t *testing.T) {
		for _, state := range []string{control.StateNew, control.StateReplay + "cmpl-A:1::0:m:1,2,3"} {
			got, failures, whole := p.ask(t.Context(), "forged", func(int) {}, control.HeaderState, state, control.HeaderTenant, "another", control.HeaderResume, "off")
			same(t, got, failures, whole)
		}
	})
	t.Run("before its first token", func(t *testing.T) {
		pids := p.ready()
		signal(syscall.SIGSTOP, pids, "")
		go func() {
			p.kill("early", 1, false)
			signal(syscall.SIGCONT, pids, "")
		}()
		got, failures, whole := p.ask(t.Context(), "early", func(int) {})
		same(t, got, failures, whole)
		p.once("early", `"attempts":2`)
	})
	t.Run("three deaths", func(t *testing.T) {
		p.ready()
		got, failures, whole := p.dying(t, "chain", 3)
		same(t, got, failures, whole)
		p.once("chain", `"resumed":3`, `"output_tokens":300`)
	})
	t.Run("before the next one's first token", func(t *testing.T) {
		pids := p.ready()
		killed := make(chan struct{})
		got, failures, whole := p.ask(t.Context(), "hand", func(n int) {
			if n != 7 {
				return
			}
			first, err := p.with("hand", 1)
			if err != nil {
				t.Error(err)
			}
			signal(syscall.SIGSTOP, pids, first)
			p.kill("hand", 1, false)
			go func() {
				defer close(killed)
				p.kill("hand", 2, false) // it has been asked, and can't have answered
				signal(syscall.SIGCONT, pids, first)
			}()
		})
		<-killed
		same(t, got, failures, whole)
		p.once("hand", `"attempts":3`, `"resumed":1`)
	})
	t.Run("four deaths", func(t *testing.T) {
		p.ready()
		got, failures, whole := p.dying(t, "many", 4)
		if len(failures) != 1 || failures[0] != api.CodeStreamCut || whole || len(got) < 4*some || len(got) >= len(want) || cmp.Diff(want[:len(got)], got) != "" {
			t.Errorf("errors %q, whole %v, %d events: %q", failures, whole, len(got), got)
		}
		p.once("many", `"resumed":3`, `"code":"stream_cut"`)
	})
	t.Run("its client leaves meanwhile", func(t *testing.T) {
		pids := p.ready()
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		p.ask(ctx, "left", func(n int) {
			if n != 5 {
				return
			}
			first, err := p.with("left", 1)
			if err != nil {
				t.Error(err)
			}
			signal(syscall.SIGSTOP, pids, first)
			p.kill("left", 1, false)
			if _, err := p.with("left", 2); err != nil { // which is stopped
				t.Error(err)
			}
			leave()
		})
		p.once("left", `"status":499`)
		signal(syscall.SIGCONT, pids, "")
		p.ready()
		got, failures, whole := p.ask(t.Context(), "after", func(int) {})
		same(t, got, failures, whole)
		p.once("after")
	})
}
