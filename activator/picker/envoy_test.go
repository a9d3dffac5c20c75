package picker_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/rouse-dev/rouse/activator/picker"
	"github.com/rouse-dev/rouse/api"
)

// headerAllowed is the header from which Envoy takes the allowed endpoints.
const headerAllowed = "test-epp-endpoint-selection"

// envoyConfig is a gateway's configuration for an InferencePool: the picker as an external processor, and the load
// balancing policy that follows it.
var envoyConfig = template.Must(template.New("envoy").Parse(`
static_resources:
  listeners:
  - address: {socket_address: {address: 127.0.0.1, port_value: {{.Port}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: gateway
          http_filters:
          - name: envoy.filters.http.header_to_metadata
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config
              request_rules:
              - header: {{.Allowed}}
                on_header_present: {metadata_namespace: envoy.lb.subset_hint, key: x-gateway-destination-endpoint-subset, type: STRING}
          - name: envoy.filters.http.ext_proc
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor
              grpc_service: {envoy_grpc: {cluster_name: picker}}
              message_timeout: 60s
              processing_mode:
                request_header_mode: SEND
                response_header_mode: SEND
                request_body_mode: FULL_DUPLEX_STREAMED
                response_body_mode: FULL_DUPLEX_STREAMED
                request_trailer_mode: SEND
                response_trailer_mode: SEND
              metadata_options:
                forwarding_namespaces: {untyped: [envoy.lb, envoy.lb.subset_hint]}
                receiving_namespaces: {untyped: [envoy.lb]}
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
          route_config:
            virtual_hosts:
            - name: pool
              domains: ["*"]
              routes:
              - match: {prefix: /}
                route: {cluster: pool, timeout: 0s, retry_policy: {retry_on: "connect-failure,refused-stream", num_retries: 2}}
  clusters:
  - name: picker
    type: STATIC
    typed_extension_protocol_options: &h2c
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    load_assignment: {cluster_name: picker, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: {{.Picker.Host}}, port_value: {{.Picker.Port}}}}}}]}]}
  - name: pool
    type: STATIC
{{- if .H2C}}
    typed_extension_protocol_options: *h2c
{{- end}}
    load_balancing_policy:
      policies:
      - typed_extension_config:
          name: envoy.load_balancing_policies.override_host
          typed_config:
            "@type": type.googleapis.com/envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost
            override_host_sources:
            - header: x-gateway-destination-endpoint
            - metadata: {key: envoy.lb, path: [{key: x-gateway-destination-endpoint}]}
            selected_host_key: {key: envoy.lb, path: [{key: x-gateway-destination-endpoint-served}]}
            fallback_policy:
              policies:
              - typed_extension_config:
                  name: envoy.load_balancing_policies.round_robin
                  typed_config: {"@type": type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin}
    load_assignment:
      cluster_name: pool
      endpoints:
      - lb_endpoints:
{{- range .Pool}}
        - endpoint: {address: {socket_address: {address: {{.Host}}, port_value: {{.Port}}}}}
{{- end}}
`))

type hostPort struct{ Host, Port string }

func addressOf(s string) hostPort {
	host, port, _ := strings.Cut(s, ":")
	return hostPort{host, port}
}

// envoy is a running Envoy.
type envoy struct {
	t   testing.TB
	url string
}

// envoyProgram returns the path of the program that make envoy installs.
func envoyProgram(t testing.TB) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skip(err)
	}
	found, err := filepath.Glob(filepath.Join(cache, "rouse", "envoy-*", "envoy", "_bin", "envoy"))
	if err != nil || len(found) == 0 {
		t.Skip("there is no Envoy: make envoy installs one")
	}
	return found[len(found)-1]
}

// startEnvoy starts Envoy in front of instances, with b's picker.
func startEnvoy(t *testing.T, b *bench, all []*instance, h2c bool) gateway {
	t.Helper()
	program, address := envoyProgram(t), addressOf(free(t))
	var pool []hostPort
	for _, f := range all {
		pool = append(pool, addressOf(f.host()))
	}
	var config bytes.Buffer
	if err := envoyConfig.Execute(&config, map[string]any{"Port": address.Port, "Allowed": headerAllowed, "Picker": addressOf(b.conn.Target()), "H2C": h2c, "Pool": pool}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "--config-yaml", config.String(), "--concurrency", "1", "--use-dynamic-base-id", "--log-level", "error")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { stop(); <-ended })
	e := &envoy{t, "http://" + address.Host + ":" + address.Port}
	b.eventually("Envoy listens", func() bool {
		conn, err := net.Dial("tcp", address.Host+":"+address.Port)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	})
	return e
}

func (e *envoy) post(allowed []string, body string) result {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, e.url+chatPath, io.MultiReader(strings.NewReader(body[:1]), strings.NewReader(body[1:])))
	if err != nil {
		return result{cut: err}
	}
	r.Header.Set("Content-Type", "application/json")
	if allowed != nil {
		r.Header.Set(headerAllowed, strings.Join(allowed, ","))
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return result{cut: err}
	}
	defer resp.Body.Close()
	got := result{status: resp.StatusCode, header: map[string]string{}}
	for name := range resp.Header {
		got.header[strings.ToLower(name)] = resp.Header.Get(name)
	}
	p, err := io.ReadAll(resp.Body)
	got.body, got.cut = string(p), err
	return got
}

// TestEnvoy is TestConformance with Envoy.
func TestEnvoy(t *testing.T) {
	envoyProgram(t)
	conformance(t, startEnvoy)
}

// TestEnvoyStreams passes streams through Envoy, event by event, and frees the slots of clients that leave.
func TestEnvoyStreams(t *testing.T) {
	b := start(t, nil)
	all := pods(b, 1)
	const event = `data: {"choices":[{"delta":{"content":"hi"},"finish_reason":null}]}` + "\n\n"
	goOn := make(chan struct{})
	for _, f := range all {
		f.chat = func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, event)
			w.(http.Flusher).Flush()
			select {
			case <-goOn:
				_, _ = io.WriteString(w, "data: [DONE]\n\n")
			case <-r.Context().Done():
			}
		}
	}
	e, is := startEnvoy(t, b, all, false).(*envoy)
	if !is {
		t.Fatal("no Envoy")
	}
	const n = 8
	var bodies [n]io.ReadCloser
	for i := range bodies {
		resp, err := http.Post(e.url+chatPath, "application/json", strings.NewReader(`{"model":"tiny","stream":true,"messages":[]}`))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		bodies[i] = resp.Body
		got := make([]byte, len(event))
		if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != event { // it arrives before the stream ends
			t.Fatalf("got %q, %v", got, err)
		}
	}
	running := func() int { st, _ := b.a.Stats(b.name); return st.Running }
	if got := running(); got != n {
		t.Errorf("%d requests run, want %d", got, n)
	}
	for _, body := range bodies[:n/2] {
		_ = body.Close()
	}
	b.eventually("the slots of those that left are free", func() bool { return running() == n/2 })
	close(goOn)
	for _, body := range bodies[n/2:] {
		if rest, err := io.ReadAll(body); err != nil || !strings.Contains(string(rest), "[DONE]") {
			t.Errorf("got %q, %v", rest, err)
		}
	}
	b.eventually("no slot is taken", b.idle)
}

// TestEnvoyOthers passes requests without a body, and large ones.
func TestEnvoyOthers(t *testing.T) {
	b := start(t, nil)
	e, is := startEnvoy(t, b, pods(b, 1), false).(*envoy)
	if !is {
		t.Fatal("no Envoy")
	}
	resp, err := http.Get(e.url + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if p, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(p), `"tiny"`) {
		t.Errorf("models: got %d %s, %v", resp.StatusCode, p, err)
	}
	long := strings.Repeat("x", 1<<20)
	if r := e.post(nil, `{"model":"tiny","messages":[{"role":"user","content":"`+long+`"}]}`); r.status != http.StatusOK || !strings.Contains(r.body, long) {
		t.Errorf("1 MiB: got %d, %d bytes, %v", r.status, len(r.body), r.cut)
	}
	if r := e.post(nil, `{"model":"unknown"}`); r.status != http.StatusNotFound || !strings.HasPrefix(r.body, `{"error":{`) {
		t.Errorf("an unknown model: got %+v", r)
	}
	b.eventually("no slot is taken", b.idle)
}

// TestEnvoyFront names the activators for all requests: those that Envoy allows.
func TestEnvoyFront(t *testing.T) {
	front := free(t)
	b := start(t, func(c *picker.Config) { c.Front = front })
	one := b.instance("one", api.Awake)
	e := startEnvoy(t, b, []*instance{one}, false)
	for _, tc := range []struct {
		allowed []string
		want    int
	}{{[]string{one.host()}, http.StatusOK}, {[]string{" , "}, http.StatusServiceUnavailable}} {
		if r := e.post(tc.allowed, chat); r.status != tc.want {
			t.Errorf("%v: got %+v", tc.allowed, r)
		}
	}
}
