package vllmsim

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const hi = `{"messages":[{"role":"user","content":"hi"}],"max_tokens":5,"temperature":0}`

var streamHi = strings.Replace(hi, "{", `{"stream":true,`, 1)

func TestFaultsOfRequests(t *testing.T) {
	s := start(t, Config{DevMode: true})
	whole := answer(t, s, "hi", `,"max_tokens":5`)
	for _, tt := range []struct {
		fault, body string
		status      int // 0: the connection is cut
		want        func(body string) bool
	}{
		{"status=503", hi, 503, func(b string) bool { return strings.Contains(b, `"code":503`) }},
		{"status=500:{\"detail\":\"x=1\"}", hi, 500, func(b string) bool { return b == `{"detail":"x=1"}` }},
		{"status=429:busy", streamHi, 429, func(b string) bool { return b == "busy" }},
		{"cut=2", streamHi, 0, func(b string) bool { return strings.Count(b, "data: ") == 3 && !strings.Contains(b, "DONE") }},
		{"cut=2", hi, 0, func(b string) bool { return b == "" }},
		{"eof=2", streamHi, 200, func(b string) bool {
			return strings.Count(b, "data: ") == 3 && !strings.Contains(b, "DONE") && !strings.Contains(b, `"length"`)
		}},
		{"error-event=2", streamHi, 200, func(b string) bool { return strings.Contains(b, `data: {"error":{"code":500,`) }},
		{"malformed=2", streamHi, 200, func(b string) bool {
			return strings.Contains(b, "data: {\"id\": \"broken\n\n") && strings.Contains(b, "DONE")
		}},
		{"big=100000", streamHi, 200, func(b string) bool { return len(b) > 100000 && strings.Contains(b, "DONE") }},
		{"garbage", hi, 200, func(b string) bool { return !strings.Contains(b, whole) && strings.Contains(b, `"length"`) }},
		{"cut=99", streamHi, 200, func(b string) bool { return strings.Contains(b, "DONE") }},
	} {
		w := post(s, "/v1/chat/completions", tt.body, Header, tt.fault)
		if w.Code != tt.status || !tt.want(w.Body.String()) {
			t.Errorf("%s: %d\n%s", tt.fault, w.Code, w.Body)
		}
	}
	if got := answer(t, s, "hi", `,"max_tokens":5`); got != whole {
		t.Errorf("afterwards it answers %q, before %q", got, whole)
	}
	if w := post(s, "/v1/chat/completions", hi, Header, "earthquake"); w.Code != http.StatusBadRequest {
		t.Errorf("an unknown fault: %d", w.Code)
	}
}

func TestFaultsOnCommand(t *testing.T) {
	s := start(t, Config{DevMode: true, Sleep: true})
	codes := func(n int) (got string) {
		for range n {
			got += fmt.Sprint(post(s, "/v1/chat/completions", hi).Code, " ")
		}
		return got
	}
	ok(t, post(s, "/vllmsim/faults", `{"faults":["status=503@1x2"]}`))
	if got := codes(4); got != "200 503 503 200 " {
		t.Errorf("one spared, two fail: %s", got)
	}
	if got := get(s, "/vllmsim/faults").Body.String(); got != "{\"faults\":[]}\n" {
		t.Errorf("what has run out is listed: %s", got)
	}
	if w := post(s, "/vllmsim/faults", `{"faults":["cut"]}`); w.Code != http.StatusBadRequest {
		t.Errorf("a cut without a number: %d", w.Code)
	}
	ok(t, post(s, "/vllmsim/faults", `{"faults":["oom-wake x1","fail-sleepx1","status=500:x"]}`))
	if w := post(s, "/sleep", ""); w.Code != 500 {
		t.Errorf("a sleep that fails: %d", w.Code)
	}
	ok(t, post(s, "/sleep", ""))
	if w := post(s, "/wake_up", ""); w.Code != 500 || !strings.Contains(w.Body.String(), "out of memory") {
		t.Errorf("a wake without memory: %d %s", w.Code, w.Body)
	}
	ok(t, post(s, "/wake_up", ""))
	ok(t, call(s, http.MethodDelete, "/vllmsim/faults", ""))
	if got := codes(1); got != "200 " {
		t.Errorf("after all faults are gone: %s", got)
	}
}

func TestHangs(t *testing.T) {
	inBubble(t, timed(), func(t *testing.T, s *Server) {
		request := func(header string) (*atomic.Int64, context.CancelFunc) {
			ctx, cancel := context.WithCancel(t.Context())
			code := &atomic.Int64{}
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "/v1/chat/completions", strings.NewReader(hi))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set(Header, header)
			go func() {
				defer func() { _ = recover() }() // the connection is cut when its client leaves
				w := &clockedWriter{header: http.Header{}}
				s.ServeHTTP(w, r)
				code.Store(200)
			}()
			return code, cancel
		}
		code, cancel := request("hang")
		time.Sleep(time.Hour)
		ok(t, post(s, "/v1/chat/completions", hi)) // others are well
		if code.Load() != 0 {
			t.Error("a request that hangs was answered")
		}
		cancel()
		synctest.Wait()
		code, cancel = request("hang-engine")
		defer cancel()
		time.Sleep(time.Hour)
		if code.Load() != 0 || get(s, "/health").Code != http.StatusOK {
			t.Error("want an engine that hangs and says that it is well")
		}
		ok(t, call(s, http.MethodDelete, "/vllmsim/faults", ""))
		time.Sleep(time.Second)
		if code.Load() != 200 {
			t.Error("the engine goes on after its fault, but the request is lost")
		}
	})
}

func TestDeadEngine(t *testing.T) {
	s, err := New(Config{Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(t.Context()) }()
	<-s.Ready()
	if w := post(s, "/v1/chat/completions", hi, Header, "dead-engine"); w.Code != 500 || !strings.Contains(w.Body.String(), "EngineCore encountered an issue") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if err := <-ended; err == nil {
		t.Error("Run ends without an error")
	}
}

func FuzzFaults(f *testing.F) {
	for _, s := range []string{"hang", "cut=3@2x1", "status=500:a@b.cx9", "x", "=", "@", "hang@x", "slow=5ms;big=9"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var faults Faults
		if err := faults.Set(text); err != nil {
			return
		}
		_ = injectedOf(faults.list)
		if again := strings.Join(faults.List(), ";"); faults.Set(again) != nil {
			t.Errorf("%q is listed as %q, which is not read", text, again)
		}
	})
}
