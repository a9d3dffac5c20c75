package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Init is the node's first process. It arranges the node's mounts and links, runs and restarts services, and reaps
// orphans. It returns only if it could not begin.
//
// Its file 3 is a pipe: a byte says that the node's end of the link exists. If it closes before, the process that
// started the node is dead, and Init returns. Its file 4 is the listening socket of [supervisor].
func Init(p Places) error {
	if os.Getpid() != 1 {
		return errors.New("init: this is no first process: `cluster up` starts it")
	}
	ready, socket := os.NewFile(3, "ready"), os.NewFile(4, "socket")
	l, err := net.FileListener(socket)
	if err != nil {
		return fmt.Errorf("init: %w", err)
	}
	socket.Close()
	if err := mounts(p); err != nil {
		return fmt.Errorf("init: %w", err)
	}
	if _, err := io.ReadFull(ready, make([]byte, 1)); err != nil {
		return errors.New("init: whoever started this node is gone")
	}
	ready.Close()
	first := &first{log: slog.New(slog.NewTextHandler(os.Stderr, nil)), services: map[string]*running{}}
	ended := make(chan os.Signal, 1) // the reaper reaps all there are
	signal.Notify(ended, syscall.SIGCHLD)
	go first.reap(ended)
	if err := first.network(); err != nil {
		return fmt.Errorf("init: %w", err)
	}
	server := &http.Server{Handler: first, ReadHeaderTimeout: time.Second}
	return server.Serve(l)
}

// mounts gives the node its own /proc, /run and fixed folders, unseen on the host.
func mounts(p Places) error {
	type mount struct {
		source, target, kind string
		flags                uintptr
	}
	all := []mount{
		{"none", "/", "", syscall.MS_REC | syscall.MS_PRIVATE},
		{"proc", "/proc", "proc", syscall.MS_NOSUID | syscall.MS_NOEXEC | syscall.MS_NODEV},
		{"tmpfs", "/run", "tmpfs", syscall.MS_NOSUID | syscall.MS_NODEV},
	}
	for _, dir := range fixed {
		all = append(all, mount{mkdir(p.node(dir.own)), dir.host, "", syscall.MS_BIND})
	}
	for _, m := range all {
		if err := syscall.Mount(m.source, m.target, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.source, m.target, err)
		}
	}
	return errors.Join(os.MkdirAll("/run/containerd", 0o711), os.MkdirAll("/run/lock", 0o755))
}

type first struct {
	log *slog.Logger

	mu       sync.Mutex // guards what follows and its elements; held from a fork until its pid is noted
	services map[string]*running
	order    []string                        // in the order of their first start
	helpers  map[int]chan syscall.WaitStatus // by pid; the reaper sends
}

type running struct {
	ServiceStatus
	ended chan struct{} // closed by the reaper when the process has ended; a new one for each start
}

func (f *first) network() error {
	for _, args := range []string{
		"link set lo up", "addr add " + NodeIP + "/30 dev eth0", "link set eth0 up", "route add default via " + HostIP,
	} {
		if err := f.command("ip", strings.Fields(args)...); err != nil {
			return err
		}
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644)
}

func (f *first) command(name string, args ...string) error {
	path, err := lookPath(name)
	if err != nil {
		return err
	}
	done := make(chan syscall.WaitStatus, 1) // the reaper never waits
	f.mu.Lock()
	pid, err := fork(Service{Path: path, Args: args}, os.Stderr)
	if err == nil {
		if f.helpers == nil {
			f.helpers = map[int]chan syscall.WaitStatus{}
		}
		f.helpers[pid] = done
	}
	f.mu.Unlock()
	if err != nil {
		return fmt.Errorf("run %s: %w", name, err)
	}
	if s := <-done; !s.Exited() || s.ExitStatus() != 0 {
		return fmt.Errorf("%s %s: %s", name, strings.Join(args, " "), describe(s))
	}
	return nil
}

func fork(s Service, out *os.File) (int, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	return syscall.ForkExec(s.Path, slices.Concat([]string{s.Path}, s.Args), &syscall.ProcAttr{
		Dir: "/", Env: slices.Concat(s.Env, os.Environ()),
		Files: []uintptr{null.Fd(), out.Fd(), out.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
}

// reap reaps orphans too.
func (f *first) reap(ended <-chan os.Signal) {
	for range ended {
		for {
			var status syscall.WaitStatus
			pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			if err != nil || pid <= 0 {
				break
			}
			f.note(pid, status)
		}
	}
}

func (f *first) note(pid int, status syscall.WaitStatus) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if done, ok := f.helpers[pid]; ok {
		delete(f.helpers, pid)
		done <- status
		return
	}
	for _, r := range f.services {
		if r.PID != pid {
			continue
		}
		r.PID, r.Last = 0, describe(status)
		close(r.ended)
		if r.Stopped {
			return
		}
		r.Restarts++
		f.log.Error("a service ended by itself", "service", r.Name, "how", r.Last)
		time.AfterFunc(time.Second, func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			if r == f.services[r.Name] && !r.Stopped && r.PID == 0 {
				_ = f.launch(r) // it logs
			}
		})
		return
	}
}

// launch starts a service's process. The caller holds mu.
func (f *first) launch(r *running) error {
	out, err := os.OpenFile(r.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("start %s: %w", r.Name, err)
	}
	defer out.Close()
	r.PID, err = fork(r.Service, out)
	if err != nil {
		f.log.Error("a service can't be started", "service", r.Name, "error", err)
		return fmt.Errorf("start %s: %w", r.Name, err)
	}
	r.Stopped, r.ended = false, make(chan struct{})
	return nil
}

// ServeHTTP answers GET /services/, PUT /services/NAME, POST /services/NAME/start and /services/NAME/stop.
func (f *first) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, act, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/services/"), "/")
	var err error
	switch {
	case r.Method == http.MethodGet && name == "":
		err = json.NewEncoder(w).Encode(f.list())
	case r.Method == http.MethodPut && act == "":
		var s Service
		if err = json.NewDecoder(r.Body).Decode(&s); err == nil {
			err = f.define(r.Context(), s)
		}
	case r.Method == http.MethodPost && act == "start":
		err = f.start(name)
	case r.Method == http.MethodPost && act == "stop":
		err = f.stop(r.Context(), name)
	default:
		err = fmt.Errorf("nobody serves %s %s", r.Method, r.URL.Path)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
	}
}

func (f *first) list() []ServiceStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []ServiceStatus
	for _, name := range f.order {
		all = append(all, f.services[name].ServiceStatus)
	}
	return all
}

func (f *first) define(ctx context.Context, s Service) error {
	f.mu.Lock()
	_, known := f.services[s.Name]
	f.mu.Unlock()
	if known {
		if err := f.stop(ctx, s.Name); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !known {
		f.order = append(f.order, s.Name)
	}
	r := &running{ServiceStatus: ServiceStatus{Service: s}}
	f.services[s.Name] = r
	return f.launch(r)
}

func (f *first) start(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, ok := f.services[name]
	if !ok {
		return fmt.Errorf("no service is called %q; there are %s", name, strings.Join(f.order, ", "))
	}
	if r.PID != 0 {
		return nil
	}
	return f.launch(r)
}

func (f *first) stop(ctx context.Context, name string) error {
	f.mu.Lock()
	r, ok := f.services[name]
	if !ok {
		f.mu.Unlock()
		return fmt.Errorf("no service is called %q; there are %s", name, strings.Join(f.order, ", "))
	}
	r.Stopped = true
	pid, ended := r.PID, r.ended
	if pid != 0 {
		_ = syscall.Kill(pid, syscall.SIGTERM)
	}
	f.mu.Unlock()
	if pid == 0 {
		return nil
	}
	patience := time.NewTimer(10 * time.Second)
	defer patience.Stop()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-patience.C:
	}
	f.mu.Lock()
	if r.PID == pid { // the number is still its own
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	f.mu.Unlock()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func describe(s syscall.WaitStatus) string {
	if s.Signaled() {
		return "killed by " + s.Signal().String()
	}
	return fmt.Sprintf("exit status %d", s.ExitStatus())
}
