package inventory

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
)

func TestParseGPUs(t *testing.T) {
	got, err := parseGPUs("GPU-aaaa, NVIDIA L4, 23034, 512\nGPU-bbbb, NVIDIA H100 80GB HBM3, 81559, 0\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []Device{
		{ID: "GPU-aaaa", Name: "NVIDIA L4", Total: 23034 * api.MiB, Capacity: (23034 - 512 - 256) * api.MiB},
		{ID: "GPU-bbbb", Name: "NVIDIA H100 80GB HBM3", Total: 81559 * api.MiB, Capacity: (81559 - 256) * api.MiB},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, c := range []struct{ name, out, want string }{
		{"nothing", "", ""},
		{"no columns", "No devices were found\n", "uuid, name, memory.total"},
		{"no number", "GPU-a, GB10, [N/A], [N/A]\n", "want a number of MiB"},
		{"twice the same", "GPU-a, L4, 100, 0\nGPU-a, L4, 100, 0\n", "no identifier of its own"},
		{"negative", "GPU-a, L4, -100, 0\n", "want a number of MiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parseGPUs(c.out)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func FuzzParseGPUs(f *testing.F) {
	f.Add("GPU-aaaa, NVIDIA L4, 23034, 512\n")
	f.Add("\"a\nb\",,,\n")
	f.Fuzz(func(t *testing.T, out string) {
		gpus, err := parseGPUs(out)
		for _, g := range gpus {
			if err != nil || g.ID == "" || g.Capacity < 0 || g.Capacity > g.Total {
				t.Errorf("got %+v, %v", g, err)
			}
		}
	})
}

// script writes an executable that stands for nvidia-smi.
func script(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nvidia-smi")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDiscover(t *testing.T) {
	ctx := context.Background()
	absent := filepath.Join(t.TempDir(), "absent")
	for _, c := range []struct {
		name    string
		config  Config
		devices int
		want    string // in the error
	}{
		{"no GPUs", Config{Memory: api.GiB, NvidiaSMI: "no-such-nvidia-smi"}, 1, ""},
		{"one GPU", Config{Memory: api.GiB, NvidiaSMI: script(t, "echo GPU-1, L4, 1000, 0")}, 2, ""},
		{"GPUs left alone", Config{Memory: api.GiB, NoGPU: true, NvidiaSMI: script(t, "exit 1")}, 1, ""},
		{"it fails", Config{Memory: api.GiB, NvidiaSMI: script(t, "echo no driver >&2; exit 9")}, 1, "no driver"},
		{"it hangs", Config{Memory: api.GiB, Timeout: 50 * time.Millisecond, NvidiaSMI: script(t, "sleep 10")}, 1, "no answer within 50ms"},
		{"a path that is not there", Config{Memory: api.GiB, NvidiaSMI: absent}, 1, "absent"},
		{"a negative budget", Config{Memory: -1}, 0, "host memory"},
		{"a share beyond all", Config{Share: 2}, 0, "host memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			began := time.Now()
			got, err := Discover(ctx, c.config)
			if len(got) != c.devices || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %+v, %v, want %d devices and %q", got, err, c.devices, c.want)
			}
			if c.devices > 0 && (got[0].ID != api.HostMemory || got[0].Capacity != api.GiB) {
				t.Errorf("got %+v, want the host with its budget first", got[0])
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

func TestHostMemory(t *testing.T) {
	got, err := Discover(context.Background(), Config{NoGPU: true})
	if err != nil {
		t.Fatal(err)
	}
	if h := got[0]; h.Capacity <= 0 || h.Capacity > h.Total*8/10+1 {
		t.Errorf("got %+v, want at most four fifths of the machine", h)
	}
}

func TestReturn(t *testing.T) {
	var e Experience
	if a, b, c := e.Return(api.Level1), e.Return(api.Level2), e.Return(Stopped); a <= 0 || a >= b || b >= c {
		t.Errorf("unknown ways back take %s, %s, %s, want deeper ones to take longer", a, b, c)
	}
	s := api.InstanceStatus{State: api.Awake, LoadTime: 20 * time.Second, Memory: api.Memory{Host: api.GiB}}
	e = e.Started(s).Measured(s)
	s.WakeTime = time.Second
	e = e.Woken(s, api.Level1)
	if e.Return(api.Level1) != time.Second || e.Return(Stopped) != 20*time.Second || e.Return(api.LevelAwake) != 0 {
		t.Errorf("got %s and %s, want what was measured", e.Return(api.Level1), e.Return(Stopped))
	}
	s.WakeTime = 2 * time.Second
	if got, want := e.Woken(s, api.Level1).Return(api.Level1), 1300*time.Millisecond; got != want {
		t.Errorf("after 1 s and 2 s: got %s, want %s", got, want)
	}
}

func TestNeed(t *testing.T) {
	f := api.Function{}
	var e Experience
	check := func(what string, want api.Bytes, certain bool) {
		t.Helper()
		if got, sure := e.Need(f, 512*api.MiB, 4*api.GiB); got.Host != want || sure != certain {
			t.Errorf("%s: got %s (%t), want %s (%t)", what, got.Host, sure, want, certain)
		}
	}
	check("nothing known", 512*api.MiB, false)
	s := api.InstanceStatus{State: api.Awake, Memory: api.Memory{Host: 2 * api.GiB}}
	e = e.Measured(s)
	check("measured", 2*api.GiB, true)
	s.Memory.Host = api.GiB
	e = e.Measured(s)
	if got := e.Awake.Host; got <= api.GiB || got >= 2*api.GiB {
		t.Errorf("after a fall: got %s, want it to follow slowly", got)
	}
	s.Memory.Host = 8 * api.GiB
	e = e.Measured(s)
	check("more than there is", 4*api.GiB, true)
	f.Memory.Host = 16 * api.GiB
	check("declared", 16*api.GiB, true)
	f.Memory.Host = api.GiB
	check("declared, and measured to be more", 4*api.GiB, true)
}

func TestResidue(t *testing.T) {
	var e Experience
	if got := e.Residue(api.Level1); got != (api.Memory{}) {
		t.Errorf("got %+v, want nothing while unknown", got)
	}
	s := api.InstanceStatus{State: api.Asleep, Level: api.Level1, Memory: api.Memory{Host: 100 * api.MiB}}
	e = e.Measured(s)
	if got := e.Residue(api.Level1).Host; got != 100*api.MiB {
		t.Errorf("got %s, want what was measured", got)
	}
	if got := e.Residue(Stopped); got != (api.Memory{}) {
		t.Errorf("got %+v, want nothing of a process that is gone", got)
	}
}
