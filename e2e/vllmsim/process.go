package vllmsim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/rouse-dev/rouse/e2e/vllmsim/device"
)

// coreEnv marks a process that is the engine core of another one.
const coreEnv = "VLLMSIM_ENGINE_CORE"

// Main is the program: args are its name and its arguments. It returns the exit
// status when the server has ended. Called nvidia-smi, or with that as the first
// argument, it lists devices; `devices` makes them.
func Main(args []string, stdout, stderr io.Writer) int {
	if mode := os.Getenv(coreEnv); mode != "" {
		return engineCore(mode)
	}
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
	log := newLines(stderr)
	defer log.flush()
	return cmd.run(log, func(code int) {
		log.flush()
		os.Exit(code)
	})
}

// lines lets several goroutines write to one writer. What is only said for the record is
// written a moment later, when the request that it is about has been answered: where nothing
// takes time, as in a wake of no time, the log must not.
type lines struct {
	mu    sync.Mutex // guards what follows
	w     io.Writer
	later []byte // not written yet
	timer *time.Timer
}

// aMoment is how much later.
const aMoment = 3 * time.Millisecond

func newLines(w io.Writer) *lines {
	l := &lines{w: w}
	l.timer = time.AfterFunc(time.Hour, l.flush)
	l.timer.Stop()
	return l
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.later) == 0 {
		l.timer.Reset(aMoment)
	}
	l.later = append(l.later, p...)
	if !bytes.HasPrefix(p, []byte("INFO")) || bytes.Contains(p, []byte("Sleep mode freed")) {
		return len(p), l.write()
	}
	return len(p), nil
}

func (l *lines) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.write() // an error has no reader
}

// write writes all. l.mu is held.
func (l *lines) write() error {
	if len(l.later) == 0 { // it was in a hurry
		return nil
	}
	_, err := l.w.Write(l.later)
	l.later = l.later[:0]
	return err
}

// run serves until SIGTERM, or until the engine dies.
func (cmd Command) run(log io.Writer, exit func(int)) int {
	cmd.Config.Log, cmd.Config.Exit = log, exit
	if cmd.EngineCore != "" {
		cmd.Config.EngineCore = func(hold *os.File) (Child, error) { return startCore(cmd.EngineCore, hold) }
	}
	s, err := New(cmd.Config)
	if err != nil {
		fmt.Fprintln(log, "vllmsim:", err)
		return 2
	}
	if f, found := s.Faults.happens("start"); found {
		fmt.Fprintln(log, "RuntimeError: a start that fails as told")
		code, err := strconv.Atoi(f.value)
		if err != nil {
			s.crash(f.value)
		}
		return code
	}
	l, err := cmd.bind()
	if _, taken := s.Faults.happens("port-taken"); taken || errors.Is(err, syscall.EADDRINUSE) {
		fmt.Fprintln(log, "OSError: [Errno 98] Address already in use")
		return 1
	}
	if err != nil {
		fmt.Fprintln(log, "vllmsim: listen:", err)
		return 1
	}
	defer l.close()
	return cmd.serve(s, l, log)
}

// serve runs the engine and, when it is ready, HTTP.
func (cmd Command) serve(s *Server, l *listener, log io.Writer) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	term := make(chan os.Signal, 2) // two: the second one is not patient
	if _, deaf := s.Faults.happens("ignore-term"); deaf {
		signal.Ignore(syscall.SIGTERM)
		signal.Notify(term, syscall.SIGINT)
	} else {
		signal.Notify(term, syscall.SIGTERM, syscall.SIGINT)
	}
	defer signal.Stop(term)
	ended := make(chan error, 1) // Run's result
	go func() { ended <- s.Run(ctx) }()
	h := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	if !cmd.Quiet {
		h.Handler = accessLog(s, log)
	}
	failed := make(chan error, 1) // Serve's result
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
			fmt.Fprintf(log, "INFO:     Started server process [%d]\nINFO:     Waiting for application startup.\n", os.Getpid())
			if cmd.Config.Surface != LlamaCpp {
				listen()
			}
			fmt.Fprintln(log, "INFO:     Application startup complete.")
		case err := <-ended:
			_ = h.Close() // what is left has no engine
			return startFailure(log, err)
		case err := <-failed:
			fmt.Fprintln(log, "vllmsim: serve:", err)
			return 1
		case <-term:
			cmd.stop(h, term, log)
			cancel()
			if err := <-ended; err != nil {
				return startFailure(log, err)
			}
			return 0
		}
	}
}

// startFailure says why the engine has ended, as vLLM's log ends.
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

// stop lets what runs end, for as long as patience or the next signal allow.
func (cmd Command) stop(h *http.Server, term <-chan os.Signal, log io.Writer) {
	fmt.Fprintln(log, "INFO:     Shutting down")
	ctx, cancel := context.WithTimeout(context.Background(), max(cmd.Patience, time.Millisecond))
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

// accessLog writes a line for each request, as uvicorn does.
func accessLog(h http.Handler, log io.Writer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &recorder{ResponseWriter: w, status: http.StatusOK}
		defer func() {
			fmt.Fprintf(log, "INFO:     %s - \"%s %s %s\" %d %s\n", r.RemoteAddr, r.Method, r.URL.RequestURI(), r.Proto, rec.status, http.StatusText(rec.status))
		}()
		h.ServeHTTP(rec, r)
	})
}

type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap lets a ResponseController flush.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
