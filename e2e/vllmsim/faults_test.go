package vllmsim

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
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
		{"cut=2", streamHi, 0, func(b string) bool { return strings.Count(b, "data: ") == 3 && !strings.Contains(b, "DONE") }},
		{"cut=2", hi, 0, func(b string) bool { return b == "" }},
		{"eof=2", streamHi, 200, func(b string) bool {
			return strings.Count(b, "data: ") == 3 && !strings.Contains(b, "DONE") && !strings.Contains(b, `"length"`)
		}},
		{"error-event=2", streamHi, 200, func(b string) bool { return strings.Contains(b, `data: {"error":{"code":500,`) }},
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

func TestFaultsAreCounted(t *testing.T) {
	s := start(t, Config{DevMode: true, Sleep: true})
	codes := func(n int) (got string) {
		for range n {
			got += fmt.Sprint(post(s, "/v1/chat/completions", hi).Code, " ")
		}
		return got
	}
	if err := s.Faults.Set("status=503@1x2"); err != nil {
		t.Fatal(err)
	}
	if got := codes(4); got != "200 503 503 200 " {
		t.Errorf("one spared, two fail: %s", got)
	}
	for _, wrong := range []string{"cut", "status=9", "slow=x", "hang-wake=3", "earthquake", "status=503@", "cut=1x"} {
		if err := s.Faults.Set(wrong); err == nil {
			t.Errorf("%s is a fault", wrong)
		}
	}
}

func FuzzFaults(f *testing.F) {
	for _, s := range []string{"hang-wake", "cut=3@2x1", "status=500@2x9", "x", "=", "@", "hang-wake@x", "slow=5ms;eof=9"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var faults Faults
		if err := faults.Set(text); err != nil {
			return
		}
		_ = injectedOf(faults.list)
	})
}
