package trace

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// config is what the environment says.
type config struct {
	endpoint string
	shown    string // the endpoint without a password
	headers  map[string]string
	timeout  time.Duration
	service  string // empty: by the part
	version  string
	resource []attribute
}

// FromEnvironment makes an exporter as the environment says; nil where that names no
// endpoint. These variables of OpenTelemetry are read, those for traces before those
// for all signals:
//
//	OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, OTEL_EXPORTER_OTLP_ENDPOINT   where to
//	OTEL_EXPORTER_OTLP_TRACES_HEADERS, OTEL_EXPORTER_OTLP_HEADERS     credentials
//	OTEL_EXPORTER_OTLP_TRACES_TIMEOUT, OTEL_EXPORTER_OTLP_TIMEOUT     in milliseconds
//	OTEL_EXPORTER_OTLP_TRACES_PROTOCOL, OTEL_EXPORTER_OTLP_PROTOCOL   grpc is refused
//	OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES                       who we are
//	OTEL_TRACES_EXPORTER=none, OTEL_SDK_DISABLED=true                 no traces
//
// An error says what is wrong with them; whoever gets it can go on without traces.
func FromEnvironment(env func(string) string, version string, log *slog.Logger) (*Exporter, error) {
	of := func(name string) string {
		return cmp.Or(env("OTEL_EXPORTER_OTLP_TRACES_"+name), env("OTEL_EXPORTER_OTLP_"+name))
	}
	if strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") || env("OTEL_TRACES_EXPORTER") == "none" || of("ENDPOINT") == "" {
		return nil, nil //nolint:nilnil // a nil exporter is one that exports nothing
	}
	cfg := config{version: version, service: env("OTEL_SERVICE_NAME"), timeout: 10 * time.Second}
	if p := of("PROTOCOL"); p == "grpc" {
		return nil, fmt.Errorf("traces: the protocol %s is not spoken: set OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/json and OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://HOST:4318/v1/traces", p)
	}
	at, err := endpoint(env)
	if err != nil {
		return nil, err
	}
	cfg.endpoint, cfg.shown = at.String(), at.Redacted()
	if text := of("TIMEOUT"); text != "" {
		ms, err := strconv.Atoi(text)
		if err != nil || ms <= 0 || ms > mostTimeout {
			return nil, fmt.Errorf("traces: OTEL_EXPORTER_OTLP_TIMEOUT is %q: want milliseconds, such as 10000, and at most %d", text, mostTimeout)
		}
		cfg.timeout = time.Duration(ms) * time.Millisecond
	}
	if cfg.headers, err = pairs("OTEL_EXPORTER_OTLP_HEADERS", of("HEADERS")); err != nil {
		return nil, err
	}
	about, err := pairs("OTEL_RESOURCE_ATTRIBUTES", env("OTEL_RESOURCE_ATTRIBUTES"))
	if err != nil {
		return nil, err
	}
	for k, v := range about {
		if k == "service.name" {
			cfg.service = cmp.Or(cfg.service, v)
			continue
		}
		cfg.resource = append(cfg.resource, attributes(k, v)...)
	}
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Exporter{cfg: cfg, http: &http.Client{CheckRedirect: stay, Transport: http.DefaultTransport.(*http.Transport).Clone()}, log: log, queue: make(chan group, queue)}, nil
}

// endpoint is where traces are posted: one for traces is taken as it is, one for all signals is a base.
func endpoint(env func(string) string) (*url.URL, error) {
	name, text := "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	base := text == ""
	if base {
		name, text = "OTEL_EXPORTER_OTLP_ENDPOINT", env("OTEL_EXPORTER_OTLP_ENDPOINT")
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		if strings.Contains(text, "@") {
			text = "…" // it may have a password
		}
		return nil, fmt.Errorf("traces: %s is %q: want a URL such as http://collector:4318", name, text)
	}
	if base {
		return u.JoinPath("v1", "traces"), nil
	}
	return u, nil
}

// mostTimeout is in milliseconds.
const mostTimeout = 3_600_000

// pairs reads KEY=VALUE,KEY=VALUE, percent-encoded (W3C Baggage).
func pairs(name, text string) (map[string]string, error) {
	all := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		k, v, found := strings.Cut(pair, "=")
		decoded, err := url.PathUnescape(strings.TrimSpace(v))
		if !found || err != nil || strings.TrimSpace(k) == "" || strings.ContainsAny(decoded, "\r\n\x00") {
			return nil, fmt.Errorf("traces: %s: want KEY=VALUE pairs separated by commas, with %%XX for what is neither letter nor digit", name) // the value may be a secret
		}
		all[strings.TrimSpace(k)] = decoded
	}
	return all, nil
}
