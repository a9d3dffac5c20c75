package activator

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// pieces is a body whose pieces come after pauses; it ends with its request.
type pieces struct {
	ctx   context.Context
	every time.Duration
	left  []string
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.left) == 0 {
		return 0, io.EOF
	}
	select {
	case <-time.After(p.every):
	case <-p.ctx.Done():
		return 0, context.Cause(p.ctx)
	}
	n := copy(b, p.left[0])
	p.left = p.left[1:]
	return n, nil
}

func (p *pieces) Close() error { return nil }

// TestLimits: an instance answers a stream of 3 events, the first after a second, then one each second.
func TestLimits(t *testing.T) {
	const event = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":null}]}\n\n"
	const last = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
	for _, tc := range []struct {
		name             string
		first, idle, all time.Duration
		status           int
		took             time.Duration
		want             []string
	}{
		{"none", 0, 0, 0, 200, 3 * time.Second, []string{event + event + last}},
		{"all are long enough", 1500 * time.Millisecond, 1500 * time.Millisecond, 4 * time.Second, 200, 3 * time.Second, []string{event + event + last}},
		{"first byte", 500 * time.Millisecond, 0, 0, 504, 500 * time.Millisecond,
			[]string{`{"error":{"message":"the answer did not begin within the function's limit of 500ms (responseStartTimeoutSeconds, idleTimeoutSeconds or rouse.dev/first-byte-timeout)","type":"timeout_error","param":null,"code":"request_timeout"}}`}},
		{"the first byte is no pause", 0, 500 * time.Millisecond, 0, 200, 1500 * time.Millisecond,
			[]string{event + `data: {"error":{"message":"the answer paused for longer than the function's limit of 500ms (idleTimeoutSeconds or rouse.dev/idle-timeout)"`}},
		{"total", 0, 0, 2500 * time.Millisecond, 200, 2500 * time.Millisecond,
			[]string{event + event + `data: {"error":{"message":"the answer took longer than the function's limit of 2.5s (timeoutSeconds or rouse.dev/request-timeout)"`}},
		{"total before the first byte", 2 * time.Second, time.Second, 900 * time.Millisecond, 504, 900 * time.Millisecond,
			[]string{"limit of 900ms (timeoutSeconds or rouse.dev/request-timeout)"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				transport := transportFunc(func(r *http.Request) (*http.Response, error) {
					_ = r.Body.Close()
					body := &pieces{r.Context(), time.Second, []string{event, event, last}}
					return &http.Response{StatusCode: 200, ContentLength: -1, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: body, Request: r}, nil
				})
				a, err := New(Config{Name: "one"}, Deps{Emitter: api.EmitterFunc(func(api.Event) {}), Waker: wakerFunc(nil), Transport: transport})
				if err != nil {
					t.Fatal(err)
				}
				a.PutFunction(api.Function{Name: "default/m", FirstByteTimeout: tc.first, IdleTimeout: tc.idle, RequestTimeout: tc.all})
				a.ObserveInstance(api.InstanceStatus{Instance: "m-0001", Function: "default/m", State: api.Awake, Seq: 1, Endpoint: "unix:/s", Concurrency: 1})
				began := time.Now()
				w := httptest.NewRecorder()
				a.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, chatPath, strings.NewReader(`{"model":"m","stream":true}`)))
				if took := time.Since(began); took != tc.took || w.Code != tc.status {
					t.Errorf("got %d after %s, want %d after %s", w.Code, took, tc.status, tc.took)
				}
				for _, want := range tc.want {
					if got := w.Body.String(); !strings.Contains(got, want) {
						t.Errorf("got %q, want %q in it", got, want)
					}
				}
				if s, _ := a.Stats("default/m"); s.Running != 0 {
					t.Errorf("%d slots are still in use", s.Running)
				}
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				_ = a.Run(ctx)
			})
		})
	}
}

// TestAHeaderBeginsAPlainAnswer: the answer of a container that is no model server begins with its header, which its client gets at
// once, and ends with its trailer.
func TestAHeaderBeginsAPlainAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := transportFunc(func(r *http.Request) (*http.Response, error) {
			_ = r.Body.Close()
			body := &pieces{r.Context(), time.Minute, []string{"slept"}}
			return &http.Response{StatusCode: 200, ContentLength: -1, Header: http.Header{"Content-Type": {"text/plain"}}, Body: body,
				Trailer: http.Header{"X-End": {"whole"}, control.HeaderTenant: {"another"}}, Request: r}, nil
		})
		a, err := New(Config{Name: "one"}, Deps{Emitter: api.EmitterFunc(func(api.Event) {}), Waker: wakerFunc(nil), Transport: transport})
		if err != nil {
			t.Fatal(err)
		}
		a.PutFunction(api.Function{Name: "default/m", Runtime: api.Runtime{Kind: api.RuntimeHTTP}, FirstByteTimeout: time.Second})
		a.ObserveInstance(api.InstanceStatus{Instance: "m-0001", Function: "default/m", State: api.Awake, Seq: 1, Endpoint: "unix:/s", Concurrency: 1})
		began, w := time.Now(), &flushed{ResponseRecorder: httptest.NewRecorder()}
		a.ServeFunction(w, httptest.NewRequest(http.MethodGet, "/anything", nil), "default/m")
		if w.Code != 200 || w.Body.String() != "slept" || w.at.IsZero() || w.at.After(began.Add(time.Second)) {
			t.Errorf("got %d %q, with the header after %s; want 200, and the header at once", w.Code, w.Body, w.at.Sub(began))
		}
		if got := w.Result().Trailer; len(got) != 1 || got.Get("X-End") != "whole" {
			t.Errorf("the trailer is %v", got)
		}
		// If its time is up, it ends with that message, as in Knative.
		a.PutFunction(api.Function{Name: "default/m", Runtime: api.Runtime{Kind: api.RuntimeHTTP}, RequestTimeout: time.Second})
		w = &flushed{ResponseRecorder: httptest.NewRecorder()}
		a.ServeFunction(w, httptest.NewRequest(http.MethodGet, "/anything", nil), "default/m")
		if w.Code != 200 || !strings.Contains(w.Body.String(), "1s") {
			t.Errorf("after its time: got %d %q; want 200, ending with the time that it may take", w.Code, w.Body)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = a.Run(ctx)
	})
}

// flushed notes when a response was flushed first.
type flushed struct {
	*httptest.ResponseRecorder

	at time.Time
}

func (f *flushed) Flush() {
	if f.at.IsZero() {
		f.at = time.Now()
	}
	f.ResponseRecorder.Flush()
}

// TestIdleEndsWhatIsNoStream: a body without events that pauses is cut, and its client notices.
func TestIdleEndsWhatIsNoStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := transportFunc(func(r *http.Request) (*http.Response, error) {
			_ = r.Body.Close()
			body := &pieces{r.Context(), time.Second, []string{`{"half":`, `1}`}}
			return &http.Response{StatusCode: 200, ContentLength: -1, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, Request: r}, nil
		})
		a, err := New(Config{Name: "one"}, Deps{Emitter: api.EmitterFunc(func(api.Event) {}), Waker: wakerFunc(nil), Transport: transport})
		if err != nil {
			t.Fatal(err)
		}
		a.PutFunction(api.Function{Name: "default/m", IdleTimeout: 100 * time.Millisecond})
		a.ObserveInstance(api.InstanceStatus{Instance: "m-0001", Function: "default/m", State: api.Awake, Seq: 1, Endpoint: "unix:/s", Concurrency: 1})
		defer func() {
			if got := recover(); got != http.ErrAbortHandler {
				t.Errorf("the handler ended with %v, want the connection to be cut", got)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_ = a.Run(ctx)
		}()
		a.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, chatPath, strings.NewReader(`{"model":"m"}`)))
	})
}

// TestLimitsStandStillInTheQueue: limits of time stand still while the request waits for its turn at the instance, begin
// when it has come, and do not care for other interim answers.
func TestLimitsStandStillInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		c := &call{ctx: ctx, cancel: cancel}
		last, none := c.limit(time.Second, tookTooLong), c.limit(0, beganTooLate)
		trace := httptrace.ContextClientTrace(c.whileQueued(none, last))
		interim := func(status int, ms string) {
			if err := trace.Got1xxResponse(status, textproto.MIMEHeader{control.HeaderQueue: {ms}}); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(900 * time.Millisecond)
		interim(http.StatusProcessing, "0")
		time.Sleep(time.Minute)
		if interim(http.StatusProcessing, "60001"); c.sent.queued.Load() {
			t.Error("it still waits")
		}
		time.Sleep(900 * time.Millisecond)
		if ctx.Err() != nil {
			t.Fatalf("ended by %v although its turn has just come", context.Cause(ctx))
		}
		interim(http.StatusProcessing, "")
		interim(http.StatusEarlyHints, "0")
		interim(http.StatusProcessing, "60001") // a second time
		time.Sleep(200 * time.Millisecond)
		var late *api.Error
		if !errors.As(context.Cause(ctx), &late) || late.Code != api.CodeRequestTimeout {
			t.Errorf("ended by %v, want the limit", context.Cause(ctx))
		}
	})
}

// TestWaitEndsWithItsInstance: a request whose instance was lost while it waited there is sent again, and no longer waits:
// a client that leaves has used what was done for it since.
func TestWaitEndsWithItsInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		transport := transportFunc(func(r *http.Request) (*http.Response, error) {
			_ = r.Body.Close()
			if attempts++; attempts == 1 {
				err := httptrace.ContextClientTrace(r.Context()).Got1xxResponse(http.StatusProcessing, textproto.MIMEHeader{control.HeaderQueue: {"0"}})
				return nil, errors.Join(err, errors.New("connection reset"))
			}
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		var charged uses
		a, err := New(Config{Name: "one"}, Deps{Emitter: api.EmitterFunc(func(api.Event) {}), Waker: wakerFunc(nil), Transport: transport, Others: &charged})
		if err != nil {
			t.Fatal(err)
		}
		a.PutFunction(api.Function{Name: "default/m", Hold: api.Hold{Timeout: time.Minute, Capacity: 10, MaxBytes: api.MiB}})
		a.ObserveInstance(api.InstanceStatus{Instance: "m-0001", Function: "default/m", State: api.Awake, Seq: 1, Endpoint: "unix:/s", Concurrency: 1})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		a.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, chatPath, strings.NewReader(`{"model":"m"}`)))
		if attempts != 2 || charged.cost <= 0 {
			t.Errorf("%d attempts, and %g charged", attempts, charged.cost)
		}
		cancel()
		_ = a.Run(ctx)
	})
}

// TestResumedStreamWaits: a client that leaves while its stream, which was cut, waits for a turn at the next instance has
// used what it has got.
func TestResumedStreamWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		transport := transportFunc(func(r *http.Request) (*http.Response, error) {
			_ = r.Body.Close()
			if attempts++; attempts == 1 {
				return &http.Response{StatusCode: 200, ContentLength: -1, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader(sent(0, 2))), Request: r}, nil
			}
			if err := httptrace.ContextClientTrace(r.Context()).Got1xxResponse(http.StatusProcessing, textproto.MIMEHeader{control.HeaderQueue: {"0"}}); err != nil {
				t.Error(err)
			}
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		var charged uses
		a, err := New(Config{Name: "one"}, Deps{Emitter: api.EmitterFunc(func(api.Event) {}), Waker: wakerFunc(nil), Transport: transport, Others: &charged})
		if err != nil {
			t.Fatal(err)
		}
		a.PutFunction(api.Function{Name: "default/m", Runtime: api.Runtime{Kind: api.RuntimeEngine}, Hold: api.Hold{Timeout: time.Minute, Capacity: 10, MaxBytes: api.MiB}})
		a.ObserveInstance(api.InstanceStatus{Instance: "m-0001", Function: "default/m", State: api.Awake, Seq: 1, Endpoint: "unix:/s", Concurrency: 1})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		a.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, chatPath, strings.NewReader(`{"model":"m","stream":true}`)))
		if attempts != 2 || charged.cost <= 0 {
			t.Errorf("%d attempts, and %g charged", attempts, charged.cost)
		}
		cancel()
		_ = a.Run(ctx)
	})
}
