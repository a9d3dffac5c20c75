package vllmsim

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/e2e/vllmsim/device"
)

// timed is a server in real (here: virtual) time whose tokens are easy to reckon with.
func timed() Config {
	return Config{Model: "m", TimeScale: 1, DevMode: true, Sleep: true, LoadTime: -1, Device: device.Config{Memory: 200 << 30},
		Weights: 75e9, // three seconds to and from host memory, 25 from disk
		Timing:  Timing{Prefill: time.Millisecond, Step: 10 * time.Millisecond, Sequence: 2 * time.Millisecond}}
}

// inBubble runs a test in virtual time; what is started in it ends with it.
func inBubble(t *testing.T, cfg Config, test func(t *testing.T, s *Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		<-s.Ready()
		test(t, s)
		cancel()
		<-ended
	})
}

// took is how long f takes.
func took(f func()) time.Duration {
	begin := time.Now()
	f()
	return time.Since(begin)
}

// tenTokens is a prompt of ten tokens and as many of output as asked.
func tenTokens(output int) string {
	return fmt.Sprintf(`{"prompt":[1,3,5,7,9,11,13,15,17,19],"ignore_eos":true,"max_tokens":%d}`, output)
}

func TestTimeOfTokens(t *testing.T) {
	inBubble(t, timed(), func(t *testing.T, s *Server) {
		alone := took(func() { ok(t, post(s, "/v1/completions", tenTokens(5))) })
		if want := 20*time.Millisecond + 4*12*time.Millisecond; alone != want {
			t.Errorf("alone: %s, want %s", alone, want)
		}
		// Others' steps are everybody's steps: ten at once take longer for each, and less than one after the other.
		var all sync.WaitGroup
		together := took(func() {
			for i := range 10 {
				all.Go(func() {
					post(s, "/v1/completions", strings.Replace(tenTokens(5), "[1,", fmt.Sprintf("[%d,", 2*i+21), 1))
				})
			}
			all.Wait()
		})
		if together <= alone || together >= 10*alone {
			t.Errorf("ten together: %s; alone: %s", together, alone)
		}
	})
}

func TestStreamComesTokenByToken(t *testing.T) {
	inBubble(t, timed(), func(t *testing.T, s *Server) {
		begin := time.Now()
		w := &clockedWriter{header: http.Header{}}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/completions", strings.NewReader(strings.Replace(tenTokens(4), "{", `{"stream":true,`, 1)))
		if err != nil {
			t.Fatal(err)
		}
		s.ServeHTTP(w, r)
		var got []time.Duration
		for _, at := range w.at {
			got = append(got, at.Sub(begin))
		}
		ms := time.Millisecond
		want := []time.Duration{20 * ms, 32 * ms, 44 * ms, 56 * ms, 56 * ms} // four tokens, the last with the reason of the end, and [DONE]
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("events at %v, want %v", got, want)
		}
	})
}

// clockedWriter notes when each event was flushed.
type clockedWriter struct {
	header http.Header
	at     []time.Time
}

func (w *clockedWriter) Header() http.Header         { return w.header }
func (w *clockedWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w *clockedWriter) WriteHeader(int)             {}
func (w *clockedWriter) Flush()                      { w.at = append(w.at, time.Now()) }

func TestQueue(t *testing.T) {
	cfg := timed()
	cfg.MaxSeqs = 1
	inBubble(t, cfg, func(t *testing.T, s *Server) {
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { post(s, "/v1/completions", tenTokens(5)) })
		}
		synctest.Wait()
		time.Sleep(time.Millisecond)
		metrics := get(s, "/metrics").Body.String()
		for _, want := range []string{`vllm:num_requests_running{engine="0",model_name="m"} 1`, `vllm:num_requests_waiting{engine="0",model_name="m"} 2`} {
			if !strings.Contains(metrics, want) {
				t.Errorf("the metrics lack %s", want)
			}
		}
		all.Wait()
	})
}

func TestTimeOfSleepAndWake(t *testing.T) {
	inBubble(t, timed(), func(t *testing.T, s *Server) {
		for _, tt := range []struct {
			path string
			want time.Duration
		}{
			{"/sleep", 3 * time.Second},                   // to host memory
			{"/wake_up", 3 * time.Second},                 //
			{"/sleep?level=1&mode=wait", 3 * time.Second}, //
			{"/wake_up", 3 * time.Second},                 //
			{"/sleep?level=2", 0},                         // dropped
			{"/wake_up?tags=weights", 0},                  // only mapped
			{"/collective_rpc", 25 * time.Second},         // read from disk
			{"/wake_up?tags=kv_cache", 0},                 //
			{"/reset_prefix_cache", 0},                    //
			{"/sleep?level=0", 0}, {"/wake_up", 0},        // scheduling alone
		} {
			if got := took(func() { ok(t, post(s, tt.path, `{"method":"reload_weights"}`)) }); got != tt.want {
				t.Errorf("%s took %s, want %s", tt.path, got, tt.want)
			}
		}
	})
}

func TestTimeOfLoading(t *testing.T) {
	for _, tt := range []struct {
		load  time.Duration
		scale float64
		want  time.Duration
	}{{0, 1, 25 * time.Second}, {0, 0.5, 12500 * time.Millisecond}, {time.Minute, 1, time.Minute}, {-1, 1, 0}, {0, 0, 0}} {
		synctest.Test(t, func(t *testing.T) {
			cfg := timed()
			cfg.LoadTime, cfg.TimeScale = tt.load, tt.scale
			s, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			begin := time.Now()
			go func() { ended <- s.Run(ctx) }()
			if tt.want > 0 {
				synctest.Wait()
				if w := get(s, "/health"); w.Code != http.StatusServiceUnavailable {
					t.Errorf("while it loads: %d", w.Code)
				}
			}
			<-s.Ready()
			if got := time.Since(begin); got != tt.want {
				t.Errorf("load time %s, scale %g: took %s, want %s", tt.load, tt.scale, got, tt.want)
			}
			cancel()
			<-ended
		})
	}
}

func TestAsleepNothingIsAnswered(t *testing.T) {
	inBubble(t, timed(), func(t *testing.T, s *Server) {
		ok(t, post(s, "/sleep", ""))
		done := make(chan time.Time, 1)
		go func() { ok(t, post(s, "/v1/completions", tenTokens(2))); done <- time.Now() }()
		time.Sleep(time.Hour)
		select {
		case <-done:
			t.Error("it answered in its sleep")
		default:
		}
		ok(t, post(s, "/wake_up?tags=weights", ""))
		time.Sleep(time.Hour)
		select {
		case <-done:
			t.Error("it answered without its KV cache")
		default:
		}
		woken := time.Now()
		ok(t, post(s, "/wake_up?tags=kv_cache", ""))
		if at := <-done; at.Sub(woken) != 32*time.Millisecond {
			t.Errorf("answered %s after the wake, want 32ms", at.Sub(woken))
		}
	})
}

func TestModesOfSleep(t *testing.T) {
	for _, tt := range []struct {
		mode   string
		reason string
		sleeps time.Duration
	}{
		{"abort", "abort", 3 * time.Second},
		{"wait", "length", 3*time.Second + 20*time.Millisecond + 9*12*time.Millisecond - 50*time.Millisecond},
	} {
		inBubble(t, timed(), func(t *testing.T, s *Server) {
			done := make(chan string, 1)
			go func() { done <- post(s, "/v1/completions", tenTokens(10)).Body.String() }()
			time.Sleep(50 * time.Millisecond)
			if got := took(func() { ok(t, post(s, "/sleep?mode="+tt.mode, "")) }); got != tt.sleeps {
				t.Errorf("%s: sleep took %s, want %s", tt.mode, got, tt.sleeps)
			}
			if body := <-done; !strings.Contains(body, `"finish_reason":"`+tt.reason+`"`) {
				t.Errorf("%s: %s, want the reason %s", tt.mode, body, tt.reason)
			}
		})
	}
	if w := post(start(t, Config{DevMode: true}), "/sleep?mode=never", ""); w.Code != http.StatusInternalServerError {
		t.Errorf("an unknown mode: %d", w.Code)
	}
}

func TestClientWhoLeavesStopsItsGeneration(t *testing.T) {
	inBubble(t, timed(), func(t *testing.T, s *Server) {
		ctx, leave := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "/v1/completions", strings.NewReader(tenTokens(4000)))
		if err != nil {
			t.Fatal(err)
		}
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			defer func() { _ = recover() }() // the server ends the connection by a panic
			s.ServeHTTP(&clockedWriter{header: http.Header{}}, r)
		}()
		time.Sleep(100 * time.Millisecond)
		leave()
		<-gone
		if l := s.engine.batch.Load(); l.Running+l.Waiting != 0 {
			t.Errorf("%+v still runs", l)
		}
	})
}

// TestFirstSleep: the first sleep at level 1 pins host memory, and no later one has to.
func TestFirstSleep(t *testing.T) {
	cfg := timed()
	cfg.FirstSleep = 18
	inBubble(t, cfg, func(t *testing.T, s *Server) {
		for _, want := range []time.Duration{54 * time.Second, 3 * time.Second, 3 * time.Second} {
			if got := took(func() { ok(t, post(s, "/sleep?level=1", "")) }); got < want || got > want+100*time.Millisecond {
				t.Errorf("it takes %s to fall asleep, want %s", got, want)
			}
			ok(t, post(s, "/wake_up", ""))
		}
	})
}
