package vllmsim

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/rouse-dev/rouse/e2e/vllmsim/device"
)

// startCore starts this program again as the engine's process. It ends when its
// standard input does, which is when this process ends, unless it is an orphan.
func startCore(mode string, hold *os.File) (Child, error) {
	self, err := os.Executable()
	if err != nil {
		return Child{}, err
	}
	cmd := exec.Command(self)
	cmd.Args = []string{"VLLM::EngineCore"}
	cmd.Env = append(os.Environ(), coreEnv+"="+mode)
	cmd.Stderr = os.Stderr
	if hold != nil {
		cmd.ExtraFiles = []*os.File{hold}
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return Child{}, err
	}
	if err := cmd.Start(); err != nil {
		return Child{}, err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // however it ended
		in.Close()
		close(ended)
	}()
	return Child{PID: cmd.Process.Pid, Ended: ended}, nil
}

// engineCore is that process. An orphan is deaf to polite signals and ends by
// itself after five minutes, so that a failed test leaves nothing for good.
func engineCore(mode string) int {
	if mode == "orphan" {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		time.Sleep(5 * time.Minute)
		return 0
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent has gone
	return 0
}

// makeDevices is `vllmsim devices`: it makes devices, and lists them.
func makeDevices(dir string, args []string, stdout, stderr io.Writer) int {
	count, memory := 0, int64(80)<<30
	f := flags{known: map[string]flagOf{}, bare: func(s string) { dir = s }}
	f.number(&count, "--count")
	f.bytes(&memory, "--memory")
	f.text(&dir, "--dir")
	err := f.read(args, stderr)
	for i := 0; i < count && err == nil; i++ {
		err = device.Create(dir, device.New(i, memory))
	}
	var all []device.Device
	if err == nil {
		all, err = device.List(dir)
	}
	if err != nil {
		fmt.Fprintln(stderr, "vllmsim:", err)
		return 1
	}
	for _, d := range all {
		fmt.Fprintf(stdout, "%d %s %s GiB, %s GiB used by %d\n", d.Index, d.UUID, gib(d.Memory), gib(d.Used()), len(d.Processes))
	}
	return 0
}
