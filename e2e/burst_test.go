package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// burst is many requests at once, each with an answer of its own, so that a lost,
// a repeated and a swapped answer are all seen.
type burst struct {
	url    string
	models []string // in turn
	n      int
	fake   bool   // the models are fake runtimes, not pico
	stream bool   // answers come as a stream
	fault  string // what the fake runtime is to do wrong
	more   int    // tokens that each of its answers is longer

	answered sync.WaitGroup
	errs     []error // one per request; read after answered
}

// words can be paired in any way: pico echoes every pair.
var words = strings.Fields("red blue apple pear sun moon king queen stone paper milk bread")

// question is the body of request i and the text of its answer.
func (b *burst) question(i int) (body []byte, want string) {
	ask := map[string]any{"model": b.models[i%len(b.models)], "stream": b.stream, "temperature": 0}
	if b.fake {
		tokens := make([]string, b.more+1+i%40)
		ask["prompt"], ask["max_tokens"] = "count", len(tokens)
		for k := range tokens {
			tokens[k] = fmt.Sprintf("t%d", k)
		}
		want = strings.Join(tokens, " ")
		if b.stream {
			want += " "
		}
	} else {
		want = words[i%len(words)] + " " + words[(i/len(words)+1)%len(words)]
		ask["messages"] = []map[string]string{{"role": "user", "content": "echo " + want}}
	}
	body, _ = json.Marshal(ask) // strings and numbers always marshal
	return body, want
}

// begin sends every request; it does not wait for the answers.
func (b *burst) begin() {
	b.errs = make([]error, b.n)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: b.n}, Timeout: 2 * patience}
	b.answered.Add(b.n)
	for i := range b.n {
		go func() {
			defer b.answered.Done()
			b.errs[i] = b.ask(client, i)
		}()
	}
}

func (b *burst) ask(client *http.Client, i int) error {
	body, want := b.question(i)
	path := "/v1/chat/completions"
	if b.fake {
		path = "/v1/completions"
	}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, b.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if b.fault != "" {
		req.Header.Set("X-Fault", b.fault)
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		raw, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("request %d: %s: %s", i, resp.Status, raw)
	}
	got, err := text(resp.Body, b.stream)
	if err != nil {
		return fmt.Errorf("request %d: %w", i, err)
	}
	if got != want {
		return fmt.Errorf("request %d: answered %q, want %q: %w", i, got, want, errWrong)
	}
	return nil
}

// errWrong is an answer that looks good and is not.
var errWrong = errors.New("a wrong answer")

// completion is the part of an answer, or of a chunk of it, that the test reads.
type completion struct {
	Choices []struct {
		Text    string
		Message struct{ Content string }
		Delta   struct{ Content string }
	}
	Error *struct{ Message string }
}

func (c completion) text() string {
	var s string
	for _, choice := range c.Choices {
		s += choice.Text + choice.Message.Content + choice.Delta.Content
	}
	return s
}

// text reads the text of an answer. A stream without [DONE] is an error.
func text(r io.Reader, stream bool) (string, error) {
	if !stream {
		var c completion
		if err := json.NewDecoder(r).Decode(&c); err != nil {
			return "", fmt.Errorf("read the answer: %w", err)
		}
		return c.text(), nil
	}
	var s string
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		data, found := strings.CutPrefix(lines.Text(), "data: ")
		if !found {
			continue // a comment or an empty line
		}
		if data == "[DONE]" {
			return s, nil
		}
		var c completion
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			return s, fmt.Errorf("read %q: %w", data, err)
		}
		if c.Error != nil {
			return s, fmt.Errorf("after %q: error event: %s", s, c.Error.Message)
		}
		s += c.text()
	}
	if lines.Err() != nil {
		return s, lines.Err()
	}
	return s, fmt.Errorf("the stream ended cleanly after %q, without [DONE]: %w", s, errWrong)
}

// burst [-n N] [-fake] [-stream] [-fault F] [-more N] MODEL …: send N requests at once, to the models in turn.
func burstCommand(ts *testscript.TestScript, neg bool, args []string) {
	b := &burst{url: ts.Getenv("URL")}
	flags := flag.NewFlagSet("burst", flag.ContinueOnError)
	flags.IntVar(&b.n, "n", 20, "")
	flags.BoolVar(&b.fake, "fake", false, "")
	flags.BoolVar(&b.stream, "stream", false, "")
	flags.StringVar(&b.fault, "fault", "", "")
	flags.IntVar(&b.more, "more", 0, "")
	ts.Check(flags.Parse(args))
	if b.models = flags.Args(); neg || len(b.models) == 0 {
		ts.Fatalf("burst: %v", errUsage)
	}
	p := placeOf(ts)
	p.bursts = append(p.bursts, b)
	b.begin()
}

// burstwait [honest]: wait for every answer of the bursts. All must be right; with
// "honest" requests may fail, but none may look answered with anything but its answer.
func burstWait(ts *testscript.TestScript, neg bool, args []string) {
	p := placeOf(ts)
	if neg || len(p.bursts) == 0 || len(args) > 1 || len(args) == 1 && args[0] != "honest" {
		ts.Fatalf("burstwait: %v", errUsage)
	}
	for _, b := range p.bursts {
		b.answered.Wait()
		failed := 0
		for _, err := range b.errs {
			switch {
			case errors.Is(err, errWrong) || err != nil && len(args) == 0:
				ts.Fatalf("%v", err)
			case err != nil:
				failed++
			}
		}
		ts.Logf("%d answered, %d refused or cut", b.n-failed, failed)
	}
	p.bursts = nil
}

// stats are the counters of a fake runtime.
type stats struct{ Generations, Running, Left int }

// stats asks the fake runtime of a function, at the port on its command line.
func (p *place) stats(name string) (stats, error) {
	var s stats
	i, err := p.instance(name)
	if err != nil {
		return s, err
	}
	cmdline, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(i.PID), "cmdline"))
	if err != nil {
		return s, err
	}
	words := strings.Split(string(cmdline), "\x00")
	for k, word := range words {
		if strings.TrimLeft(word, "-") != "port" || k+1 == len(words) {
			continue
		}
		client := http.Client{Timeout: 10 * time.Second}
		resp, err := client.Get("http://127.0.0.1:" + words[k+1] + "/stats")
		if err != nil {
			return s, err
		}
		defer resp.Body.Close()
		return s, json.NewDecoder(resp.Body).Decode(&s)
	}
	return s, fmt.Errorf("the runtime %q has no -port", cmdline)
}
