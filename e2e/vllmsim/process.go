package vllmsim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/rouse-dev/rouse/e2e/vllmsim/device"
)

// Main is the program, and returns its exit status. Called nvidia-smi, or with that as the first argument, it lists
// devices; `devices` makes them.
func Main(args []string, stdout, stderr io.Writer) int {
	dir := os.Getenv("VLLMSIM_DEVICES")
	if _, err := os.Stat(device.Mounted); dir == "" && err == nil {
		dir = device.Mounted // a command run in a container with exec does not get the variable
	}
	if len(args) > 0 && filepath.Base(args[0]) == "nvidia-smi" {
		return device.NvidiaSMI(dir, os.Getenv("NVIDIA_VISIBLE_DEVICES"), args[1:], stdout, stderr)
	}
	if len(args) > 1 && args[1] == "nvidia-smi" {
		return device.NvidiaSMI(dir, os.Getenv("NVIDIA_VISIBLE_DEVICES"), args[2:], stdout, stderr)
	}
	if len(args) > 1 && args[1] == "devices" {
		return makeDevices(dir, args[2:], stdout, stderr)
	}
	cmd, err := Parse(args, os.Getenv, stderr)
	if err == nil && cmd.Config.Model == "" {
		err = errors.New("no model: name one, as in `vllmsim serve sim/tiny-1b --port 8000`")
	}
	if err != nil {
		fmt.Fprintln(stderr, "vllmsim:", err)
		return 2
	}
	cmd.Config.Log = stderr
	cmd.Config.Kill = func() {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // a signal takes a moment
	}
	s, err := New(cmd.Config)
	if err != nil {
		fmt.Fprintln(stderr, "vllmsim:", err)
		return 2
	}
	l, err := cmd.bind()
	if errors.Is(err, syscall.EADDRINUSE) {
		fmt.Fprintln(stderr, "OSError: [Errno 98] Address already in use")
		return 1
	}
	if err != nil {
		fmt.Fprintln(stderr, "vllmsim: listen:", err)
		return 1
	}
	defer l.close()
	return cmd.serve(s, l, stderr)
}

func (cmd Command) serve(s *Server, l *listener, log io.Writer) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	term := make(chan os.Signal, 2) // the second one ends the wait of stop
	signal.Notify(term, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(term)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	h := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	failed := make(chan error, 1)
	listen := func() {
		open, err := l.listen()
		if err != nil {
			failed <- err
			return
		}
		go func() { failed <- h.Serve(open) }()
	}
	ready := s.Ready()
	if cmd.Config.Surface == LlamaCpp {
		listen() // it says 503 while it loads
	}
	for {
		select {
		case <-ready:
			ready = nil
			if cmd.Config.Surface != LlamaCpp {
				listen()
			}
			fmt.Fprintln(log, "INFO:     Application startup complete.")
		case err := <-ended:
			_ = h.Close()
			return startFailure(log, err)
		case err := <-failed:
			fmt.Fprintln(log, "vllmsim: serve:", err)
			return 1
		case <-term:
			stop(h, term, log)
			cancel()
			if err := <-ended; err != nil {
				return startFailure(log, err)
			}
			return 0
		}
	}
}

func startFailure(log io.Writer, err error) int {
	if err == nil {
		return 0
	}
	if start, ok := errors.AsType[startError](err); ok {
		logf(log, "ERROR", "core.py:700", "EngineCore failed to start.")
		logf(log, "ERROR", "core.py:700", "Traceback (most recent call last):")
		logf(log, "ERROR", "core.py:700", "%s", start.text)
		fmt.Fprintln(log, "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}")
		return 1
	}
	fmt.Fprintln(log, "vllmsim:", err)
	return 1
}

// stop waits five seconds or until the next signal.
func stop(h *http.Server, term <-chan os.Signal, log io.Writer) {
	fmt.Fprintln(log, "INFO:     Shutting down")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	go func() {
		select {
		case <-term:
			cancel()
		case <-ctx.Done():
		}
	}()
	if err := h.Shutdown(ctx); err != nil {
		_ = h.Close()
	}
	fmt.Fprintln(log, "INFO:     Application shutdown complete.")
}

func makeDevices(dir string, args []string, stdout, stderr io.Writer) int {
	count, memory := 0, int64(80)<<30
	err := flags{"--count": &count, "--memory": size(&memory)}.read(args, func(s string) { dir = s }, stderr)
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
