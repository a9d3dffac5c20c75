//go:build linux

package functions_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions/proxy"
)

// handle is a handler as a program: it passes requests on and counts them in a header.
func handle() int {
	at, err := url.Parse(os.Getenv("ROUSE_RUNTIME_URL"))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	n := 0
	proxy := &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(at)
			r.Out.Header.Set("Authorization", "Bearer "+os.Getenv("OPENAI_API_KEY"))
			r.Out.Header.Set(control.HeaderWait, "true") // a handler may not set it
		},
		ModifyResponse: func(r *http.Response) error {
			n++
			r.Header.Set("X-Handled", fmt.Sprint(n))
			return nil
		},
	}
	fmt.Println(http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), proxy))
	return 1
}

func TestRequestsGoThroughTheHandler(t *testing.T) {
	i := newInstance(t)
	cfg := i.config()
	cfg.Function.Handler = []string{"/usr/bin/env", "FUNCTION_TEST=handler", os.Args[0]}
	i.run(cfg)
	i.until(api.Awake)
	for n, body := range []string{whole, stream} {
		resp, got, err := i.ask("/v1/chat/completions", body, "")
		if err != nil || resp.StatusCode != 200 || resp.Header.Get("X-Handled") != fmt.Sprint(n+1) || !strings.Contains(got, "t2") {
			t.Errorf("request %d: %v, %v, body %s; want the answer, handled", n, resp, err, got)
		}
	}
	resp, got, err := i.ask("/sleep", "{}", "")
	if err != nil || resp.StatusCode != 404 {
		t.Errorf("an administrative path: %v, %v, %s; want 404", resp, err, got)
	}
	// It stays while the runtime sleeps, and serves again.
	if _, err := i.api.Sleep(t.Context(), i.at, control.SleepRequest{Level: 1, Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	if resp, _, err := i.ask("/v1/chat/completions", whole, ""); err != nil || resp.Header.Get(control.HeaderRefused) != api.CodeAsleep {
		t.Errorf("asleep: %v, %v; want a refusal", resp, err)
	}
	if _, err := i.api.Wake(t.Context(), i.at, api.Grant{Epoch: 2}); err != nil {
		t.Fatal(err)
	}
	i.wantAnswer()
}

func TestWrap(t *testing.T) {
	i := newInstance(t)
	cfg := i.config()
	cfg.Wrap = func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Wrapped", "yes")
			next.ServeHTTP(w, r)
		})
	}
	i.run(cfg)
	i.until(api.Awake)
	resp, body, err := i.ask("/v1/chat/completions", whole, "")
	if err != nil || resp.Header.Get("X-Wrapped") != "yes" || !strings.Contains(body, "t2") {
		t.Errorf("%v, %v, %s; want a wrapped answer", resp, err, body)
	}
	envelope := `{"inputs":["{\"method\":\"POST\",\"url_path\":\"/chat/completions\",\"headers\":{\"content-type\":\"application/json\"},\"body\":\"{\\\"model\\\":\\\"fake\\\",\\\"max_tokens\\\":3}\",\"body_type\":\"text\",\"requires_openai_compat\":true}"]}`
	resp, body, err = i.ask("/invocations", envelope, "")
	if err != nil || resp.StatusCode != 200 || !strings.Contains(body, `\"status_code\": 200`) && !strings.Contains(body, `\"status_code\":200`) || !strings.Contains(body, "x-wrapped") {
		t.Errorf("in an envelope: %v, %v, %s; want a wrapped answer", resp, err, body)
	}
}

// A client that knows that the function supports HTTP/2 may use it without TLS.
func TestHTTP2(t *testing.T) {
	i := newInstance(t)
	cfg := i.config()
	cfg.Listen = "http://127.0.0.1:0"
	i.run(cfg)
	i.until(api.Awake)
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &protocols}
	defer transport.CloseIdleConnections()
	for _, body := range []string{whole, stream} {
		resp, err := (&http.Client{Transport: transport}).Post(i.at.URL("/v1/chat/completions"), "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.ProtoMajor != 2 || !strings.Contains(string(raw), "t2") {
			t.Errorf("%s %s, %v: %s; want the answer over HTTP/2", resp.Proto, resp.Status, err, raw)
		}
	}
	resp, err := (&http.Client{Transport: transport}).Post(i.at.URL(proxy.PathGRPCHealth), "application/grpc", strings.NewReader("\x00\x00\x00\x00\x00"))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || string(raw) != "\x00\x00\x00\x00\x02\x08\x01" || resp.Trailer.Get("Grpc-Status") != "0" || resp.Header.Get("Content-Type") != "application/grpc" {
		t.Errorf("gRPC's health check: %s %v, %v: %q, %v; want SERVING", resp.Status, resp.Header, err, raw, resp.Trailer)
	}
}

// Metrics are only for the control plane, unless they are declared open.
func TestOpenMetrics(t *testing.T) {
	for open, want := range map[bool]int{false: 403, true: 200} {
		i := newInstance(t)
		cfg := i.config()
		cfg.Listen, cfg.OpenMetrics = "http://127.0.0.1:0", open
		i.run(cfg)
		if status, body := i.get("/metrics"); status != want || open && !strings.Contains(body, "vllm:num_requests_running") {
			t.Errorf("open %t: %d, want %d: %s", open, status, want, body)
		}
	}
}
