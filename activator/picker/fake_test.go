package picker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/picker"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/inbound"
)

const chatPath = "/v1/chat/completions"

// instance is a fake instance on a TCP port: the control path that wakes it, and the path of chats.
type instance struct {
	report func(api.InstanceStatus)
	close  func()           // makes it unreachable without a report
	chat   http.HandlerFunc // nil: one word

	mu     sync.Mutex // guards all below
	status api.InstanceStatus
	seen   []*http.Request

	served, wakes atomic.Int32
}

func (f *instance) set(s api.State) api.InstanceStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status.State = s
	f.status.Seq++
	f.status.Since = time.Now()
	return f.status
}

func (f *instance) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == control.PathWake {
		f.wakes.Add(1)
		st := f.set(api.Awake)
		f.report(st)
		_ = json.NewEncoder(w).Encode(st)
		return
	}
	f.mu.Lock()
	awake := f.status.State == api.Awake
	f.seen = append(f.seen, r)
	f.mu.Unlock()
	if !awake {
		w.Header().Set(control.HeaderRefused, api.CodeAsleep)
		api.WriteError(w, api.Errorf(http.StatusServiceUnavailable, api.CodeAsleep, "it sleeps"))
		return
	}
	f.served.Add(1)
	if f.chat != nil {
		f.chat(w, r)
		return
	}
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"object":"chat.completion","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":%q}}],"usage":{"prompt_tokens":3,"completion_tokens":5,"total_tokens":8}}`, body)
}

// bench is an activator with a picker, and a gateway's connection to it.
type bench struct {
	t    testing.TB
	a    *activator.Activator
	name api.FunctionName
	gw   extproc.ExternalProcessorClient
	conn *grpc.ClientConn
}

func start(t testing.TB, change func(*picker.Config), further ...func(*activator.Deps)) *bench {
	t.Helper()
	transport := api.NewTransport(64)
	deps := activator.Deps{Emitter: api.EmitterFunc(func(api.Event) {}), Waker: control.New(transport, nil), Transport: transport}
	for _, f := range further {
		f(&deps)
	}
	a, err := activator.New(activator.Config{Name: "test"}, deps)
	if err != nil {
		t.Fatal(err)
	}
	cfg := picker.Config{Address: ":0", Plain: true}
	if change != nil {
		change(&cfg)
	}
	p, err := picker.New(cfg, picker.Deps{Handler: a.Handler()})
	if err != nil {
		t.Fatal(err)
	}
	l, err := p.Listen()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { _ = a.Run(ctx) })
	run.Go(func() {
		if err := p.Run(ctx, ctx, l); err != nil {
			t.Errorf("the picker: %v", err)
		}
	})
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, a: a, name: api.NewFunctionName("", "tiny"), gw: extproc.NewExternalProcessorClient(conn), conn: conn}
	t.Cleanup(func() {
		_ = conn.Close()
		cancel()
		run.Wait()
		transport.CloseIdleConnections()
	})
	a.PutFunction(api.Function{Name: b.name, Concurrency: 4})
	return b
}

// instance starts an instance in a state.
func (b *bench) instance(id string, s api.State) *instance { return b.instanceAt("127.0.0.1", id, s) }

// instanceAt starts an instance at an address, with the protocols of a function's proxy.
func (b *bench) instanceAt(ip, id string, s api.State) *instance {
	b.t.Helper()
	f := &instance{report: b.a.ObserveInstance}
	server := httptest.NewUnstartedServer(f)
	l, err := net.Listen("tcp", ip+":0")
	if err != nil {
		b.t.Skip(err) // only Linux has all of 127.0.0.0/8
	}
	_ = server.Listener.Close()
	server.Listener, server.Config.Protocols = l, inbound.Protocols()
	server.Start()
	b.t.Cleanup(server.Close)
	f.close = server.Close
	f.status = api.InstanceStatus{Instance: api.InstanceID(id), Function: b.name, Level: api.Level1, Endpoint: api.Endpoint(server.URL), Concurrency: 4}
	b.a.ObserveInstance(f.set(s))
	return f
}

func (f *instance) host() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.TrimPrefix(string(f.status.Endpoint), "http://")
}

func (b *bench) grant(f *instance) {
	b.a.Grant(api.Grant{Instance: f.status.Instance, Function: b.name, Epoch: 1, Expires: time.Now().Add(time.Hour)})
}

// idle reports whether no request has a slot or waits.
func (b *bench) idle() bool {
	st, ok := b.a.Stats(b.name)
	return ok && st.Running == 0 && st.Waiting == 0
}

func (b *bench) eventually(what string, ok func() bool) {
	b.t.Helper()
	deadline, tick := time.NewTimer(20*time.Second), time.NewTicker(time.Millisecond)
	defer deadline.Stop()
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			b.t.Fatalf("not within 20 s: %s", what)
		case <-tick.C:
		}
	}
}

// Modes of bodies, as a gateway is configured.
var (
	duplex   = &extproc.ProtocolConfiguration{RequestBodyMode: filter.ProcessingMode_FULL_DUPLEX_STREAMED, ResponseBodyMode: filter.ProcessingMode_FULL_DUPLEX_STREAMED}
	buffered = &extproc.ProtocolConfiguration{RequestBodyMode: filter.ProcessingMode_BUFFERED, ResponseBodyMode: filter.ProcessingMode_STREAMED}
	bodyless = &extproc.ProtocolConfiguration{RequestBodyMode: filter.ProcessingMode_NONE, ResponseBodyMode: filter.ProcessingMode_STREAMED}
	eager    = &extproc.ProtocolConfiguration{RequestBodyMode: filter.ProcessingMode_STREAMED, ResponseBodyMode: filter.ProcessingMode_STREAMED, SendBodyWithoutWaitingForHeaderResponse: true}
)

// stream is a request of a fake gateway.
type stream struct {
	extproc.ExternalProcessor_ProcessClient

	t      testing.TB
	config *extproc.ProtocolConfiguration
	cancel context.CancelFunc
	served string // the endpoint that has answered; empty: the gateway does not report it
}

func (b *bench) open(config *extproc.ProtocolConfiguration) *stream {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	b.t.Cleanup(cancel)
	s, err := b.gw.Process(ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	return &stream{ExternalProcessor_ProcessClient: s, t: b.t, config: config, cancel: cancel}
}

func headerMap(pairs ...string) *core.HeaderMap {
	m := &core.HeaderMap{}
	for i := 0; i+1 < len(pairs); i += 2 {
		m.Headers = append(m.Headers, &core.HeaderValue{Key: pairs[i], RawValue: []byte(pairs[i+1])})
	}
	return m
}

func (s *stream) header(end bool, subset []any, more ...string) {
	pairs := append([]string{":method", "POST", ":path", chatPath, ":authority", "models.example", "content-type", "application/json"}, more...)
	m := &extproc.ProcessingRequest{ProtocolConfig: s.config,
		Request: &extproc.ProcessingRequest_RequestHeaders{RequestHeaders: &extproc.HttpHeaders{Headers: headerMap(pairs...), EndOfStream: end}}}
	if subset != nil {
		m.MetadataContext = s.metadata("envoy.lb.subset_hint", "x-gateway-destination-endpoint-subset", subset)
	}
	_ = s.Send(m)
}

func (s *stream) body(p string, end bool) {
	_ = s.Send(&extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestBody{RequestBody: &extproc.HttpBody{Body: []byte(p), EndOfStream: end}}})
}

func (s *stream) answer(status string, end bool, more ...string) {
	m := &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extproc.HttpHeaders{
		Headers: headerMap(append([]string{":status", status}, more...)...), EndOfStream: end}}}
	if s.served != "" {
		m.MetadataContext = s.metadata("envoy.lb", "x-gateway-destination-endpoint-served", s.served)
	}
	_ = s.Send(m)
}

func (s *stream) metadata(space, key string, value any) *core.Metadata {
	s.t.Helper()
	fields, err := structpb.NewStruct(map[string]any{key: value})
	if err != nil {
		s.t.Fatal(err)
	}
	return &core.Metadata{FilterMetadata: map[string]*structpb.Struct{space: fields}}
}

func (s *stream) answerBody(p string, end bool) {
	_ = s.Send(&extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseBody{ResponseBody: &extproc.HttpBody{Body: []byte(p), EndOfStream: end}}})
}

// recv returns the next message.
func (s *stream) recv() *extproc.ProcessingResponse {
	s.t.Helper()
	m, err := s.Recv()
	if err != nil {
		s.t.Fatalf("receive: %v", err)
	}
	return m
}

// mutation returns a message's changes to a header: the values that it sets, by name, and an empty value for each
// removed field.
func mutation(m *extproc.HeaderMutation) map[string]string {
	got := map[string]string{}
	for _, name := range m.GetRemoveHeaders() {
		got[name] = ""
	}
	for _, h := range m.GetSetHeaders() {
		got[h.GetHeader().GetKey()] = string(h.GetHeader().GetRawValue())
	}
	return got
}

// endpoint returns the first endpoint in a message, which must be the same in header and metadata.
func endpoint(t testing.TB, m *extproc.ProcessingResponse, h *extproc.HeaderMutation) string {
	t.Helper()
	to := mutation(h)["x-gateway-destination-endpoint"]
	meta := m.GetDynamicMetadata().GetFields()["envoy.lb"].GetStructValue().GetFields()["x-gateway-destination-endpoint"].GetStringValue()
	if to == "" || to != meta {
		t.Errorf("got the endpoint %q in the header and %q in the metadata", to, meta)
	}
	first, _, _ := strings.Cut(to, ",")
	return first
}

// result is a gateway's answer to a client.
type result struct {
	status int
	header map[string]string
	body   string
	cut    error
}

// immediate returns the result of an immediate response.
func immediate(m *extproc.ProcessingResponse) *result {
	i := m.GetImmediateResponse()
	if i == nil {
		return nil
	}
	return &result{status: int(i.GetStatus().GetCode()), header: mutation(i.GetHeaders()), body: string(i.GetBody())}
}

// byHand acts as a gateway with FULL_DUPLEX_STREAMED: it asks, tries the endpoints in its answer until it can connect
// to one, sends the request there, and passes the answer on.
type byHand struct {
	*bench

	subset   []any // the allowed endpoints; nil: all
	piece    int   // bytes of a body in a message, both ways; 0: half of the request's
	trailers bool  // both bodies end with trailers
	client   http.Client
}

func (b *bench) ask(body string, more ...string) result {
	b.t.Helper()
	return (&byHand{bench: b}).ask(body, more...)
}

func (b *byHand) ask(body string, more ...string) result {
	b.t.Helper()
	s := b.open(duplex)
	defer s.cancel()
	s.header(false, b.subset, more...)
	size := b.piece
	if size == 0 {
		size = max(len(body)/2, 1)
	}
	for at := 0; at < len(body); at += size {
		end := min(at+size, len(body))
		s.body(body[at:end], end == len(body) && !b.trailers)
	}
	switch {
	case b.trailers:
		_ = s.Send(&extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestTrailers{RequestTrailers: &extproc.HttpTrailers{}}})
	case body == "":
		s.body("", true)
	}
	m := s.recv()
	if r := immediate(m); r != nil {
		return *r
	}
	change := m.GetRequestHeaders().GetResponse().GetHeaderMutation()
	endpoint(b.t, m, change)
	var sent strings.Builder
	for end := false; !end; {
		m := s.recv()
		if end = b.trailers && m.GetRequestTrailers() != nil; end {
			break
		}
		p := m.GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse()
		if p == nil {
			b.t.Fatalf("the body does not go on: %v", m)
		}
		sent.Write(p.GetBody())
		end = p.GetEndOfStream()
	}
	told, cut := mutation(change), error(nil)
	for _, to := range strings.Split(told["x-gateway-destination-endpoint"], ",") {
		req, err := http.NewRequestWithContext(s.Context(), http.MethodPost, "http://"+to+chatPath, strings.NewReader(sent.String()))
		if err != nil {
			b.t.Fatal(err)
		}
		for i := 0; i+1 < len(more); i += 2 {
			req.Header.Set(more[i], more[i+1])
		}
		for name, value := range told {
			if req.Header.Set(name, value); value == "" {
				req.Header.Del(name)
			}
		}
		resp, err := b.client.Do(req)
		if cut = err; err != nil {
			continue
		}
		defer resp.Body.Close()
		s.served = to
		return b.passOn(s, resp)
	}
	b.t.Errorf("send: %v", cut)
	return result{cut: cut}
}

// passOn sends the instance's answer through the picker.
func (b *byHand) passOn(s *stream, resp *http.Response) result {
	b.t.Helper()
	var pairs []string
	for name, values := range resp.Header {
		pairs = append(pairs, strings.ToLower(name), values[0])
	}
	s.answer(fmt.Sprint(resp.StatusCode), false, pairs...)
	var sending sync.WaitGroup
	defer sending.Wait()
	sending.Go(func() {
		buf := make([]byte, max(b.piece, 1))
		if b.piece == 0 {
			buf = make([]byte, 512)
		}
		for {
			n, err := resp.Body.Read(buf)
			if err != nil && err != io.EOF {
				s.cancel()
				return
			}
			s.answerBody(string(buf[:n]), err == io.EOF && !b.trailers)
			if err == nil {
				continue
			}
			if b.trailers {
				_ = s.Send(&extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extproc.HttpTrailers{}}})
			}
			return
		}
	})
	got := result{status: resp.StatusCode, header: map[string]string{}}
	var body strings.Builder
	for end := false; !end; {
		m, err := s.Recv()
		if err != nil {
			got.cut = err
			return got
		}
		if r := immediate(m); r != nil {
			return *r
		}
		if h := m.GetResponseHeaders(); h != nil {
			got.header = mutation(h.GetResponse().GetHeaderMutation())
			if code := got.header[":status"]; code != "" {
				_, _ = fmt.Sscan(code, &got.status)
			}
			continue
		}
		p := m.GetResponseBody().GetResponse().GetBodyMutation().GetStreamedResponse()
		body.Write(p.GetBody())
		end = p.GetEndOfStream() || m.GetResponseTrailers() != nil
	}
	got.body = body.String()
	return got
}

// free returns a TCP address that nothing listens on.
func free(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
