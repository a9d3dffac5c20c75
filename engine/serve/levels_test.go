package serve_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/engine/serve"
)

// Tokens are counted while requests run and wait, and capacity does not depend on them.
func TestTokensOfRequestsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, serve.Config{MaxSeqs: 4}, time.Second)
		var clients sync.WaitGroup
		for i := range 6 { // four run, two wait
			clients.Go(func() {
				c.post("/v1/completions", fmt.Sprintf(`{"prompt":[5,6,7,8,9,10,%d],"max_tokens":9,"ignore_eos":true}`, 20+i))
			})
		}
		time.Sleep(3500 * time.Millisecond) // three steps are over: the prompt, and two tokens
		synctest.Wait()
		_, text := c.do("GET", "/metrics", "")
		value := func(name string) (v int) {
			for line := range strings.Lines(text) {
				if strings.HasPrefix(line, name+"{") {
					_, _ = fmt.Sscan(line[strings.LastIndexByte(line, ' '):], &v)
					return v
				}
			}
			t.Errorf("there is no %s", name)
			return 0
		}
		running, waiting, capacity := value("vllm:num_tokens_running"), value("vllm:num_tokens_waiting"), value("vllm:max_token_capacity")
		if running < 4*7 || running > 4*(7+9) || running > capacity || waiting != 2*7 {
			t.Errorf("%d tokens run and %d wait of %d: want those of four requests, and of two prompts", running, waiting, capacity)
		}
		clients.Wait()
		_, text = c.do("GET", "/metrics", "")
		if running, waiting := value("vllm:num_tokens_running"), value("vllm:num_tokens_waiting"); running != 0 || waiting != 0 || value("vllm:max_token_capacity") != capacity {
			t.Errorf("idle: %d tokens run and %d wait of %d", running, waiting, value("vllm:max_token_capacity"))
		}
		if n := value("rouse_time_per_prefill_token_seconds_count"); n != 6 {
			t.Errorf("%d times per prompt token, want 6", n)
		}
		if n := value("vllm:time_per_output_token_seconds_count"); n != 6*8 {
			t.Errorf("%d times between tokens, want 48", n)
		}
	})
}
