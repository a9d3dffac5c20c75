package activator

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/activator/keys"
	"github.com/rouse-dev/rouse/activator/peer"
	"github.com/rouse-dev/rouse/activator/queue"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config/apikey"
)

// logText is a log that can be read while it is written.
type logText struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestAccessLog: one line per request, whatever its outcome, without its content, its answer or the key.
func TestAccessLog(t *testing.T) {
	out := &logText{}
	log, err := AccessLog("json", out)
	if err != nil {
		t.Fatal(err)
	}
	s := keys.NewStore(nil)
	s.Load(&apikey.File{Keys: []apikey.Key{{Name: "alice", Tenant: "acme", Hash: apikey.Hash("k-alice")}}})
	b := startBench(t, nil, func(d *Deps) { d.Keys, d.Access = s, log })
	i := b.instance(b.function("m", nil), "m-0001", api.Awake)
	i.chat = func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		switch {
		case bytes.Contains(raw, []byte("cut")):
			streamEvents(w, "data: "+`{"choices":[{"delta":{"content":"a"}}]}`+"\n\n")
			panic(http.ErrAbortHandler)
		case bytes.Contains(raw, []byte(`"stream":true`)):
			streamEvents(w, "data: "+`{"choices":[{"delta":{"content":"the answer"}}]}`+"\n\n", "data: "+`{"choices":[],"usage":{"prompt_tokens":30,"completion_tokens":10}}`+"\n\n", "data: [DONE]\n\n")
		default:
			_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"the answer"}}],"usage":{"prompt_tokens":3,"completion_tokens":1}}`)
		}
	}
	for _, body := range []string{`{"model":"m","messages":[{"content":"the question"}]}`, `{"model":"m","stream":true,"messages":[{"content":"the question"}]}`, `{"model":"m","stream":true,"user":"cut"}`, `{"model":"other"}`, `{"model":`} {
		b.post(chatPath, body, "Authorization", "Bearer k-alice")
	}
	b.post(chatPath, `{"model":"m"}`)
	b.post("/v1/embeddings", `{"model":"`+strings.Repeat("é", 400)+`"}`, "Authorization", "Bearer k-alice")
	b.eventually("all lines are there", func() bool { return strings.Count(out.String(), "\n") == 7 })
	for _, secret := range []string{"question", "the answer", "k-alice"} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("the log has %q in it:\n%s", secret, out.String())
		}
	}
	type line struct {
		Level, Client, Tenant, Key, Method, Path, Model, Function, Instance, Code string
		Status                                                                    int
		Stream                                                                    bool
		Input                                                                     *int     `json:"input_tokens"`
		Output                                                                    *int     `json:"output_tokens"`
		Took                                                                      *float64 `json:"duration_ms"`
		First                                                                     *float64 `json:"ttft_ms"`
	}
	ptr := func(n int) *int { return &n }
	alice := line{Level: "INFO", Client: peer.Named("acme"), Tenant: "acme", Key: "alice", Method: "POST", Path: chatPath}
	served := alice
	served.Model, served.Function, served.Instance, served.Status = "m", "default/m", "m-0001", 200
	plain, stream, cut, unknown, broken, nobody, long := served, served, served, alice, alice, alice, alice
	plain.Input, plain.Output = ptr(3), ptr(1)
	stream.Input, stream.Output, stream.Stream = ptr(30), ptr(10), true
	cut.Level, cut.Status, cut.Code, cut.Stream, cut.Input, cut.Output = "ERROR", 502, api.CodeStreamCut, true, ptr(10), ptr(1)
	unknown.Model, unknown.Status, unknown.Code = "other", 404, api.CodeModelNotFound
	broken.Status = 400
	nobody.Client, nobody.Tenant, nobody.Key, nobody.Status, nobody.Code = "127.0.0.1", "", "", 401, api.CodeInvalidKey
	long.Path, long.Model, long.Status, long.Code = "/v1/embeddings", strings.Repeat("é", 128)+"…", 404, api.CodeModelNotFound
	want := []line{plain, stream, cut, unknown, broken, nobody, long}
	var got []line
	for in := bufio.NewScanner(strings.NewReader(out.String())); in.Scan(); {
		var l line
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			t.Fatalf("%s: %v", in.Bytes(), err)
		}
		if l.Took == nil || *l.Took <= 0 || (l.First != nil) != (l.Instance != "") {
			t.Errorf("duration or time to first byte: %s", in.Bytes())
		}
		l.Took, l.First = nil, nil
		got = append(got, l)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if _, err := AccessLog("text", out); err == nil {
		t.Error("another format was taken")
	}
}

// TestLinesComeTogether: lines are written a tenth of a second after the first of them, or when Flush is called.
func TestLinesComeTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var writes []string
		l := NewLines(writerFunc(func(p []byte) (int, error) {
			writes = append(writes, string(p))
			return len(p), nil
		}))
		for _, line := range []string{"a\n", "b\n"} {
			_, _ = io.WriteString(l, line)
			time.Sleep(60 * time.Millisecond)
		}
		_, _ = io.WriteString(l, "c\n")
		l.Flush()
		if diff := cmp.Diff([]string{"a\nb\n", "c\n"}, writes); diff != "" {
			t.Error(diff)
		}
		time.Sleep(time.Second)
	})
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestCostOfRequests: a request's GPU time is the same in its line of the log, in its last pick, in the report to the autoscaler,
// and in the trailer. Only a caller that may read the metrics gets the trailer.
func TestCostOfRequests(t *testing.T) {
	out := &logText{}
	log, err := AccessLog("json", out)
	if err != nil {
		t.Fatal(err)
	}
	sums := make(chan float64, 1) // the first one told
	b := startBench(t, nil, func(d *Deps) {
		d.Emitter = api.EmitterFunc(func(e api.Event) {
			var u api.Usage
			if e.Type == api.EventUsage && json.Unmarshal(e.Data, &u) == nil && len(u.Uses) == 1 {
				select {
				case sums <- u.Uses[0].GPUSeconds:
				default:
				}
			}
		})
		d.Access, d.Lists = log, func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer admin" }
	})
	f := b.function("m", nil)
	b.instance(f, "m-0001", api.Awake).chat = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "2")
		_, _ = io.WriteString(w, "{}")
	}
	b.a.Hold(f, "m-0001", 2)
	told := 0.0
	for k, header := range [][]string{{"Te", "trailers", "Authorization", "Bearer admin"}, {"Te", "trailers"}, {"Authorization", "Bearer admin"}} {
		resp, body := b.post(chatPath, `{"model":"m"}`, header...)
		b.eventually("the line is there", func() bool { return strings.Count(out.String(), "\n") == k+1 })
		var line struct {
			GPUSeconds float64 `json:"gpu_seconds"`
		}
		if err := json.Unmarshal([]byte(strings.Split(out.String(), "\n")[k]), &line); err != nil || line.GPUSeconds <= 0 || body != "{}" {
			t.Fatalf("%q, %v: %s", body, err, out.String())
		}
		picks := b.a.Picks(resp.Header.Get("X-Request-Id"))
		if len(picks) != 1 || math.Abs(picks[0].GPUSeconds-line.GPUSeconds) > 1e-6 {
			t.Errorf("the picks are %+v, and the line has %g", picks, line.GPUSeconds)
		}
		want := ""
		if k == 0 {
			want = strconv.FormatFloat(line.GPUSeconds, 'f', 6, 64)
		}
		if got := resp.Trailer.Get(headerGPUSeconds); got != want {
			t.Errorf("request %d: the trailer is %q, want %q", k, got, want)
		}
		told += picks[0].GPUSeconds
	}
	b.a.TellUse(time.Now())
	if sum := <-sums; math.Abs(sum-told) > 1e-9 {
		t.Errorf("the autoscaler is told of %g GPU-seconds, want %g", sum, told)
	}
}

// BenchmarkAccessLog measures the line of a request.
func BenchmarkAccessLog(b *testing.B) {
	log, _ := AccessLog("json", io.Discard)
	r, _ := http.NewRequest(http.MethodPost, "http://x"+chatPath, nil)
	c := &call{a: &Activator{deps: Deps{Access: log}}, f: &queue.Function{Name: "default/m"}}
	c.req = request{in: r, id: "0123456789abcdef", peer: peer.Peer{Client: "192.0.2.1"}}
	c.req.Model, c.reply.status, c.reply.answered = "m", 200, 200
	b.ReportAllocs()
	for b.Loop() {
		c.logAccess()
	}
}
