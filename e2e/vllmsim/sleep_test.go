package vllmsim

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/e2e/vllmsim/device"
)

const gibibyte = int64(1) << 30

// sleeper shares the devices of dir with others: awake it takes 0.9 of 80 GiB.
func sleeper(dir string) Config {
	return Config{DevMode: true, Sleep: true, Weights: 16 * gibibyte, Device: device.Config{Dir: dir, Memory: 80 * gibibyte}}
}

// usedGiB returns the memory in use on the first device of dir, in whole GiB.
func usedGiB(t *testing.T, dir string) int64 {
	t.Helper()
	devices, err := device.List(dir)
	if err != nil || len(devices) == 0 {
		t.Fatalf("devices %v, %v", devices, err)
	}
	return devices[0].Used() / gibibyte
}

func TestTwoThatDoNotFitTakeTurns(t *testing.T) {
	dir := t.TempDir()
	a := start(t, sleeper(dir))
	if got := usedGiB(t, dir); got != 72 {
		t.Errorf("awake: %d GiB, want 72", got)
	}
	hello := answer(t, a, "hello")
	ok(t, post(a, "/sleep?level=1", ""))
	if got := usedGiB(t, dir); got != 0 { // half a GiB is left
		t.Errorf("asleep: %d GiB, want a residue below 1", got)
	}
	if d, _ := device.List(dir); d[0].Used() != 512<<20 {
		t.Errorf("asleep: %+v, want the residue on the device", d[0].Processes)
	}
	b := start(t, sleeper(dir))
	for _, path := range []string{"/wake_up", "/wake_up?tags=weights"} {
		w := post(a, path, "")
		if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "CUDA Error: out of memory at") {
			t.Errorf("%s beside another that is awake: %d %s", path, w.Code, w.Body)
		}
		if !strings.Contains(get(a, "/is_sleeping").Body.String(), "true") {
			t.Error("it does not sleep any more")
		}
	}
	ok(t, post(b, "/sleep?level=2", ""))
	ok(t, post(a, "/wake_up", ""))
	if got := answer(t, a, "hello"); got != hello {
		t.Errorf("after its sleep it answers %q, before %q", got, hello)
	}
	if got := usedGiB(t, dir); got != 72 {
		t.Errorf("awake again: %d GiB, want 72", got)
	}
}

// A wake succeeds with invalid weights: only a check of the answers shows it.
func TestGarbageAfterAWake(t *testing.T) {
	cfg := sleeper("")
	cfg.Faults = []string{"garbage-wake@1x1"}
	s := start(t, cfg)
	want := answer(t, s, "hello")
	for _, good := range []bool{true, false} {
		ok(t, post(s, "/sleep?level=1", ""))
		ok(t, post(s, "/wake_up", ""))
		if got := answer(t, s, "hello"); (got == want) != good {
			t.Errorf("after a wake that should be good=%t: %q, before %q", good, got, want)
		}
	}
}

// A device falls off the bus: its users die at their next step, and can't start again.
func TestADeviceIsLost(t *testing.T) {
	dir := t.TempDir()
	a := start(t, sleeper(dir))
	answer(t, a, "hello")
	if err := device.Remove(dir, 0); err != nil {
		t.Fatal(err)
	}
	w := post(a, "/v1/completions", `{"prompt":"hello"}`)
	if h := get(a, "/health"); w.Code != http.StatusInternalServerError || h.Code != http.StatusServiceUnavailable {
		t.Errorf("on a lost device: %d %s, health %d; want 500 and a dead engine", w.Code, w.Body, h.Code)
	}
	zero := "0"
	if err := device.Create(dir, device.New(1, 80*gibibyte)); err != nil {
		t.Fatal(err)
	}
	cfg := sleeper(dir)
	cfg.Model, cfg.Device.Visible, cfg.Device.Memory = "late", &zero, 0
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "No CUDA GPUs are available") {
		t.Errorf("a start on a lost device: %v", err)
	}
}

func TestStartWithoutMemoryFails(t *testing.T) {
	dir := t.TempDir()
	start(t, sleeper(dir))
	for _, tt := range []struct {
		change func(*Config)
		want   string
	}{
		{func(*Config) {}, "is less than desired GPU memory utilization (0.9, 72.00 GiB). Decrease GPU memory utilization"},
		{func(c *Config) { c.Utilization = 0.05; c.Weights = 20 * gibibyte }, "torch.OutOfMemoryError"},
		{func(c *Config) { c.Utilization = 0.01; c.Weights = gibibyte }, "No available memory for the cache blocks"},
		{func(c *Config) { c.Utilization, c.Weights, c.MaxModelLen = 0.05, gibibyte, 1<<20 }, "max seq len (1048576)"},
		{func(c *Config) { c.Device.Visible = new("7"); c.Device.Memory = 0 }, "No CUDA GPUs are available"},
	} {
		cfg := sleeper(dir)
		cfg.Model = "late"
		tt.change(&cfg)
		s, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		var failed startError
		if err := s.Run(t.Context()); !errors.As(err, &failed) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("started beside another: %v, want %q", err, tt.want)
		}
	}
	if got := usedGiB(t, dir); got != 72 {
		t.Errorf("%d GiB used after failed starts, want 72", got)
	}
}

// TestLevel2 follows the order that vLLM documents for level 2, and leaves out each of its steps.
func TestLevel2(t *testing.T) {
	const reload = `{"method":"reload_weights"}`
	long := strings.Repeat("a long conversation that is cached ", 20)
	t.Run("in order", func(t *testing.T) {
		s := start(t, sleeper(""))
		want := answer(t, s, long)
		ok(t, post(s, "/sleep?level=2", ""))
		ok(t, post(s, "/wake_up?tags=weights", ""))
		ok(t, post(s, "/collective_rpc", reload))
		ok(t, post(s, "/wake_up?tags=kv_cache", ""))
		ok(t, post(s, "/reset_prefix_cache", ""))
		if got := answer(t, s, long); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if c := s.engine.batch.Counts(); c.Stale != 0 || s.engine.garbage {
			t.Errorf("%+v", c)
		}
	})
	t.Run("without reload_weights", func(t *testing.T) {
		s := start(t, sleeper(""))
		want := answer(t, s, "hello")
		ok(t, post(s, "/sleep?level=2", ""))
		ok(t, post(s, "/wake_up", ""))
		ok(t, post(s, "/reset_prefix_cache", ""))
		if got := answer(t, s, "hello"); got == want || strings.Contains(got, "the") {
			t.Errorf("%q, want garbage", got)
		}
		// A late reload works; entries that were cached meanwhile must be dropped.
		ok(t, post(s, "/collective_rpc", reload))
		ok(t, post(s, "/reset_prefix_cache", ""))
		if got := answer(t, s, "hello"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
	t.Run("without reset_prefix_cache", func(t *testing.T) {
		s := start(t, sleeper(""))
		want := answer(t, s, long)
		ok(t, post(s, "/sleep?level=2", ""))
		ok(t, post(s, "/wake_up?tags=weights", ""))
		ok(t, post(s, "/collective_rpc", reload))
		ok(t, post(s, "/wake_up?tags=kv_cache", ""))
		if got := answer(t, s, long); got == want {
			t.Error("a stale prefix does no harm")
		}
		if s.engine.batch.Counts().Stale == 0 {
			t.Error("no hit was stale")
		}
	})
	t.Run("without its adapters", func(t *testing.T) {
		cfg := sleeper("")
		cfg.LoRA, cfg.RuntimeLoRA, cfg.Adapters = true, true, []Adapter{{Name: "sql", Path: "org/sql"}}
		s := start(t, cfg)
		want := answer(t, s, "hello", `,"model":"sql"`)
		for _, path := range []string{"/sleep?level=2", "/wake_up?tags=weights", "/collective_rpc", "/wake_up?tags=kv_cache", "/reset_prefix_cache"} {
			ok(t, post(s, path, reload))
		}
		if got := answer(t, s, "hello", `,"model":"sql"`); got == want {
			t.Error("an adapter that was dropped with the weights is back by itself")
		}
		ok(t, post(s, "/v1/unload_lora_adapter", `{"lora_name":"sql"}`))
		ok(t, post(s, "/v1/load_lora_adapter", `{"lora_name":"sql","lora_path":"org/sql"}`))
		ok(t, post(s, "/reset_prefix_cache", ""))
		if got := answer(t, s, "hello", `,"model":"sql"`); got != want {
			t.Errorf("loaded again: %q, want %q", got, want)
		}
	})
	t.Run("reload while asleep", func(t *testing.T) {
		s := start(t, sleeper(""))
		ok(t, post(s, "/sleep?level=2", ""))
		if w := post(s, "/collective_rpc", reload); w.Code != http.StatusInternalServerError {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if w := get(s, "/health"); w.Code != http.StatusServiceUnavailable {
			t.Errorf("health %d, want a dead engine", w.Code)
		}
	})
}

func TestSleepAsVLLMHasIt(t *testing.T) {
	dir := t.TempDir()
	s := start(t, sleeper(dir))
	sleeps := func(want bool) {
		t.Helper()
		if got := get(s, "/is_sleeping").Body.String(); got != fmt.Sprintf("{\"is_sleeping\":%t}\n", want) {
			t.Errorf("is_sleeping %s, want %t", got, want)
		}
	}
	sleeps(false)
	ok(t, post(s, "/wake_up", "")) // nothing to do
	ok(t, post(s, "/sleep?level=0", ""))
	sleeps(true) // paused is asleep
	if got := usedGiB(t, dir); got != 72 {
		t.Errorf("level 0 leaves %d GiB, want all 72", got)
	}
	ok(t, post(s, "/wake_up", ""))
	sleeps(false)
	ok(t, post(s, "/sleep?level=1", ""))
	ok(t, post(s, "/sleep?level=2", "")) // "already sleeping": it does not deepen
	ok(t, post(s, "/wake_up?tags=weights", ""))
	sleeps(true)
	if got := usedGiB(t, dir); got != 16 {
		t.Errorf("with its weights: %d GiB, want 16", got)
	}
	ok(t, post(s, "/wake_up?tags=weights", "")) // not asleep: no effect
	ok(t, post(s, "/wake_up?tags=weights&tags=kv_cache", ""))
	sleeps(true) // one tag that does not sleep spoils the call
	ok(t, post(s, "/wake_up?tags=kv_cache", ""))
	sleeps(false)
	if got := answer(t, s, "hello"); !strings.Contains(got, "the") {
		t.Errorf("%q: the second sleep dropped the weights", got)
	}
	if w := post(s, "/sleep?level=deep", ""); w.Code == http.StatusOK {
		t.Error("a level that is no number is accepted")
	}
}

func TestSleepNeedsItsFlags(t *testing.T) {
	dir := t.TempDir()
	cfg := sleeper(dir)
	cfg.Sleep = false
	s := start(t, cfg)
	ok(t, post(s, "/sleep", ""))
	if got := usedGiB(t, dir); got != 72 {
		t.Errorf("without --enable-sleep-mode: %d GiB, want nothing freed", got)
	}
	cfg = sleeper("")
	cfg.DevMode = false
	public := start(t, cfg)
	for _, path := range []string{"/sleep", "/wake_up", "/collective_rpc", "/reset_prefix_cache"} {
		if w := post(public, path, ""); w.Code != http.StatusNotFound {
			t.Errorf("%s without dev mode: %d, want 404", path, w.Code)
		}
	}
	if w := get(public, "/is_sleeping"); w.Code != http.StatusNotFound {
		t.Errorf("is_sleeping without dev mode: %d", w.Code)
	}
	if w := get(s, "/sleep"); w.Code != http.StatusNotFound {
		t.Errorf("GET /sleep: %d, want 404", w.Code)
	}
}

// A request that comes while SGLang sleeps ends it; vLLM lets it wait (TestAsleepNothingIsAnswered).
func TestRequestsWhileSGLangSleeps(t *testing.T) {
	cfg := sleeper("")
	cfg.Surface = SGLang
	s := start(t, cfg)
	ok(t, post(s, "/release_memory_occupation", ""))
	w := post(s, "/v1/completions", `{"prompt":"a"}`)
	if h := get(s, "/health"); w.Code != http.StatusInternalServerError || h.Code != http.StatusServiceUnavailable {
		t.Errorf("%d, health %d; want 500 and 503", w.Code, h.Code)
	}
}
