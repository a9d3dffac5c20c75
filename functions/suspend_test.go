//go:build linux

package functions_test

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ebitengine/purego"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/functions"
)

// cuda is the libcuda of testdata.
type cuda struct {
	dir      string
	allocate func(pages, managed int32) int32
	compute  func(sum *uint32) int32
	fail     func(verb, code, times int32)
	hang     func(at, on int32)
	hangs    func(at int32) int32
	used     func(device int32) int32
	reserve  func(device, pages int32)
	calls    func(verb int32) int32
	busy     func(pid, busy int32)
}

// cuda13 is the flag of a driver that can do everything.
const cuda13 = "-DVERSION=13000"

// The calls of libcuda; a call that hangs after it has had its effect is verb + verbs.
const (
	verbState = iota
	verbLock
	verbCheckpoint
	verbRestore
	verbUnlock
	verbs
)

func openCUDA(path string) (*cuda, error) {
	lib, err := purego.Dlopen(path, purego.RTLD_NOW)
	if err != nil {
		return nil, err
	}
	c := &cuda{dir: filepath.Dir(path)}
	for name, f := range map[string]any{
		"allocate": &c.allocate, "compute": &c.compute, "fail": &c.fail, "hang": &c.hang, "hangs": &c.hangs, "used": &c.used,
		"reserve": &c.reserve, "calls": &c.calls, "busy": &c.busy,
	} {
		purego.RegisterLibFunc(f, lib, "test_"+name)
	}
	return c, nil
}

// cudaServer is a model server that knows nothing of sleep and computes with CUDA: it answers with the contents of its devices.
func cudaServer(args []string) int {
	flags := flag.NewFlagSet("server", flag.ContinueOnError)
	pages, managed, port := flags.Int("pages", 0, ""), flags.Int("managed", 0, ""), flags.Int("port", 0, "")
	pids, child := flags.String("pids", "", ""), flags.Int("child", -1, "start another one, whose memory is managed so")
	if flags.Parse(args) != nil {
		return 2
	}
	if *pids != "" {
		if err := os.WriteFile(*pids, []byte(fmt.Sprintln(os.Getpid())), 0o600); err != nil {
			return 2
		}
	}
	var device *cuda
	if *pages > 0 {
		var err error
		if device, err = openCUDA("libcuda.so.1"); err != nil {
			fmt.Println(err)
			return 2
		}
		if code := device.allocate(int32(*pages), int32(*managed)); code != 0 {
			fmt.Println("CUDA out of memory:", code)
			return 2
		}
	}
	if *child >= 0 {
		cmd := exec.Command(os.Args[0], fmt.Sprint("-pages=", *pages), fmt.Sprint("-managed=", *child))
		if cmd.Start() != nil {
			return 2
		}
	}
	answer := func(w http.ResponseWriter, r *http.Request) {
		var sum uint32
		if device != nil {
			device.compute(&sum)
		}
		w.Header().Set("Content-Type", "application/json")
		text := fmt.Sprint("sum ", sum)
		_ = json.NewEncoder(w).Encode(map[string]any{"object": "text_completion", "model": "fake", "choices": []any{map[string]any{
			"index": 0, "text": text, "message": map[string]any{"role": "assistant", "content": text}, "finish_reason": "length",
		}}})
	}
	http.HandleFunc("POST /v1/completions", answer)
	http.HandleFunc("POST /v1/chat/completions", answer)
	http.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"data":[{"id":"fake"}]}`)) })
	l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", *port))
	if err != nil {
		return 2
	}
	_ = http.Serve(l, nil)
	return 1
}

const gpu0, gpu1, gpu2, gpuOther = "GPU-00000000-0000-0000-0000-000000000000", "GPU-00000000-0000-0000-0000-000000000001",
	"GPU-00000000-0000-0000-0000-000000000002", "GPU-00000000-0000-0000-0000-000000000003"

// built are the bytes of the library, by its flag.
var built = map[string][]byte{}

// newCUDA builds the library, with books of its own, and rouse-suspend beside this program.
func newCUDA(t *testing.T, flag string) *cuda {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("there is no C compiler (cc) to build the libcuda of testdata")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	lib := filepath.Join(t.TempDir(), "libcuda.so.1")
	if built[flag] == nil {
		for _, cmd := range []*exec.Cmd{
			exec.Command(cc, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", flag, "-o", lib, "testdata/libcuda.c"),
			exec.Command("go", "build", "-o", filepath.Join(filepath.Dir(self), "rouse-suspend"), "../cmd/rouse-suspend"),
		} {
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", cmd, err, out)
			}
		}
		if built[flag], err = os.ReadFile(lib); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(lib, built[flag], 0o700); err != nil {
		t.Fatal(err)
	}
	c, err := openCUDA(lib)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// config configures an instance of the server on some GPUs.
func (c *cuda) config(i *instance, gpus []string, args ...string) functions.Config {
	cfg := i.config()
	cfg.Function.Runtime.Command = append([]string{os.Args[0]}, append(args, "-port=$(PORT)")...)
	cfg.Env = append(os.Environ(), "LD_LIBRARY_PATH="+c.dir, "CUDA_VISIBLE_DEVICES="+strings.Join(gpus, ","))
	for _, g := range gpus {
		cfg.Devices = append(cfg.Devices, api.DeviceID(g))
	}
	return cfg
}

func (c *cuda) wantUsed(t *testing.T, pages ...int32) {
	t.Helper()
	for d, want := range pages {
		if got := c.used(int32(d)); got != want {
			t.Errorf("%d pages of device %d are used, want %d", got, d, want)
		}
	}
}

// until waits for what another process does.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// untilUsed waits until the server's processes have their pages.
func (c *cuda) untilUsed(t *testing.T, pages int32) {
	t.Helper()
	until(t, fmt.Sprint(pages, " pages of device 0 are used"), func() bool { return c.used(0) == pages })
}

func (i *instance) sleepAt(level api.Level) (api.InstanceStatus, error) {
	return i.api.Sleep(i.t.Context(), i.at, control.SleepRequest{Level: level, Epoch: 2, Drain: 10 * time.Second})
}

func (i *instance) wakeOn(gpus ...api.DeviceID) (api.InstanceStatus, error) {
	return i.api.Wake(i.t.Context(), i.at, api.Grant{Epoch: 2, Devices: gpus})
}

// suspend suspends the instance.
func (i *instance) suspend() api.InstanceStatus {
	i.t.Helper()
	st, err := i.sleepAt(api.Suspended)
	if err != nil || st.State != api.Asleep || st.Level != api.Suspended {
		i.t.Fatalf("suspended: %s at level %d, %v", st.State, st.Level, err)
	}
	return st
}

// wake wakes the instance.
func (i *instance) wake(gpus ...api.DeviceID) api.InstanceStatus {
	i.t.Helper()
	st, err := i.wakeOn(gpus...)
	if err != nil || st.State != api.Awake {
		i.t.Fatalf("wake: %s, %v", st.State, err)
	}
	return st
}

// sum asks for the server's answer. refused means that the request never reached the server, so that it may be sent again.
func (i *instance) sum() (answer string, refused bool, err error) {
	resp, body, err := i.ask("/v1/chat/completions", whole, "")
	if err == nil && resp.StatusCode != http.StatusOK {
		refused = resp.Header.Get(control.HeaderRefused) != ""
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return body, refused, err
}

// A plain server is suspended and restored under requests. No answer is lost or changed, and nothing stays on its device.
func TestSuspendedAgainAndAgain(t *testing.T) {
	c, i := newCUDA(t, cuda13), newInstance(t)
	i.run(c.config(i, []string{gpu0}, "-pages=60"))
	pid := i.until(api.Awake).PID
	want, _, err := i.sum()
	if err != nil || !strings.Contains(want, "sum ") {
		t.Fatalf("%q, %v", want, err)
	}
	const clients, times = 3, 200
	var running sync.WaitGroup
	var answers, waits atomic.Int64
	var ended atomic.Bool
	woken := make(chan struct{}) // from the loop below to clients that were refused; closed at the end
	for range clients {
		running.Go(func() {
			for open := true; open && !ended.Load(); {
				got, refused, err := i.sum()
				switch {
				case refused:
					waits.Add(1)
					_, open = <-woken
				case err != nil || got != want:
					t.Errorf("answer %q, %v; want %q", got, err, want)
					return
				default:
					answers.Add(1)
				}
			}
			if got, _, err := i.sum(); err != nil || got != want {
				t.Errorf("last answer %q, %v; want %q", got, err, want)
			}
		})
	}
	for range times {
		i.suspend()
		c.wantUsed(t, 0)
		if st := i.wake(); !st.Suspends || st.NoSuspend != "" || st.PID != pid || st.CanaryMismatches != 0 {
			t.Fatalf("after the wake: %+v", st)
		}
		c.wantUsed(t, 60)
		for range clients {
			select {
			case woken <- struct{}{}:
			default: // it was not refused
			}
		}
	}
	ended.Store(true)
	close(woken)
	running.Wait()
	t.Logf("%d suspensions, %d answers, %d refusals", times, answers.Load(), waits.Load())
}

// Once suspensions have worked, a sleep at level 1 is one: the server has none of its own. At level 2 it still ends.
func TestSuspendedInPlaceOfAnEnd(t *testing.T) {
	c, i := newCUDA(t, cuda13), newInstance(t)
	i.run(c.config(i, []string{gpu0}, "-pages=40", "-child=0"))
	pid := i.until(api.Awake).PID
	c.untilUsed(t, 80)
	i.suspend()
	c.wantUsed(t, 0)
	i.wake()
	if st, err := i.sleepAt(api.Level1); err != nil || st.Level != api.Suspended || st.PID != pid {
		t.Errorf("asleep at level %d with process %d, %v", st.Level, st.PID, err)
	}
	c.wantUsed(t, 0)
	i.wake()
	c.wantUsed(t, 80)
	if st, err := i.sleepAt(api.Level2); err != nil || st.Level != api.Level2 || st.PID != 0 {
		t.Errorf("asleep at level %d with process %d, %v", st.Level, st.PID, err)
	}
	if st, err := i.sleepAt(api.Suspended); err != nil || st.Level != api.Level2 {
		t.Errorf("suspended without a process: level %d, %v", st.Level, err)
	}
}

// A suspended runtime is restored onto the GPUs that the grant names, and is started there, too.
func TestSuspendedAndMoved(t *testing.T) {
	c, i := newCUDA(t, cuda13), newInstance(t)
	i.run(c.config(i, []string{gpu0, gpu1}, "-pages=60"))
	first := i.until(api.Awake)
	want, _, _ := i.sum()
	if st := i.suspend(); len(st.Devices) != 0 {
		t.Errorf("a suspended runtime is bound to %v", st.Devices)
	}
	c.wantUsed(t, 0, 0, 0)
	if _, err := i.wakeOn(gpu2); err == nil {
		t.Error("two GPUs became one")
	}
	st := i.wake(gpu1, gpu2)
	if !slices.Equal(st.Devices, []api.DeviceID{gpu1, gpu2}) || st.PID != first.PID {
		t.Errorf("it is on %v with process %d", st.Devices, st.PID)
	}
	c.wantUsed(t, 0, 60, 60)
	if got, _, err := i.sum(); got != want {
		t.Errorf("answer %q, %v; want %q", got, err, want)
	}
	i.suspend()
	if st = i.wake(gpu1, gpuOther); st.PID == first.PID || !slices.Equal(st.Devices, []api.DeviceID{gpu1, gpuOther}) || st.NoSuspend != "" {
		t.Errorf("the driver refused to restore it onto a GPU of another kind: it is process %d on %v, %q", st.PID, st.Devices, st.NoSuspend)
	}
	c.wantUsed(t, 0, 60, 0, 60)
	if st := i.suspend(); len(st.Devices) != 2 {
		t.Errorf("it is still free to move: %v", st.Devices)
	}
}

// Driver 570 restores a runtime onto its own GPUs only.
func TestSuspendedAndNotMoved(t *testing.T) {
	c, i := newCUDA(t, "-DVERSION=12080"), newInstance(t)
	i.run(c.config(i, []string{gpu0}, "-pages=60"))
	pid := i.until(api.Awake).PID
	if st := i.suspend(); !slices.Equal(st.Devices, []api.DeviceID{gpu0}) {
		t.Errorf("a suspended runtime is bound to %v", st.Devices)
	}
	_, err := i.wakeOn(gpu1)
	wantCode(t, "a wake on another GPU", err, api.CodeUnsupported)
	if st := i.wake(gpu0, api.HostMemory); st.PID != pid {
		t.Errorf("it was started again")
	}
	c.wantUsed(t, 60, 0)
}

// What can't be suspended says why, and sleeps as before: its process ends. A request wakes it.
func TestSuspendRefused(t *testing.T) {
	for name, test := range map[string]struct {
		flag   string
		args   []string
		change func(*functions.Config)
		why    string
		lost   bool // the driver leaves it in no good state
	}{
		"managed memory":               {args: []string{"-pages=40", "-managed=1"}, why: "CUDA error 801 in Checkpoint"},
		"managed memory of one of two": {args: []string{"-pages=40", "-child=1"}, why: "CUDA error 801 in Checkpoint"},
		"the driver loses it":          {args: []string{"-pages=40", "-managed=2"}, why: "is in state 3", lost: true},
		"the driver loses one of two":  {args: []string{"-pages=40", "-child=2"}, why: "is in state 3", lost: true},
		"no CUDA":                      {args: []string{"-pages=0"}, why: "none of its processes uses CUDA"},
		"an old driver":                {flag: "-DVERSION=12040", args: []string{"-pages=40"}, why: "the driver is too old, want version 570 or newer"},
		"no driver":                    {args: []string{"-pages=0"}, change: func(c *functions.Config) { c.Env = append(c.Env, "LD_LIBRARY_PATH=/nowhere") }, why: "NVIDIA's driver is not here"},
		"the annotation":               {args: []string{"-pages=40"}, change: func(c *functions.Config) { c.Function.Suspend = api.SuspendOff }, why: "rouse.dev/suspend is off"},
		"a server that others start": {args: []string{"-pages=0"}, change: func(c *functions.Config) {
			c.Function.Runtime = api.Runtime{Kind: api.RuntimeCommand, Endpoint: "http://127.0.0.1:1"}
		}, why: "others start its server"},
	} {
		t.Run(name, func(t *testing.T) {
			c, i := newCUDA(t, cmp.Or(test.flag, cuda13)), newInstance(t)
			cfg := c.config(i, []string{gpu0}, test.args...)
			if test.change != nil {
				test.change(&cfg)
			}
			i.run(cfg)
			if cfg.Function.Runtime.Endpoint != "" {
				if st := i.until(api.Starting); !strings.Contains(st.NoSuspend, test.why) {
					t.Errorf("the first report says %q, want %q", st.NoSuspend, test.why)
				}
				return
			}
			pid := i.until(api.Awake).PID
			if strings.Contains(name, "two") {
				c.untilUsed(t, 80)
			}
			used := c.used(0)
			want, _, _ := i.sum()
			_, err := i.sleepAt(api.Suspended)
			if e := api.AsError(err); err == nil || !strings.Contains(e.Message, test.why) {
				t.Fatalf("suspended: %v, want %q", err, test.why)
			}
			_, again := i.sleepAt(api.Suspended)
			wantCode(t, "the second try", again, api.CodeUnsupported)
			st := i.wake()
			if st.Suspends || !strings.Contains(st.NoSuspend, test.why) || (st.PID == pid) == test.lost {
				t.Errorf("awake: process %d, was %d; %q", st.PID, pid, st.NoSuspend)
			}
			if got, _, err := i.sum(); err != nil || got != want || !test.lost && c.used(0) != used {
				t.Errorf("answer %q, %v; want %q", got, err, want)
			}
			if st, err := i.sleepAt(api.Level1); err != nil || st.PID != 0 {
				t.Errorf("its old sleep: %+v, %v", st, err)
			}
			c.untilUsed(t, 0) // this process adopts nobody: the server's own child is killed, and not awaited
		})
	}
}

// A failure that may pass is tried again, three times in a row at most.
func TestSuspendTriedAgain(t *testing.T) {
	c, i := newCUDA(t, cuda13), newInstance(t)
	i.run(c.config(i, []string{gpu0}, "-pages=60"))
	pid := i.until(api.Awake).PID
	for _, times := range []int{2, 3} {
		c.busy(int32(pid), 1)
		for range times {
			if _, err := i.sleepAt(api.Suspended); err == nil || !strings.Contains(err.Error(), "it still computes") {
				t.Fatalf("suspended a process that computes: %v", err)
			}
		}
		c.busy(int32(pid), 0)
		if times < maxTries {
			i.suspend()
			i.wake()
		}
	}
	_, err := i.sleepAt(api.Suspended)
	wantCode(t, "after three failures", err, api.CodeUnsupported)
	if st, err := i.api.State(t.Context(), i.at); err != nil || st.PID != pid || !strings.Contains(st.NoSuspend, "it still computes") {
		t.Errorf("%+v, %v", st, err)
	}
}

const maxTries = 3

// Others have taken the memory: the runtime is not restored, and starts again when there is room.
func TestSuspendedWithoutRoom(t *testing.T) {
	c, i := newCUDA(t, cuda13), newInstance(t)
	i.run(c.config(i, []string{gpu0}, "-pages=60"))
	i.until(api.Awake)
	want, _, _ := i.sum()
	i.suspend()
	c.reserve(0, 50)
	woken := make(chan error, 1)
	go func() {
		_, err := i.wakeOn()
		woken <- err
	}()
	if st := i.until(api.Unhealthy); !strings.Contains(st.Message, "out of memory") || !st.NoRoom {
		t.Errorf("unhealthy: %q, no room: %t", st.Message, st.NoRoom)
	}
	c.reserve(0, -50)
	if err := <-woken; err != nil {
		t.Error(err)
	}
	if got, _, err := i.sum(); err != nil || got != want {
		t.Errorf("answer %q, %v; want %q", got, err, want)
	}
	c.wantUsed(t, 60)
}

// programs returns the running rouse-suspend beside this program.
func programs() (pids []int) {
	self, _ := os.Executable()
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, link := range links {
		if at, err := os.Readlink(link); err == nil && at == filepath.Join(filepath.Dir(self), "rouse-suspend") {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(link)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// At each step of a suspension and of a restore, the program, the runtime or the function is killed. Then it answers as before, or nothing
// of it is left.
func TestSuspendKilled(t *testing.T) {
	c := newCUDA(t, cuda13)
	t.Setenv("LD_LIBRARY_PATH", c.dir)
	t.Setenv("CUDA_VISIBLE_DEVICES", gpu0)
	t.Setenv("ROUSE_DEVICES", gpu0)
	for _, step := range []int32{
		verbLock, verbLock + verbs, verbCheckpoint, verbCheckpoint + verbs, verbRestore, verbRestore + verbs, verbUnlock, verbUnlock + verbs,
	} {
		wakes := step%verbs == verbRestore || step%verbs == verbUnlock
		for _, who := range []string{"program", "runtime", "function"} {
			t.Run(fmt.Sprint(who, " at ", step), func(t *testing.T) {
				s := begin(t, "function", "--shim", "-pages=60")
				s.untilAwake()
				want, _, _ := s.sum()
				if wakes {
					s.suspend()
				}
				c.hang(step, 1)
				ended := make(chan error, 1)
				go func() {
					var err error
					if wakes {
						_, err = s.wakeOn()
					} else {
						_, err = s.sleepAt(api.Suspended)
					}
					ended <- err
				}()
				until(t, "a call hangs", func() bool { return c.hangs(step) == 1 })
				kill := []int{s.cmd.Process.Pid}
				switch who {
				case "program":
					kill = programs()
				case "runtime":
					kill = s.pids
				}
				if len(kill) != 1 {
					t.Fatalf("processes to kill: %v", kill)
				}
				if err := syscall.Kill(kill[0], syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				if who == "function" {
					_ = s.cmd.Wait() // the error is "signal: killed", from the line above
					wantGone(t, s.pids...)
				}
				c.hang(step, 0)
				err := <-ended
				if who == "function" {
					until(t, "rouse-suspend has ended", func() bool { return len(programs()) == 0 })
					c.wantUsed(t, 0)
					return
				}
				if (err == nil) != wakes && who == "program" {
					t.Errorf("wakes: %t, and the call ended with %v", wakes, err)
				}
				s.wake()
				if got, _, err := s.sum(); err != nil || got != want {
					t.Errorf("answer %q, %v; want %q", got, err, want)
				}
				c.wantUsed(t, 60)
				s.suspend()
				c.wantUsed(t, 0)
				if _, err := s.api.Stop(t.Context(), s.at, control.StopRequest{}); err != nil {
					t.Error(err)
				}
				_ = s.cmd.Wait()
			})
		}
	}
}
