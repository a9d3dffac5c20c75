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

// Config selects a device and its holder.
type Config struct {
	Dir string
	// as CUDA_VISIBLE_DEVICES; the first is opened. Nil: all devices.
	Visible *string
	// of a missing device, which is made. 0: that is an error, unless the folder has no device; then 80 GiB.
	Memory int64
	// in nvidia-smi
	Name string
}

// Client is one holder of memory. Its methods are safe for many goroutines.
type Client struct {
	cfg   Config
	index int
	mu    sync.Mutex // guards file and the order of changes
	file  *os.File   // its lock says that the client is alive; nil once closed
	id    string
}

// Open finds the device, or fails with [ErrNoDevice]. Nothing is held on it yet.
func Open(cfg Config) (*Client, error) {
	f, err := open(cfg.Dir)
	if err != nil {
		return nil, err
	}
	defer f.unlock()
	c := &Client{cfg: cfg}
	if c.index, err = f.visible(cfg); err != nil {
		return nil, err
	}
	if c.file, err = os.CreateTemp(filepath.Join(cfg.Dir, clients), "client-*"); err != nil {
		return nil, fmt.Errorf("devices: %w", err)
	}
	c.id = filepath.Base(c.file.Name())
	_ = os.Chmod(c.file.Name(), 0o666) // other users test its lock too; one that cannot takes it for held
	if err := flock(c.file, true); err != nil {
		c.file.Close()
		return nil, fmt.Errorf("devices: lock %s: %w", c.file.Name(), err)
	}
	return c, nil
}

// visible returns the first device that a process may use, and makes it where that is allowed.
func (f *folder) visible(cfg Config) (int, error) {
	all, err := f.all()
	if err != nil {
		return 0, err
	}
	name := "0"
	if cfg.Visible != nil {
		name, _, _ = strings.Cut(*cfg.Visible, ",")
	} else if len(all) > 0 {
		name = all[0].UUID
	}
	index, notIndex := strconv.Atoi(name)
	for _, d := range all {
		if notIndex == nil && d.Index == index || notIndex != nil && name != "" && strings.HasPrefix(d.UUID, name) {
			return d.Index, nil
		}
	}
	memory := cfg.Memory
	if memory == 0 && len(all) == 0 {
		memory = 80 << 30
	}
	if notIndex != nil || index < 0 || memory == 0 {
		return 0, fmt.Errorf("device %q in %s: %w: create it, or say how much memory it has with --device-memory", name, f.dir, ErrNoDevice)
	}
	return index, f.write(New(index, memory))
}

// Resize holds bytes on the device. If it has too little, Resize fails with [ErrOutOfMemory] and changes nothing.
func (c *Client) Resize(bytes int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resize(bytes)
}

// resize is Resize with mu held.
func (c *Client) resize(bytes int64) error {
	dir, err := open(c.cfg.Dir)
	if err != nil {
		return err
	}
	defer dir.unlock()
	d, err := dir.read(c.index)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(d.Processes, func(p Process) bool { return p.Client == c.id })
	if i < 0 {
		i = len(d.Processes)
		d.Processes = append(d.Processes, Process{PID: os.Getpid(), Namespace: namespace(), Name: c.cfg.Name, Client: c.id})
	}
	if more := bytes - d.Processes[i].Bytes; more > 0 && more > d.Free() {
		return fmt.Errorf("device %d has %d of %d bytes free and %d more are wanted: %w", d.Index, max(0, d.Free()), d.Memory, more, ErrOutOfMemory)
	}
	d.Processes[i].Bytes = bytes
	return dir.write(d)
}

// namespace returns "" if the system has none.
func namespace() string {
	name, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	return name
}

// Device reads the device.
func (c *Client) Device() (Device, error) {
	f, err := open(c.cfg.Dir)
	if err != nil {
		return Device{}, err
	}
	defer f.unlock()
	return f.read(c.index)
}

// Lost reports whether the device was removed. It is cheap.
func (c *Client) Lost() bool {
	_, err := os.Stat((&folder{dir: c.cfg.Dir}).path(c.index))
	return errors.Is(err, os.ErrNotExist)
}

// Close gives everything back. It may be called twice.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file == nil {
		return nil
	}
	err := c.resize(0)
	if errors.Is(err, ErrNoDevice) {
		err = nil
	}
	_ = os.Remove(c.file.Name())
	c.file.Close()
	c.file = nil
	return err
}
