package activator

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// ours are headers that only we may send to instances, as a client may write them.
var ours = []string{
	control.HeaderState, "x-rouse-stream-state", "X_Rouse_Stream_State", "X-ROUSE_Stream-State", control.HeaderTenant, "X_Rouse_Tenant", control.HeaderTrusted, control.HeaderWait,
	control.HeaderRefused, control.HeaderFailed, control.HeaderUsage, control.HeaderQueue, "X_Rouse_Usage", "Ce-Id", "K-Network-Hash",
}

// said returns the headers of ours that an instance got, but for a valid place in the order of its slots.
func said(r *http.Request) (names []string) {
	if control.TakeTurn(r.Header.Clone()).Client != 0 {
		delete(r.Header, control.HeaderQueue)
	}
	for name, values := range r.Header {
		if control.Reserved(name) {
			names = append(names, fmt.Sprint(name, values))
		}
	}
	slices.Sort(names)
	return names
}

// TestClientsDoNotSpeakForUs: whatever a client writes into our headers, the instance gets only our values.
func TestClientsDoNotSpeakForUs(t *testing.T) {
	const forged = "id:1::0:11;12"
	asksNew := fmt.Sprint(control.HeaderState, []string{control.StateNew})
	for name, test := range map[string]struct {
		kind, body string
		header     []string
		want       string
	}{
		"a stream of ours":               {api.RuntimeEngine, `{"model":"m","stream":true}`, nil, asksNew},
		"a stream of ours that stays":    {api.RuntimeEngine, `{"model":"m","stream":true}`, []string{control.HeaderResume, "off"}, ""},
		"an answer of ours":              {api.RuntimeEngine, `{"model":"m"}`, nil, asksNew},
		"an answer of ours that stays":   {api.RuntimeEngine, `{"model":"m"}`, []string{control.HeaderResume, "off"}, ""},
		"a stream of a vLLM":             {api.RuntimeVLLM, `{"model":"m","stream":true}`, nil, asksNew},
		"an answer of a vLLM":            {api.RuntimeVLLM, `{"model":"m"}`, nil, ""},
		"a stream of who can't go on":    {api.RuntimeSGLang, `{"model":"m","stream":true}`, nil, ""},
		"a stream of whom nobody names":  {"", `{"model":"m","stream":true}`, nil, asksNew},
		"a header that is the hop's own": {api.RuntimeSGLang, `{"model":"m","stream":true}`, []string{"Connection", "close, X-Rouse-Tenant"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := startBench(t, nil)
			fn := b.function("m", func(f *api.Function) { f.Runtime.Kind = test.kind })
			told := make(chan string, 1) // of the one request
			b.instance(fn, "m-0", api.Awake).chat = func(w http.ResponseWriter, r *http.Request) {
				told <- strings.Join(said(r), " ")
				answerOnce(w, r)
			}
			header := test.header
			for _, name := range ours {
				header = append(header, name, forged)
			}
			resp, got := b.post(chatPath, test.body, header...)
			want := strings.TrimSpace(test.want + " " + fmt.Sprint(control.HeaderUsage, []string{"true"}))
			if is := <-told; is != want || resp.StatusCode != http.StatusOK {
				t.Errorf("the instance was told %q, want %q; the client got %s %q", is, want, resp.Status, got)
			}
		})
	}
}

// TestClientsDoNotSpeakForUsAsTheyStream is the same for streamed requests: upgraded connections, and HTTP/2.
func TestClientsDoNotSpeakForUsAsTheyStream(t *testing.T) {
	told := make(chan string, 1) // of each request
	_, door := plainBench(t, func(w http.ResponseWriter, r *http.Request) {
		told <- strings.Join(said(r), " ")
		if r.Header.Get("Upgrade") == "" {
			_, _ = io.WriteString(w, "ok")
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_ = conn.Close()
	})
	conn, err := net.Dial("tcp", door)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	lines := ""
	for _, name := range ours {
		lines += name + ": b\r\n"
	}
	fmt.Fprint(conn, "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+lines+"\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("got %+v (%v)", resp, err)
	}
	if got := <-told; got != "" {
		t.Errorf("by an upgrade the instance was told %q", got)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+door+"/any", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range ours {
		r.Header.Set(name, "b")
	}
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	resp, err = transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got := <-told; got != "" || resp.ProtoMajor != 2 || resp.StatusCode != http.StatusOK {
		t.Errorf("by %s the instance was told %q", resp.Proto, got)
	}
}
