package local_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/cmd/internal/local"
)

// TestVariants serves one model in two ways: the name of the model finds the cheaper,
// and the other one where that can't start.
func TestVariants(t *testing.T) {
	variant := func(name string, cost float64, model string) api.Function {
		return api.Function{Name: api.NewFunctionName("", name), VariantOf: "big", Cost: cost, Runtime: api.Runtime{Model: model}}
	}
	s := start(t, func(c *local.Config) {
		c.Functions = []api.Function{variant("dear", 4, "pico"), variant("cheap", 1, "pico")}
	})
	ask := func(model string) (int, string) {
		return s.send(http.MethodPost, api.Endpoint(s.info.URL), "/v1/chat/completions", strings.Replace(question, `"pico"`, `"`+model+`"`, 1))
	}
	instances := func(name string) []api.InstanceStatus {
		var f admin.Function
		s.admin(http.MethodGet, admin.PathFunctions+"/default/"+name, nil, &f)
		return f.Instances
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if status, body := ask("big"); status != http.StatusOK {
				t.Errorf("status %d: %s", status, body)
			}
		})
	}
	all.Wait()
	if cheap, dear := instances("cheap"), instances("dear"); len(cheap) != 1 || len(dear) != 0 {
		t.Errorf("%d of the cheap one and %d of the dear one are there, want 1 and none", len(cheap), len(dear))
	}
	if status, body := s.send(http.MethodGet, api.Endpoint(s.info.URL), "/v1/models", ""); status != 200 || strings.Count(body, `"id":"big"`) != 1 {
		t.Errorf("the models, status %d: %s; want big once", status, body)
	}
	// The cheap one's model is broken from now on: the dear one answers, and nobody sees an error.
	broken := filepath.Join(t.TempDir(), "broken.gguf")
	if err := os.WriteFile(broken, []byte("no model"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.admin(http.MethodPost, admin.PathFunctions, variant("cheap", 1, broken), nil)
	s.admin(http.MethodPost, admin.PathFunctions+"/default/cheap/stop", nil, nil) // those with the good model
	if status, body := ask("big"); status != http.StatusOK {
		t.Errorf("with a variant that does not start: status %d: %s", status, body)
	}
	if dear := instances("dear"); len(dear) != 1 || dear[0].State != api.Awake {
		t.Errorf("the dear one has %+v, want one awake", dear)
	}
	// A function whose own name is the model's is refused.
	if status, body := s.send(http.MethodPost, s.info.Admin, admin.PathFunctions, `{"name":"default/big","runtime":{"model":"pico"}}`); status != http.StatusConflict || !strings.Contains(body, "variant") {
		t.Errorf("status %d: %s; want 409 that tells of the variants", status, body)
	}
}

// TestGPUsAreLookedAtAgain has a fake nvidia-smi lose a GPU while a function has it.
func TestGPUsAreLookedAtAgain(t *testing.T) {
	dir := t.TempDir()
	list, smi := filepath.Join(dir, "gpus"), filepath.Join(dir, "nvidia-smi")
	gpus := func(lines ...string) {
		t.Helper()
		if err := os.WriteFile(list+".new", []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(list+".new", list); err != nil {
			t.Fatal(err)
		}
	}
	const one, two = "GPU-1, L4, 24000, 0", "GPU-2, L4, 24000, 0"
	gpus(one)
	if err := os.WriteFile(smi, []byte("#!/bin/sh\ncat "+list+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := start(t, func(c *local.Config) {
		c.NoGPU, c.NvidiaSMI, c.GPUInterval = false, smi, 20*time.Millisecond
		c.Functions[0].Memory.Devices = 1
	})
	ask := func() (int, string) {
		return s.send(http.MethodPost, api.Endpoint(s.info.URL), "/v1/chat/completions", question)
	}
	if status, body := ask(); status != http.StatusOK {
		t.Fatalf("status %d: %s", status, body)
	}
	until := func(what string, ok func(admin.Function) bool) {
		t.Helper()
		var f admin.Function
		for begin := time.Now(); time.Since(begin) < 20*time.Second; {
			if s.admin(http.MethodGet, admin.PathFunctions+"/default/pico", nil, &f); ok(f) {
				return
			}
			select {
			case <-time.After(10 * time.Millisecond):
			case <-t.Context().Done():
			}
		}
		t.Fatalf("not within 20 s: %s; the last: %+v", what, f)
	}
	gpus(two)
	until("the instance on the GPU that is gone ends", func(f admin.Function) bool { // another may have come already
		return !slices.ContainsFunc(f.Instances, func(i api.InstanceStatus) bool { return slices.Contains(i.Devices, "GPU-1") })
	})
	var why []api.Decision
	s.admin(http.MethodGet, admin.PathFunctions+"/default/pico/why", nil, &why)
	if got := fmt.Sprint(why); !strings.Contains(got, "its GPU GPU-1 (L4) is no longer there") {
		t.Errorf("decisions %s, want one that names the GPU that is gone", got)
	}
	if status, body := ask(); status != http.StatusOK {
		t.Errorf("on the GPU that came: status %d: %s", status, body)
	}
	until("it is on the other GPU", func(f admin.Function) bool {
		return len(f.Instances) == 1 && len(f.Instances[0].Devices) == 1 && f.Instances[0].Devices[0] == "GPU-2"
	})
}
