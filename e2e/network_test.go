package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// network is hosts with a network namespace each, whose packets this process carries from one to another: it loses
// them, delays them, and does so in one direction alone. It needs no module of the kernel beside TUN.
type network struct {
	prefix string // of a namespace's name
	subnet string // its first three bytes, with a point at the end
	hosts  map[byte]*os.File

	mu     sync.Mutex // guards what follows
	faults map[[2]byte]fault
	lost   int
}

// fault is a fault of the packets from one host to another.
type fault struct {
	loss  float64 // the part that is lost; 1: nothing arrives
	delay time.Duration
}

// tester is the host that the test itself is: the machine's own namespace.
const tester byte = 254

// newNetwork makes a network of hosts 1 to n and the test itself, or skips the test and says why.
func newNetwork(t *testing.T, n byte) *network {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("network namespaces need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skipf("network namespaces need iproute2: %v", err)
	}
	pid := os.Getpid()
	w := &network{prefix: fmt.Sprintf("rouse-%d-", pid), subnet: fmt.Sprintf("198.18.%d.", 1+pid%250), hosts: map[byte]*os.File{}, faults: map[[2]byte]fault{}}
	var carrying sync.WaitGroup
	t.Cleanup(func() {
		for host, f := range w.hosts {
			_ = f.Close()
			if host != tester {
				_ = ip("netns", "del", w.namespace(host))
			}
		}
		carrying.Wait()
	})
	for _, host := range append([]byte{tester}, series(n)...) {
		f, err := w.add(host)
		if err != nil {
			t.Skipf("no network namespaces here: %v", err)
		}
		w.hosts[host] = f
	}
	for host := range w.hosts {
		carrying.Go(func() { w.carry(host) })
	}
	return w
}

// series is 1 to n.
func series(n byte) (list []byte) {
	for k := byte(1); k <= n; k++ {
		list = append(list, k)
	}
	return list
}

func (w *network) namespace(host byte) string { return fmt.Sprintf("%s%d", w.prefix, host) }

func (w *network) address(host byte) string { return fmt.Sprintf("%s%d", w.subnet, host) }

// add makes a host, and returns the end of its wire.
func (w *network) add(host byte) (*os.File, error) {
	device := fmt.Sprintf("r%d.%d", os.Getpid(), host)
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(device)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("make the device %s: %w", device, err)
	}
	f := os.NewFile(uintptr(fd), device)
	in := []string{}
	if host != tester {
		in = []string{"-n", w.namespace(host)}
		err = errors.Join(ip("netns", "add", w.namespace(host)), ip("link", "set", device, "netns", w.namespace(host)), ip(append(in, "link", "set", "lo", "up")...))
	}
	err = errors.Join(err, ip(append(in, "addr", "add", w.address(host)+"/24", "dev", device)...), ip(append(in, "link", "set", device, "up")...))
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// carry carries what a host sends, until its end of the wire is closed.
func (w *network) carry(from byte) {
	packet := make([]byte, 64<<10)
	for {
		n, err := w.hosts[from].Read(packet)
		if err != nil {
			return
		}
		if n < 20 || packet[0]>>4 != 4 {
			continue
		}
		to := w.hosts[packet[19]]
		if to == nil {
			continue
		}
		w.mu.Lock()
		f := w.faults[[2]byte{from, packet[19]}]
		lost := f.loss > 0 && rand.Float64() < f.loss
		if lost {
			w.lost++
		}
		w.mu.Unlock()
		switch {
		case lost:
		case f.delay > 0:
			late := append([]byte(nil), packet[:n]...)
			time.AfterFunc(f.delay, func() { _, _ = to.Write(late) })
		default:
			_, _ = to.Write(packet[:n]) // a host that is full loses it, as any does
		}
	}
}

// disturb has something happen to packets from one host to another; the zero fault: they arrive again.
func (w *network) disturb(from, to byte, f fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults[[2]byte{from, to}] = f
}

// heal ends every fault.
func (w *network) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.faults)
}
