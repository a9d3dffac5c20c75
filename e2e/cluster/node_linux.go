package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// sysctls are settings that the kubelet changes for the whole host.
var sysctls = []string{
	"vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

// lock keeps others from bringing a cluster up or down. It calls waiting before it waits.
func lock(ctx context.Context, waiting func()) (unlock func(), err error) {
	if err := os.MkdirAll(runDir, 0o755); err != nil {
		return nil, fmt.Errorf("lock the cluster: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(runDir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock the cluster: %w", err)
	}
	for told := false; ; {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("lock the cluster: %w", err)
		}
		if !told {
			told = true
			waiting()
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// begin starts the node's first process, and joins the node to the host. r always has the steps to undo.
func begin(p Places, r *record) error {
	r.Boot, r.Sysctls = bootID(), map[string]string{}
	for _, name := range sysctls {
		b, err := os.ReadFile("/proc/sys/" + name)
		if err != nil {
			return fmt.Errorf("note the kernel's settings: %w", err)
		}
		r.Sysctls[name] = strings.TrimSpace(string(b))
	}
	for _, dir := range fixed {
		r.Made = append(r.Made, missing(dir.host)...)
	}
	if err := r.write(); err != nil {
		return err
	}
	for _, dir := range fixed {
		if err := os.MkdirAll(dir.host, 0o755); err != nil {
			return fmt.Errorf("make a place to mount on: %w", err)
		}
	}
	ready, err := fork1(p, r)
	if err != nil {
		return fmt.Errorf("start the node's first process: %w", err)
	}
	defer ready.Close()
	if err := r.write(); err != nil {
		return err
	}
	for _, args := range []string{
		fmt.Sprintf("link add %s type veth peer name eth0 netns %d", hostLink, r.PID),
		fmt.Sprintf("addr add %s/30 dev %s", HostIP, hostLink),
		fmt.Sprintf("link set %s up", hostLink),
		fmt.Sprintf("route add %s via %s", PodCIDR, NodeIP),
		fmt.Sprintf("route add %s via %s", ServiceCIDR, NodeIP),
	} {
		if err := ip(args); err != nil {
			return fmt.Errorf("join the node to the host: %w", err)
		}
	}
	_, err = ready.Write([]byte{1})
	return err
}

// missing lists the folders to make so that dir exists, the deepest first.
func missing(dir string) (made []string) {
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		made = append(made, dir)
	}
	return made
}

// fork1 starts this program as the node's first process, which outlives this one once the pipe has a byte.
func fork1(p Places, r *record) (*os.File, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	out, err := os.OpenFile(filepath.Join(mkdir(p.node("log")), "init.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	socket, err := listen()
	if err != nil {
		return nil, err
	}
	defer socket.Close()
	cmd := exec.Command("/proc/self/exe", "init", p.Checkout, p.Cache, p.Node)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = "/", out, out, []*os.File{read, socket}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true, Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC,
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() { _ = cmd.Wait() }() // reaps it while this program runs
	r.PID, r.Start = cmd.Process.Pid, startOf(cmd.Process.Pid)
	return write, nil
}

// listen makes the socket first, so that clients find it however late the process runs.
func listen() (*os.File, error) {
	if err := os.Remove(socketFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socketFile(), Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	f, err := l.File()
	return f, errors.Join(err, l.Close())
}

// privileges tries what a node's first process begins with.
func privileges() error {
	cmd := exec.Command("mount", "-t", "tmpfs", "none", "/mnt")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC, Unshareflags: syscall.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make namespaces and mount a file system in them: %w %s", err, out)
	}
	for _, dir := range []string{"/sys/fs/cgroup/memory", "/sys/fs/cgroup"} { // the kernel's old layout, and the new one
		probe := filepath.Join(dir, "rouse-probe")
		if err := os.Mkdir(probe, 0o755); err == nil || errors.Is(err, os.ErrExist) {
			return os.Remove(probe)
		}
	}
	return errors.New("no control group can be made in /sys/fs/cgroup")
}

func ip(args string) error {
	path, err := lookPath("ip")
	if err != nil {
		return err
	}
	if out, err := exec.Command(path, strings.Fields(args)...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", args, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// end takes down what r notes, of a node that runs, that ran, or that was killed in between, and forgets it.
func end(ctx context.Context, r *record) error {
	if r.alive() {
		// The kernel kills everything in the node with it.
		if err := syscall.Kill(r.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stop the node: %w", err)
		}
		if err := until(ctx, 20*time.Second, func() error {
			if r.alive() {
				return fmt.Errorf("its first process %d does not end", r.PID)
			}
			return nil
		}); err != nil {
			return fmt.Errorf("stop the node: %w", err)
		}
	}
	if _, err := os.Stat("/sys/class/net/" + hostLink); err == nil {
		_ = ip("link del " + hostLink) // it may be going by itself
	}
	if err := until(ctx, 10*time.Second, func() error {
		if _, err := os.Stat("/sys/class/net/" + hostLink); err == nil {
			return fmt.Errorf("the link %s is still there", hostLink)
		}
		return removeGroups()
	}); err != nil {
		return fmt.Errorf("clean up after the node: %w", err)
	}
	if r.Boot == bootID() {
		for name, value := range r.Sysctls {
			if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0o644); err != nil {
				return fmt.Errorf("restore the kernel's settings: %w", err)
			}
		}
	}
	for _, dir := range r.Made {
		_ = os.Remove(dir) // a folder with others' files stays
	}
	if err := os.Remove(socketFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("clean up after the node: %w", err)
	}
	if err := os.Remove(recordFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("clean up after the node: %w", err)
	}
	return nil
}

func removeGroups() error {
	var left error
	for _, root := range groups() {
		var dirs []string
		_ = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				dirs = append(dirs, path)
			}
			return nil // it may be gone already
		})
		for _, dir := range slices.Backward(dirs) {
			if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
				left = fmt.Errorf("remove a control group: %w", err)
			}
		}
	}
	return left
}

func (r *record) in(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", slices.Concat(
		[]string{"-t", fmt.Sprint(r.PID), "-m", "-n", "-p", "-i", "--", name}, args)...)
}
