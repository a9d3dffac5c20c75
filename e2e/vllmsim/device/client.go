package device

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Config says who opens which devices.
type Config struct {
	// Dir is the folder.
	Dir string
	// Visible names devices as CUDA_VISIBLE_DEVICES does: indexes or UUIDs with
	// commas between them. Nil: all devices.
	Visible *string
	// Count is how many of the visible ones are used, from the first. 0: one.
	Count int
	// Memory is what devices have that are made because they are missing. 0: a missing device
	// is an error, unless the folder has none at all; then they have 80 GiB.
	Memory int64
	// Name is what nvidia-smi calls the process, and PID its number. PID 0: this process.
	Name string
	PID  int
}

// Client is one holder of memory. Its methods are safe for many goroutines.
type Client struct {
	cfg     Config
	id      string
	file    *os.File
	indexes []int
	mu      sync.Mutex // guards pid and the order of changes
	pid     int
}

// Open finds the devices. Nothing is held on them yet. [ErrNoDevice]: one of them does not exist.
func Open(cfg Config) (*Client, error) {
	f, err := open(cfg.Dir)
	if err != nil {
		return nil, err
	}
	defer f.unlock()
	c := &Client{cfg: cfg, pid: cfg.PID}
	if c.pid == 0 {
		c.pid = os.Getpid()
	}
	if c.indexes, err = f.visible(cfg); err != nil {
		return nil, err
	}
	if c.file, err = os.CreateTemp(filepath.Join(cfg.Dir, clients), "client-*"); err != nil {
		return nil, fmt.Errorf("devices: %w", err)
	}
	c.id = filepath.Base(c.file.Name())
	_ = os.Chmod(c.file.Name(), 0o666) // other users test its lock too; one that cannot open it takes it for held
	if err := flock(c.file, true); err != nil {
		c.file.Close()
		return nil, fmt.Errorf("devices: lock %s: %w", c.file.Name(), err)
	}
	return c, nil
}

// visible finds the indexes that a process may use and makes missing devices where that is allowed.
func (f *folder) visible(cfg Config) ([]int, error) {
	all, err := f.all()
	if err != nil {
		return nil, err
	}
	var names []string
	if cfg.Visible == nil {
		for _, d := range all {
			names = append(names, d.UUID)
		}
		if len(all) == 0 {
			names = []string{"0"}
		}
	} else {
		names = strings.FieldsFunc(*cfg.Visible, func(r rune) bool { return r == ',' || r == ' ' })
	}
	count := max(1, cfg.Count)
	if len(names) < count {
		return nil, fmt.Errorf("%d devices are wanted and %d are visible: %w", count, len(names), ErrNoDevice)
	}
	var indexes []int
	for _, name := range names[:count] {
		index, err := f.find(all, name, cfg.Memory)
		if err != nil {
			return nil, err
		}
		if slices.Contains(indexes, index) {
			return nil, fmt.Errorf("device %s is named twice", name)
		}
		indexes = append(indexes, index)
	}
	return indexes, nil
}

// find gives the index of a device by its index or UUID, or the beginning of one.
func (f *folder) find(all []Device, name string, memory int64) (int, error) {
	index, err := strconv.Atoi(name)
	for _, d := range all {
		if err == nil && d.Index == index || err != nil && strings.HasPrefix(d.UUID, name) {
			return d.Index, nil
		}
	}
	if memory == 0 && len(all) == 0 {
		memory = 80 << 30
	}
	if err != nil || index < 0 || memory == 0 {
		return 0, fmt.Errorf("device %q in %s: %w: create it, or say how much memory it has with --device-memory", name, f.dir, ErrNoDevice)
	}
	return index, f.write(New(index, memory))
}

// File keeps the memory held for as long as any process has it open. A child
// that is to hold it is started with it; see [Client.Hand].
func (c *Client) File() *os.File { return c.file }

// Hand makes another process the one that nvidia-smi shows.
func (c *Client) Hand(pid int) error {
	c.mu.Lock()
	c.pid = pid
	c.mu.Unlock()
	return c.change(func(p *Process, _ Device) error { return nil })
}

// Resize holds bytes on each device, and says that host bytes are in host memory
// instead. It is all or nothing. [ErrOutOfMemory]: some device has too little.
func (c *Client) Resize(bytes, host int64) error {
	return c.change(func(p *Process, d Device) error {
		if more := bytes - p.Bytes; more > 0 && more > d.Free() {
			return fmt.Errorf("device %d has %d of %d bytes free and %d more are wanted: %w", d.Index, max(0, d.Free()), d.Memory, more, ErrOutOfMemory)
		}
		p.Bytes, p.HostBytes = bytes, host
		return nil
	})
}

// change runs f on this client's entry of each device and writes all of them, or none.
func (c *Client) change(f func(*Process, Device) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	dir, err := open(c.cfg.Dir)
	if err != nil {
		return err
	}
	defer dir.unlock()
	var changed []Device
	for _, index := range c.indexes {
		d, err := dir.read(index)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(d.Processes, func(p Process) bool { return p.Client == c.id })
		if i < 0 {
			i = len(d.Processes)
			d.Processes = append(d.Processes, Process{Client: c.id})
		}
		if err := f(&d.Processes[i], d); err != nil {
			return err
		}
		d.Processes[i].PID, d.Processes[i].Namespace, d.Processes[i].Name = c.pid, namespace(), c.cfg.Name
		changed = append(changed, d)
	}
	for _, d := range changed {
		if err := dir.write(d); err != nil {
			return err
		}
	}
	return nil
}

// namespace is that of this process's number; empty where the system has none.
func namespace() string {
	name, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	return name
}

// Devices reads the devices that this client uses.
func (c *Client) Devices() ([]Device, error) {
	all, err := List(c.cfg.Dir)
	if err != nil {
		return nil, err
	}
	mine := slices.DeleteFunc(all, func(d Device) bool { return !slices.Contains(c.indexes, d.Index) })
	if len(mine) < len(c.indexes) {
		return nil, fmt.Errorf("devices %v in %s: %w", c.indexes, c.cfg.Dir, ErrNoDevice)
	}
	return mine, nil
}

// Lost says that one of the devices that this client uses was removed. It is cheap
// enough to be asked at every step of an engine.
func (c *Client) Lost() bool {
	f := folder{dir: c.cfg.Dir}
	return slices.ContainsFunc(c.indexes, func(i int) bool {
		_, err := os.Stat(f.path(i))
		return errors.Is(err, os.ErrNotExist)
	})
}

// Close gives everything back, also what a child holds. It may be called twice.
func (c *Client) Close() error {
	err := c.change(func(p *Process, _ Device) error { p.Bytes, p.HostBytes = 0, 0; return nil })
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file == nil {
		return nil
	}
	dir, lockErr := open(c.cfg.Dir)
	if lockErr != nil {
		return errors.Join(err, lockErr)
	}
	defer dir.unlock()
	_ = os.Remove(c.file.Name()) // gone with the last holder's lock otherwise
	c.file.Close()
	c.file = nil
	if errors.Is(err, ErrNoDevice) {
		return nil // there is nothing left to give back
	}
	return err
}
