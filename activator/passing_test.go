package activator

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/config/apikey"
	"github.com/rouse-dev/rouse/internal/inbound"
	"github.com/rouse-dev/rouse/internal/relay"
)

// plainBench starts a sleeping function that is no model server, and a server that sends all requests to it.
func plainBench(t *testing.T, serve http.HandlerFunc) (*fakeInstance, string) {
	b := startBench(t, nil)
	name := b.function("any", func(f *api.Function) { f.Runtime.Kind = api.RuntimeHTTP })
	i := b.instance(name, "any-0001", api.Asleep)
	i.chat = serve
	b.grant(i, 1)
	door := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { b.a.ServeFunction(w, r, name) }))
	door.Config.Protocols = inbound.Protocols()
	door.Start()
	t.Cleanup(door.Close)
	return i, strings.TrimPrefix(door.URL, "http://")
}

// echoes upgrades a connection and sends back what comes.
func echoes(w http.ResponseWriter, _ *http.Request) {
	conn, both, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	_, _ = io.Copy(conn, both)
}

func TestAnUpgradeIsHeldUntilTheInstanceIsAwake(t *testing.T) {
	const query = "a;b&c=50%" // which Go can't parse
	i, door := plainBench(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != query {
			t.Errorf("the container got the query %q", r.URL.RawQuery)
		}
		echoes(w, r)
	})
	wantEcho(t, i, door, "/ws?"+query)
}

// wantEcho opens a WebSocket, for which the instance is woken, and wants what it sends.
func wantEcho(t *testing.T, i *fakeInstance, door, path string, header ...string) http.Header {
	t.Helper()
	conn, err := net.Dial("tcp", door)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n%s\r\n", path, strings.Join(header, ""))
	from := bufio.NewReader(conn)
	resp, err := http.ReadResponse(from, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get(headerInstance) != string(i.id) {
		t.Fatalf("got %+v (%v)", resp, err)
	}
	for _, word := range []string{
		"hello\n", `{"type":"response.done","response":{"usage":{"input_tokens":4,"output_tokens":3,"input_token_details":{"cached_tokens":1}}}}` + "\n",
		`{"type":"response.text.done","text":"\"usage\":{\"input_tokens\":90}"}` + "\n",
		`{"usage":null}{"type":"transcription.done","usage": {"prompt_tokens":7,"total_tokens":9,"completion_tokens":2}}` + "\n",
	} {
		fmt.Fprint(conn, word)
		if line, err := from.ReadString('\n'); err != nil || line != word {
			t.Errorf("got %q (%v)", line, err)
		}
	}
	if n := i.wakes.Load(); n != 1 {
		t.Errorf("%d wakes, want 1", n)
	}
	return resp.Header
}

// TestUpgradedIdle: a connection ends once neither side has sent anything for its time, which is shorter while its instance drains.
func TestUpgradedIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		var ended atomic.Int64
		c := &call{}
		u := newUpgraded(near, new(relay.WriteDeadline), 8*time.Second, func(idle time.Duration) { ended.Store(int64(idle)) })
		c.sent.upgraded.Store(u)
		go func() { _, _ = io.Copy(far, far) }()
		for range 3 {
			time.Sleep(7 * time.Second)
			if _, err := u.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if _, err := u.Read(make([]byte, 1)); err != nil || ended.Load() != 0 {
				t.Fatalf("ended after %v (%v)", time.Duration(ended.Load()), err)
			}
		}
		c.drains()
		time.Sleep(drainIdle - 1)
		if ended.Load() != 0 {
			t.Error("it ended too early")
		}
		time.Sleep(time.Nanosecond)
		if synctest.Wait(); ended.Load() != int64(drainIdle) {
			t.Errorf("ended after %v, want %v", time.Duration(ended.Load()), drainIdle)
		}
		_ = u.Close()
		ended.Store(0)
		time.Sleep(time.Hour)
		if synctest.Wait(); ended.Load() != 0 {
			t.Error("it ended again after its end")
		}
	})
}

// TestUpgradedBegins: the time until the first byte of an answer ends with what the instance sends after the upgrade.
func TestUpgradedBegins(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	b := startBench(t, nil)
	name := b.function("any", func(f *api.Function) { f.Runtime.Kind, f.FirstByteTimeout = api.RuntimeHTTP, time.Second })
	i := b.instance(name, "any-0001", api.Awake)
	i.chat = func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/echo" {
			echoes(w, r)
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		<-release
	}
	door := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { b.a.ServeFunction(w, r, name) }))
	t.Cleanup(door.Close)
	open := func(path string) (net.Conn, *bufio.Reader) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(door.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", path)
		from := bufio.NewReader(conn)
		if resp, err := http.ReadResponse(from, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("got %+v (%v)", resp, err)
		}
		return conn, from
	}
	says := func(conn net.Conn, from *bufio.Reader) {
		t.Helper()
		fmt.Fprint(conn, "x\n")
		if line, err := from.ReadString('\n'); err != nil || line != "x\n" {
			t.Errorf("got %q (%v)", line, err)
		}
	}
	talks, echo := open("/echo")
	says(talks, echo)
	_, silent := open("/silent")
	if said, err := silent.ReadByte(); err == nil {
		t.Errorf("got %q of an instance that sends nothing", said)
	}
	says(talks, echo) // the other's time, which began earlier, has passed, too
}

// TestRealtime opens WebSockets of the Realtime API: the query names the model, whose instance never sees the key.
func TestRealtime(t *testing.T) {
	b, s := withKeys(t, apikey.Key{Name: "a", Rights: apikey.Rights{Models: []string{"talk", "small", "base"}, TokensPerDay: 1000}})
	ended := make(written, 100)
	b.a.deps.Access, _ = AccessLog("json", ended)
	kind := func(kind string) func(*api.Function) {
		return func(f *api.Function) { f.Runtime.Kind = kind }
	}
	b.instance(b.function("small", kind(api.RuntimeEngine)), "small-0001", api.Awake)
	base := b.instance(b.function("base", kind(api.RuntimeVLLM)), "base-0001", api.Awake)
	adapted := base.set(api.Awake)
	adapted.Adapters = []api.ModelName{"tuned"}
	b.a.ObserveInstance(adapted)
	i := b.instance(b.function("talk", kind(api.RuntimeVLLM)), "talk-0001", api.Asleep)
	b.grant(i, 1)
	seen := make(chan http.Header, 1)
	i.chat = func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Clone()
		echoes(w, r)
	}
	h := wantEcho(t, i, strings.TrimPrefix(b.ts.URL, "http://"), "/v1/realtime?model=talk&intent=transcription", "Sec-WebSocket-Protocol: realtime, OpenAI-insecure-api-key.k-a\r\nSec-WebSocket-Extensions: permessage-deflate\r\n")
	if got := h.Get("Sec-WebSocket-Protocol"); got != "realtime" {
		t.Errorf("the protocol is %q: a browser refuses any but one that it has offered", got)
	}
	if h := <-seen; h.Get("Authorization") != "" || h.Get("Sec-WebSocket-Protocol") != "realtime" || h.Get("Sec-WebSocket-Extensions") != "" {
		t.Errorf("the instance got the headers %v", h)
	}
	if line := <-ended; !strings.Contains(line, `"input_tokens":11`) || !strings.Contains(line, `"output_tokens":5`) {
		t.Errorf("the access log has %s", line)
	}
	if spent := slices.Collect(maps.Values(s.Budgets())); len(spent) != 1 || spent[0][0].Tokens != 16 {
		t.Errorf("the keys have used %v, want 16 tokens of one key's day", spent)
	}
	upgrade := []string{"Connection", "Upgrade", "Upgrade", "websocket"}
	for query, want := range map[string]int{"model=other": 403, "model=talk&mod%65l=base": 400, "model=small": 404, "": 400, "model=tuned": 403, "model=talk&intent=transcription&url=http://x": 400} {
		resp, got := b.get("/v1/realtime?"+query, append(upgrade, "Authorization", "Bearer k-a")...)
		if resp.StatusCode != want || !strings.HasPrefix(got, `{"error":{"message":`) {
			t.Errorf("%q: got %s %s, want %d", query, resp.Status, got, want)
		}
	}
	if resp, got := b.get("/v1/realtime?model=talk", upgrade...); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a key: got %s %s", resp.Status, got)
	}
	if resp, got := b.get("/v1/realtime?model=talk"); resp.StatusCode != http.StatusUpgradeRequired {
		t.Errorf("without an upgrade: got %s %s", resp.Status, got)
	}
}

// written passes on what is written.
type written chan string

func (w written) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}

// TestRealtimeUsage: usages count wherever the connection cuts them, and one that is too large does not.
func TestRealtimeUsage(t *testing.T) {
	const said = `{"usage":{"input_tokens":4,"output_tokens":3}}{"usage":{"x":"`
	for n := range len(said) {
		from, to := io.Pipe()
		u := newUpgraded(piped{from}, new(relay.WriteDeadline), time.Hour, func(time.Duration) {})
		u.countUsage()
		go func() {
			for _, part := range []string{said[:n], said[n:], strings.Repeat("x", 80<<10), `"}}` + said} {
				_, _ = io.WriteString(to, part)
			}
			_ = to.Close()
		}()
		_, _ = io.Copy(io.Discard, u)
		_ = u.Close()
		if u.usage.Prompt != 8 || u.usage.Generated != 6 {
			t.Fatalf("cut at %d: %d and %d tokens", n, u.usage.Prompt, u.usage.Generated)
		}
	}
}

// piped is a connection whose instance only sends.
type piped struct{ io.ReadCloser }

func (piped) Write(p []byte) (int, error) { return len(p), nil }

func TestUpgradesOfModelServersAreRefused(t *testing.T) {
	b := startBench(t, nil)
	name := b.function("m", nil)
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/ws", nil)
	r.Header.Set("Upgrade", "websocket")
	if b.a.ServeFunction(w, r, name); w.Code != http.StatusNotImplemented {
		t.Errorf("got %d %s, want 501", w.Code, w.Body)
	}
}

// TestStreamsBringTheirPlace: beside other activators a WebSocket brings its client's place, and asks for no interim answers.
func TestStreamsBringTheirPlace(t *testing.T) {
	b := startBench(t, nil, func(d *Deps) { d.Others = silentOthers{} })
	name := b.function("any", func(f *api.Function) { f.Runtime.Kind = api.RuntimeHTTP })
	turns := make(chan control.Turn, 1)
	b.instance(name, "any-0001", api.Awake).chat = func(w http.ResponseWriter, r *http.Request) {
		turns <- control.TakeTurn(r.Header)
	}
	r := httptest.NewRequest(http.MethodGet, "/ws", nil)
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "websocket")
	b.a.ServeFunction(httptest.NewRecorder(), r, name)
	if turn := <-turns; turn.Client <= control.NoClient || !turn.Quiet || turn.Most <= 0 {
		t.Errorf("the place is %+v", turn)
	}
}
