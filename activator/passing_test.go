package activator

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/inbound"
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

func TestAnUpgradeIsHeldUntilTheInstanceIsAwake(t *testing.T) {
	i, door := plainBench(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, both, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(conn, both)
	})
	conn, err := net.Dial("tcp", door)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	from := bufio.NewReader(conn)
	resp, err := http.ReadResponse(from, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get(headerInstance) != string(i.id) {
		t.Fatalf("got %+v (%v)", resp, err)
	}
	fmt.Fprint(conn, "hello\n")
	if line, err := from.ReadString('\n'); err != nil || line != "hello\n" {
		t.Errorf("got %q (%v)", line, err)
	}
	if n := i.wakes.Load(); n != 1 {
		t.Errorf("%d wakes, want 1", n)
	}
}

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
