package functions

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// carrier answers without a network.
type carrier func(*http.Request) (int, string, error)

func (c carrier) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	status, body, err := c(r)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

func testRegistrar(t *testing.T, base http.RoundTripper, report func()) *registrar {
	t.Helper()
	m, err := newRegistrar(registrarConfig{
		Control: "http://rouse-autoscaler.knative-serving.svc", Token: "t", Base: base, Report: report,
		Request: control.RegisterRequest{Instance: "i", Namespace: "n", Revision: "r", Port: 8080},
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// runRegistrar runs m until the test's end.
func runRegistrar(t *testing.T, m *registrar) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-ended })
}

func TestTriesAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var at []time.Duration
		m := testRegistrar(t, carrier(func(r *http.Request) (int, string, error) {
			if r.URL.Path != control.PathRegister || r.Header.Get("Authorization") != "Bearer t" {
				t.Errorf("%s with %q", r.URL.Path, r.Header)
			}
			at = append(at, time.Since(began))
			switch {
			case len(at) == 1:
				return 0, "", errors.New("no route")
			case len(at) < 9:
				return 404, `{"error":{"message":"no such pod"}}`, nil
			}
			return 200, `{"function":{"name":"n/r"},"endpoint":"http://10.0.0.1:8080","epoch":4}`, nil
		}), func() {})
		runRegistrar(t, m)
		<-m.Joined()
		if a := m.Answer(); a.Function.Name != "n/r" || a.Epoch != 4 || m.Reason() != nil {
			t.Errorf("answer %+v, reason %v", a, m.Reason())
		}
		want := []time.Duration{0, 50, 150, 350, 550, 750, 950, 1150, 1350}
		for i := range want {
			if at[i] != want[i]*time.Millisecond {
				t.Errorf("try %d after %v, want %v", i, at[i], want[i]*time.Millisecond)
			}
		}
	})
}

func TestReportsAndJoinsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var joins, reports atomic.Int32
		var event atomic.Int32 // how an event is answered; 0: not at all
		event.Store(200)
		m := testRegistrar(t, carrier(func(r *http.Request) (int, string, error) {
			if r.URL.Path == control.PathRegister {
				joins.Add(1)
				return 200, `{}`, nil
			}
			if status := event.Load(); status != 0 {
				return int(status), "", nil
			}
			return 0, "", net.ErrClosed
		}), func() { reports.Add(1) })
		runRegistrar(t, m)
		expect := func(when string, j, r int32) {
			t.Helper()
			synctest.Wait()
			if joins.Load() != j || reports.Load() != r {
				t.Errorf("%s: %d joins and %d reports, want %d and %d", when, joins.Load(), reports.Load(), j, r)
			}
		}
		post := func() {
			req, err := http.NewRequest(http.MethodPost, "http://x"+control.PathEvents, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := m.Transport().RoundTrip(req)
			if err == nil {
				_ = resp.Body.Close()
			}
		}
		expect("at the beginning", 1, 1)
		for range 100 {
			m.Ask()
			time.Sleep(10 * time.Millisecond)
		}
		expect("asked for a second", 1, 5)
		time.Sleep(time.Second)
		reports.Store(0)
		post()
		expect("an event that arrives", 1, 0)
		event.Store(0)
		post()
		time.Sleep(lostAgain)
		expect("an event that was lost", 1, 1)
		event.Store(404)
		post()
		expect("an event of nobody", 2, 2)
		post()
		expect("at once again", 2, 2)
		time.Sleep(joinsApart)
		expect("a second later", 3, 3)
		event.Store(400) // an invalid event is no reason to join
		post()
		time.Sleep(10 * time.Second)
		expect("a wrong event", 3, 3)
	})
}

func TestARevisionOfAnotherClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		m := testRegistrar(t, carrier(func(*http.Request) (int, string, error) {
			tries++
			return 404, `{"error":{"message":"the class is kpa","code":"unsupported"}}`, nil
		}), func() {})
		runRegistrar(t, m)
		<-m.Alone()
		time.Sleep(time.Hour)
		if tries != 1 || !strings.Contains(m.Reason().Error(), "kpa") {
			t.Errorf("%d tries, %v", tries, m.Reason())
		}
	})
}

// TestProof reads the proof at each join: the kubelet renews it.
func TestProof(t *testing.T) {
	file := filepath.Join(t.TempDir(), "proof")
	var proofs []string
	m := testRegistrar(t, carrier(func(r *http.Request) (int, string, error) {
		var request control.RegisterRequest
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			t.Error(err)
		}
		proofs = append(proofs, request.Proof)
		return 200, "{}", nil
	}), nil)
	m.cfg.ProofFile = file
	for _, proof := range []string{"", "first", "second"} {
		if proof != "" {
			if err := os.WriteFile(file, []byte(proof), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := m.try(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"", "first", "second"}; !slices.Equal(proofs, want) {
		t.Errorf("sent %q, want %q", proofs, want)
	}
}

// Each obstacle is logged with advice.
func TestAdvice(t *testing.T) {
	m := testRegistrar(t, carrier(nil), nil)
	for want, err := range map[string]error{
		"ROUSE_CONTROL=none":            errors.New("no such host"),
		"autoscaling.knative.dev/class": api.Errorf(404, "", "x"),
		"own address":                   api.Errorf(403, "", "x"),
		"new revision":                  api.Errorf(422, "", "x"),
		"leader":                        api.Errorf(503, "", "x"),
		"log":                           api.Errorf(400, "", "x"),
	} {
		if got := m.advice(err); !strings.Contains(got, want) {
			t.Errorf("to %v: %q, want %q in it", err, got, want)
		}
	}
	for name, cfg := range map[string]registrarConfig{
		"no endpoint": {Control: "rouse", Token: "t", Request: control.RegisterRequest{Instance: "i", Namespace: "n", Revision: "r"}},
		"no revision": {Control: "http://a", Token: "t", Request: control.RegisterRequest{Instance: "i", Namespace: "n"}},
	} {
		if _, err := newRegistrar(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
