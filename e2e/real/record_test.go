package real

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/go-zeromq/zmq4"
	"github.com/rogpeppe/go-internal/txtar"
)

var record = flag.Bool("record", false, "write what a real server says into the testdata of the packages that replay it")

// recorded is where the tests of functions/runtime, functions/supervise and functions/metrics find it.
const recorded = "../../functions/runtime/testdata/vllm.txt"

const aboutRecord = `What vLLM said to Rouse: "make real NAME=vllm RECORD=1" writes this file. "args" are the words of its command line; "refusal" is all that it
printed when it refused an option of ours, "start" what it printed until it served, "steps" are those that Rouse saw in that; then there are
answers by method, path and status, and events of its KV cache by number, in base64. Paths, ports, ids of processes and answers, and times of lines
are replaced. Of histograms those buckets are left out in which nothing is.

`

// TestRecordVLLM records what one start of vLLM says, if the flag -record is set.
func TestRecordVLLM(t *testing.T) {
	if !*record {
		t.Skip("nothing is recorded: run make real NAME=vllm RECORD=1")
	}
	dir := installed(t, "vllm")
	v := startVLLM(t, dir, vllmManifest("tiny", dir, vllmArgs, "        rouse.dev/adapter-root: "+dir+"/models\n"))
	r := recorder{vllm: v, dir: dir, archive: &txtar.Archive{Comment: []byte(aboutRecord)}}
	r.start()
	r.find()
	events := r.follow()
	for _, path := range []string{"/health", "/version", "/v1/models", "/metrics"} {
		r.keep(path, "")
	}
	r.keep(text, `{"model":"tiny","prompt":"a","max_tokens":1,"temperature":0}`)
	const ask = `{"model":"tiny","temperature":0,"max_tokens":9,"messages":[{"role":"user","content":"the model sleeps"}]}`
	r.keep(chat, ask)
	streamed := strings.Replace(ask, "{", `{"stream":true,"stream_options":{"include_usage":true},`, 1)
	r.add("stream of POST "+chat, r.direct.ask(chat, streamed))
	load := fmt.Sprintf(`{"lora_name":"lora-a","lora_path":%q}`, filepath.Join(dir, "models/lora-a"))
	r.direct.ask("/v1/load_lora_adapter", load)
	prompt := strings.Repeat("a prompt of three blocks ", 16) // a token is a byte, and a block has 128
	for k, model := range []string{"tiny", "lora-a"} {
		r.direct.ask(text, fmt.Sprintf(`{"model":%q,"prompt":%q,"max_tokens":40,"temperature":0}`, model, prompt))
		r.eventually("vLLM publishes what its cache has", func() error {
			if got := len(events()); got <= k {
				return fmt.Errorf("%d batches", got)
			}
			return nil
		})
	}
	r.add("events", strings.Join(events(), "\n"))
	r.keep("/v1/load_lora_adapter", load) // a second time
	r.keep("/v1/unload_lora_adapter", `{"lora_name":"nope"}`)
	r.keep("/sleep?level=1&mode=wait", `{}`)
	_, answer, err := r.direct.send(text, `{"model":"nope","prompt":"a","max_tokens":1}`)
	if err != nil {
		t.Fatal(err)
	}
	r.add("unknown model", answer)
	r.add("later metrics", measured(r.direct.ask("/metrics", "")))
	r.engineDies()
	if err := os.WriteFile(recorded, txtar.Format(r.archive), 0o600); err != nil {
		t.Fatal(err)
	}
}

type recorder struct {
	*vllm
	dir     string // where vLLM is installed
	archive *txtar.Archive
}

// add adds a section, without what is of this machine and this start.
func (r *recorder) add(name, text string) {
	r.archive.Files = append(r.archive.Files, txtar.File{Name: name, Data: []byte(strings.TrimSuffix(r.anonymous(text), "\n") + "\n")})
}

var passing = []struct {
	what *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`[^\s"']*/(site-packages|lib/python3[^/]*|venv)/`), "PYTHON/"},
	{regexp.MustCompile(`/tmp/[\w.-]+`), "TEMPORARY"},
	{regexp.MustCompile(`pid=\d+`), "pid=1"},
	{regexp.MustCompile(`process \[\d+\]`), "process [1]"},
	{regexp.MustCompile(`\d\d-\d\d \d\d:\d\d:\d\d`), "01-01 00:00:00"},
	{regexp.MustCompile(`\[([WEI])\d{4} [\d:.]+`), "[${1}0101 00:00:00.0"},
	{regexp.MustCompile(`\d+\.\d+(it/s| GiB\b| s\b| seconds\b)`), "1.00$1"},
	{regexp.MustCompile(`\d+\.\d+/\d+\.\d+\) GiB`), "1.00/1.00) GiB"},
	{regexp.MustCompile(`\d+\.\d+\.\d+\.\d+:\d+`), "127.0.0.1:1"},
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`), "UUID"},
	{regexp.MustCompile(`"id":"(\w+-)[0-9a-f]+"`), `"id":"${1}1"`},
	{regexp.MustCompile(`"created":\d+`), `"created":1`},
}

func (r *recorder) anonymous(text string) string {
	host, err := os.Hostname()
	if err != nil {
		r.t.Fatal(err)
	}
	text = strings.NewReplacer("\r", "", r.dir+"/models", "/models", filepath.Dir(r.socket), "DIR", r.runtime, "RUNTIME", host, "HOST").Replace(text)
	for _, p := range passing {
		text = p.what.ReplaceAllString(text, p.with)
	}
	return text
}

// serves is the last line of a start.
const serves = "INFO:     Application startup complete.\n"

// ours are lines of the function's own.
var ours = regexp.MustCompile(`(?m)^(listening on |time=).*\n`)

// start has vLLM started, and records its command line and what it prints.
func (r *recorder) start() {
	came := make(chan error, 1)
	go func() {
		_, _, err := r.front.send(text, `{"model":"tiny","prompt":"a","max_tokens":1}`)
		came <- err
	}()
	var args []string
	r.eventually("vLLM is started without a sleep mode", func() error { // later it has another title
		for pid, command := range r.processes("--uds") {
			raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if words := strings.Split(strings.TrimSuffix(string(raw), "\x00"), "\x00"); len(words) > 3 && !strings.Contains(command, "--enable-sleep-mode") {
				args = words[2:] // after Python and the program
				return nil
			}
		}
		return fmt.Errorf("there are %v", r.processes(""))
	})
	if err := <-came; err != nil {
		r.t.Fatal(err)
	}
	r.find()
	out := r.rouse("logs", "tiny")
	const last = "For further information visit"
	at := strings.LastIndex(out, last)
	if at < 0 {
		r.t.Fatalf("vLLM did not refuse its sleep mode:\n%s", out)
	}
	at += strings.Index(out[at:], "\n") + 1
	end := strings.Index(out[at:], serves)
	if end < 0 {
		r.t.Fatalf("vLLM did not say that it serves:\n%s", out)
	}
	var f struct {
		Instances []struct{ Steps []struct{ Name string } }
	}
	if err := json.Unmarshal([]byte(r.rouse("describe", "tiny", "-o", "json")), &f); err != nil {
		r.t.Fatal(err)
	}
	var steps []string
	for _, s := range f.Instances[0].Steps {
		steps = append(steps, s.Name)
	}
	r.add("args", strings.Join(args, "\n"))
	r.add("refusal", ours.ReplaceAllString(out[:at], ""))
	r.add("start", ours.ReplaceAllString(out[at:at+end], "")+serves)
	r.add("steps", strings.Join(steps, "\n"))
}

// keep records an answer.
func (r *recorder) keep(path, body string) {
	method := "POST"
	if body == "" {
		method = "GET"
	}
	status, answer, err := r.direct.send(path, body)
	if err != nil {
		r.t.Fatal(err)
	}
	if path == "/metrics" {
		answer = measured(answer)
	}
	path, _, _ = strings.Cut(path, "?")
	r.add(fmt.Sprintf("%s %s %d", method, path, status), answer)
}

// measured are vLLM's own metrics, without those buckets of histograms that add nothing.
func measured(all string) string {
	var b strings.Builder
	before := ""
	for line := range strings.Lines(all) {
		name, value, _ := strings.Cut(line, "} ")
		bucket := strings.Contains(name, "_bucket{")
		if bucket && !strings.Contains(name, `le="+Inf"`) && (value == before || value == "0.0\n") || strings.Contains(name, "_created") {
			continue
		}
		if before = ""; bucket {
			before = value
		}
		if strings.HasPrefix(line, "vllm:") || strings.HasPrefix(line, "# TYPE vllm:") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// follow subscribes to the events of vLLM's KV cache. The function returns what came so far.
func (r *recorder) follow() func() []string {
	sub := zmq4.NewSub(r.t.Context())
	r.t.Cleanup(func() { sub.Close() })
	if err := sub.Dial("ipc://" + filepath.Join(filepath.Dir(r.socket), "kv.sock")); err != nil {
		r.t.Fatal(err)
	}
	if err := sub.SetOption(zmq4.OptionSubscribe, ""); err != nil {
		r.t.Fatal(err)
	}
	var mu sync.Mutex // guards lines
	var lines []string
	go func() {
		for {
			m, err := sub.Recv()
			if err != nil || len(m.Frames) != 3 {
				return
			}
			mu.Lock()
			lines = append(lines, fmt.Sprintf("%d %s", binary.BigEndian.Uint64(m.Frames[1]), base64.StdEncoding.EncodeToString(m.Frames[2])))
			mu.Unlock()
		}
	}()
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(lines)
	}
}

// engineDies kills vLLM's engine, and records what the rest answers until it ends too.
func (r *recorder) engineDies() {
	for pid := range r.processes("VLLM::EngineCore") {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	r.eventually("vLLM says that its engine is dead", func() error {
		status, answer, err := r.direct.send(text, `{"model":"tiny","prompt":"a","max_tokens":1}`)
		if err != nil || status != 500 {
			return fmt.Errorf("it answers %d, %w: %s", status, err, answer)
		}
		r.add("engine dead", answer)
		return nil
	})
}
