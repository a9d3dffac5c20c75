package proxy_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/proxy"
	"github.com/rouse-dev/rouse/internal/inbound"
)

func everything(c *proxy.Config) { c.Everything, c.Credentials = true, true }

// anyRuntime reports the request that it got, and echoes an upgraded connection.
func anyRuntime(w http.ResponseWriter, r *http.Request) {
	if upgrade := r.Header.Get("Upgrade"); upgrade != "" {
		conn, both, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", upgrade)
		_, _ = io.Copy(conn, both)
		return
	}
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Trailer", "X-End")
	w.WriteHeader(http.StatusTeapot)
	fmt.Fprintf(w, "%s %s %s host %s for %s cookie %s tenant %q: %s", r.Method, r.URL, r.Proto, r.Host, r.Header.Get("X-Forwarded-For"), r.Header.Get("Cookie"), r.Header.Get(control.HeaderTenant), body)
	w.Header().Set("X-End", "whole")
}

func TestEveryPathPasses(t *testing.T) {
	b := set(t, anyRuntime, everything)
	req, err := http.NewRequest("PROPFIND", b.URL+"/collective_rpc?a=%2F;b&c=50%", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "mine.example.com"
	req.Header.Set("X-Forwarded-For", "192.0.2.1")
	req.Header.Set("Cookie", "c=1")
	req.Header.Set(control.HeaderTenant, "somebody")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	const want = `PROPFIND /collective_rpc?a=%2F;b&c=50% HTTP/1.1 host mine.example.com for 192.0.2.1 cookie c=1 tenant "": body`
	if err != nil || resp.StatusCode != http.StatusTeapot || string(text) != want || resp.Trailer.Get("X-End") != "whole" {
		t.Errorf("got %d %q, trailer %v (%v), want %q", resp.StatusCode, text, resp.Trailer, err, want)
	}
	if o := b.wantIdle(t); o.Status != http.StatusTeapot || o.FirstByte == 0 {
		t.Errorf("the outcome is %+v", o)
	}
	if b.gate.moved.Load() == 0 {
		t.Error("the gate was not told that the runtime moves")
	}
}

// TestForwarded: Knative's runtime contract promises the header to containers; a client's own stays unchanged.
func TestForwarded(t *testing.T) {
	for _, tc := range []struct {
		name   string
		header http.Header
		want   []string
	}{
		{"none", http.Header{}, nil},
		{"a client", http.Header{"X-Forwarded-For": {"192.0.2.1"}}, []string{"for=192.0.2.1"}},
		{"proxies, in two lines", http.Header{"X-Forwarded-For": {"192.0.2.1, 2001:db8::1", "10.0.0.1"}, "X-Forwarded-Proto": {"https"}, "X-Forwarded-Host": {"a.example"}},
			[]string{`for=192.0.2.1;host=a.example;proto=https, for="[2001:db8::1]", for=10.0.0.1`}},
		{"a scheme alone", http.Header{"X-Forwarded-Proto": {"http"}}, []string{"proto=http"}},
		{"its own", http.Header{"X-Forwarded-For": {"192.0.2.1"}, "Forwarded": {"for=unknown"}}, []string{"for=unknown"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			b := set(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header["Forwarded"] }, everything)
			req, err := http.NewRequest(http.MethodGet, b.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header = tc.header
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if !slices.Equal(got, tc.want) {
				t.Errorf("the container gets %q, want %q", got, tc.want)
			}
		})
	}
}

// TestAClientThatLeavesKeepsItsPlace: a container is told that a client has left, and still has only one request at a time. The next
// request gets a usable connection.
func TestAClientThatLeavesKeepsItsPlace(t *testing.T) {
	for name, begun := range map[string]bool{"before the answer": false, "in the answer": true} {
		t.Run(name, func(t *testing.T) {
			arrived, left, end := make(chan struct{}), make(chan struct{}), make(chan struct{})
			b := set(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if r.URL.Path == "/next" {
					return
				}
				if begun {
					fmt.Fprint(w, "part")
					_ = http.NewResponseController(w).Flush()
				}
				close(arrived)
				<-r.Context().Done()
				close(left)
				<-end
			}, everything)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.URL+"/work", strings.NewReader("body"))
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				if resp, err := http.DefaultClient.Do(req); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}()
			<-arrived
			leave()
			<-left
			if n := b.gate.inside.Load(); n != 1 {
				t.Errorf("%d places are taken while the container works for a client that has left, want 1", n)
			}
			close(end)
			b.wantIdle(t)
			if resp, _, err := b.post(t, "/next", "body"); err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("the next request: %v (%v)", resp, err)
			}
		})
	}
}

// TestUpgrade opens a connection to a runtime that is no model server, and a WebSocket of the Realtime API to one that is; all else of
// that one stays closed.
func TestUpgrade(t *testing.T) {
	for path, change := range map[string]func(*proxy.Config){"/x": everything, api.PathRealtime + "?model=m": func(*proxy.Config) {}} {
		t.Run(path, func(t *testing.T) { echoUpgraded(t, path, change) })
	}
	b := set(t, anyRuntime)
	for path, protocol := range map[string]string{"/x": "websocket", api.PathRealtime: "h2c"} {
		r, _ := http.NewRequest(http.MethodGet, b.URL+path, nil)
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", protocol)
		if resp, err := http.DefaultClient.Do(r); err != nil || resp.StatusCode == http.StatusSwitchingProtocols {
			t.Errorf("%s by %s: %v (%v), want a refusal", path, protocol, resp, err)
		}
	}
}

func echoUpgraded(t *testing.T, path string, change func(*proxy.Config)) {
	b := set(t, anyRuntime, change)
	conn, err := net.Dial("tcp", strings.TrimPrefix(b.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(conn, "GET "+path+" HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	from := bufio.NewReader(conn)
	resp, err := http.ReadResponse(from, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("got %+v (%v)", resp, err)
	}
	fmt.Fprint(conn, "hello\n")
	if line, err := from.ReadString('\n'); err != nil || line != "hello\n" {
		t.Errorf("got %q (%v)", line, err)
	}
	if n := b.gate.inside.Load(); n != 1 {
		t.Errorf("%d places are taken while the connection is open, want 1", n)
	}
	conn.Close()
	b.wantIdle(t)
}

func TestHTTP2StaysThat(t *testing.T) {
	runtime := httptest.NewUnstartedServer(http.HandlerFunc(anyRuntime))
	runtime.Config.Protocols = inbound.Protocols()
	runtime.Start()
	defer runtime.Close()
	server := httptest.NewUnstartedServer(proxy.New(proxy.Config{Gate: &gate{base: runtime.URL}, Everything: true}))
	server.Config.Protocols = inbound.Protocols()
	server.Start()
	defer server.Close()
	var cleartext http.Protocols
	cleartext.SetUnencryptedHTTP2(true)
	h2c := &http.Client{Transport: &http.Transport{Protocols: &cleartext}}
	// Both sides send and receive before either has ended, as in a gRPC stream.
	out, in := io.Pipe()
	req, err := http.NewRequest(http.MethodPost, server.URL+"/rpc", out)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		fmt.Fprint(in, "one")
		in.Close()
	}()
	resp, err := h2c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.ProtoMajor != 2 || !strings.Contains(string(text), "/rpc HTTP/2.0") || resp.Trailer.Get("X-End") != "whole" {
		t.Errorf("got %s %q, trailer %v (%v)", resp.Proto, text, resp.Trailer, err)
	}
}

// TestProbesPassWhileItSleeps: a container is not restarted because its server was stopped on purpose.
func TestProbesPassWhileItSleeps(t *testing.T) {
	b := set(t, anyRuntime, everything)
	b.gate.refused = api.Errorf(http.StatusServiceUnavailable, api.CodeAsleep, "the instance is asleep")
	grpc, err := http.NewRequest(http.MethodPost, b.URL+proxy.PathGRPCHealth, nil)
	if err != nil {
		t.Fatal(err)
	}
	grpc.Header.Set("User-Agent", "kube-probe/1.35 grpc-go/1.80")
	resp, err := http.DefaultClient.Do(grpc)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || resp.Trailer.Get("Grpc-Status") != "0" || !strings.HasSuffix(string(raw), "\x08\x01") {
		t.Errorf("gRPC's health check while asleep: %q, trailer %v (%v); want SERVING", raw, resp.Trailer, err)
	}
	for agent, want := range map[string]int{"kube-probe/1.35": http.StatusOK, "curl": http.StatusServiceUnavailable} {
		req, err := http.NewRequest(http.MethodGet, b.URL+"/live", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("User-Agent", agent)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want || (resp.Header.Get(control.HeaderRefused) == api.CodeAsleep) != (want != http.StatusOK) {
			t.Errorf("%s gets %d %v, want %d", agent, resp.StatusCode, resp.Header, want)
		}
	}
}

func TestARuntimeThatIsNotThere(t *testing.T) {
	b := set(t, anyRuntime, everything)
	b.gate.base = "http://127.0.0.1:1"
	resp, body, err := b.post(t, "/x", "body")
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get(control.HeaderRefused) != api.CodeUnhealthy || b.gate.lost.Load() != 1 {
		t.Errorf("got %v %s (%v), and the gate heard of it %d times", resp.Status, body, err, b.gate.lost.Load())
	}
	b.wantIdle(t)
}

// waitingGate lets each request wait for a turn that does not come.
type waitingGate struct {
	proxy.Gate
	waits chan context.Context
}

func (g waitingGate) EnterInTurn(ctx context.Context, _ control.Turn, beforeWait func() error) (base string, refused *api.Error, err error) {
	if err := beforeWait(); err != nil {
		return "", nil, err
	}
	g.waits <- ctx
	<-ctx.Done()
	return "", nil, context.Cause(ctx)
}

func (g waitingGate) LeaveTurn(control.Turn, float64) {}

func (g waitingGate) GivesWay(control.Turn, time.Duration) bool { return false }

// TestLeavesWhileALargeBodyWaits: a client that leaves while its request with a large body waits for its turn is noticed
// at once, whatever fits into the bound of memory. A body that does not fit waits unread.
func TestLeavesWhileALargeBodyWaits(t *testing.T) {
	gate := waitingGate{waits: make(chan context.Context)}
	door := inbound.New(inbound.Config{MaxBody: 1 << 20})
	p := proxy.New(proxy.Config{Gate: gate, Everything: true, Door: door})
	ended := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { ended <- struct{}{} }()
		p.ServeHTTP(w, r)
	}))
	defer server.Close()
	for _, size := range []int{1, 64<<10 + 1, 1 << 20} {
		ctx, leave := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, strings.NewReader(strings.Repeat("x", size)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(control.HeaderQueue, control.Turn{Client: 2}.String())
		go func() {
			if resp, err := http.DefaultClient.Do(req); err == nil {
				resp.Body.Close()
			}
		}()
		waits := <-gate.waits
		leave()
		<-waits.Done()
		<-ended
		if used := door.Memory().Used(); used != 0 {
			t.Errorf("%d bytes of memory are held after a body of %d bytes", used, size)
		}
	}
	if door.Fits(httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat("x", 1<<20+1)))) {
		t.Error("a body beyond the limit fits")
	}
}

// A request whose body can't be read while it waits gets an answer: it is refused if there is no memory for the body, and at fault if the
// body ends too early.
func TestBodiesThatCannotWait(t *testing.T) {
	for _, plain := range []bool{true, false} {
		door := inbound.New(inbound.Config{MaxBody: 1 << 20, Memory: 1 << 20})
		server := httptest.NewServer(proxy.New(proxy.Config{Gate: waitingGate{}, Everything: plain, Door: door}))
		defer server.Close()
		post := func() (*http.Response, string) {
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\n%s: %s\r\nContent-Length: 9\r\n\r\n{}", control.HeaderQueue, control.Turn{Client: 2, Quiet: true})
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatalf("plain %v: no answer: %v", plain, err)
			}
			defer resp.Body.Close()
			text, _ := io.ReadAll(resp.Body)
			return resp, string(text)
		}
		if resp, text := post(); resp.StatusCode != http.StatusBadRequest || !strings.Contains(text, "ends after 2 bytes") {
			t.Errorf("plain %v, a short body: %s %s, want 400", plain, resp.Status, text)
		}
		other := door.Memory().Open("another client", func() {})
		for n := int64(1 << 20); n > 0; n /= 2 { // all of it
			for other.Take(t.Context(), n) == nil {
			}
		}
		if err := other.Settle(); err != nil {
			t.Fatal(err)
		}
		if resp, text := post(); resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get(control.HeaderRefused) != api.CodeBusy {
			t.Errorf("plain %v, no memory: %s %v %s, want a refusal", plain, resp.Status, resp.Header, text)
		}
	}
}

// fullGate has no slot: a request waits a moment, and is refused.
type fullGate struct{ waitingGate }

func (fullGate) EnterInTurn(_ context.Context, _ control.Turn, beforeWait func() error) (base string, refused *api.Error, err error) {
	return "", api.Errorf(http.StatusServiceUnavailable, api.CodeBusy, "it is full"), beforeWait()
}

// TestQuietTurn: a request that asks for it waits for its turn without interim answers.
func TestQuietTurn(t *testing.T) {
	server := httptest.NewServer(proxy.New(proxy.Config{Gate: fullGate{}, Everything: true, Door: inbound.New(inbound.Config{})}))
	defer server.Close()
	for _, quiet := range []bool{true, false} {
		interim := 0
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(int, textproto.MIMEHeader) error { interim++; return nil }})
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(control.HeaderQueue, control.Turn{Client: 2, Quiet: quiet}.String())
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if quiet != (interim == 0) {
			t.Errorf("quiet %v: %d interim answers", quiet, interim)
		}
	}
}

// A container may answer before it has read the body: the rest of it still comes.
func TestAnswerBeforeTheBodysEnd(t *testing.T) {
	b := set(t, func(w http.ResponseWriter, r *http.Request) {
		out := http.NewResponseController(w)
		_ = out.EnableFullDuplex()
		_ = out.Flush()
		for lines := bufio.NewReader(r.Body); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			_, _ = io.WriteString(w, line)
			_ = out.Flush()
		}
	}, everything)
	body, feed := io.Pipe()
	defer feed.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, b.URL+"/chat", body)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer := bufio.NewReader(resp.Body)
	for _, line := range []string{"first\n", "second\n"} {
		_, _ = io.WriteString(feed, line)
		if got, err := answer.ReadString('\n'); got != line {
			t.Fatalf("got %q (%v), want %q", got, err, line)
		}
	}
}
