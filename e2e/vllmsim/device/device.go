package device

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ErrOutOfMemory means that a device lacks an amount.
var ErrOutOfMemory = errors.New("out of device memory")

// ErrNoDevice means that a device does not exist.
var ErrNoDevice = errors.New("no such device")

// Mounted is where the containers of e2e/cluster have the folder of their node's devices.
const Mounted = "/run/fake-gpus"

// Device is one accelerator and the processes that use it.
type Device struct {
	Index int    `json:"index"`
	UUID  string `json:"uuid"`
	Name  string `json:"name"`
	// in bytes
	Memory int64 `json:"memory"`
	// those that are alive
	Processes []Process `json:"processes,omitempty"`
}

// Process is one holder.
type Process struct {
	// in Namespace
	PID int `json:"pid"`
	// The process is not visible from another one.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Bytes     int64  `json:"bytes"`
	// the file whose lock says that it is alive
	Client string `json:"client"`
}

// Used returns the memory in use.
func (d Device) Used() (used int64) {
	for _, p := range d.Processes {
		used += p.Bytes
	}
	return used
}

// Free returns the memory that is not in use.
func (d Device) Free() int64 { return d.Memory - d.Used() }

// New describes a device; name and UUID depend on its index.
func New(index int, memory int64) Device {
	sum := sha256.Sum256(fmt.Appendf(nil, "vllmsim device %d", index))
	return Device{
		Index: index, Memory: memory, Name: "Simulated GPU",
		UUID: fmt.Sprintf("GPU-%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16]),
	}
}

// Create writes devices into dir, which it makes. A device that exists is changed in place: its holders stay.
func Create(dir string, devices ...Device) error {
	f, err := open(dir)
	if err != nil {
		return err
	}
	defer f.unlock()
	for _, d := range devices {
		if d.Index < 0 || d.Memory <= 0 || d.UUID == "" || strings.ContainsAny(d.UUID, "/,") {
			return fmt.Errorf("device %d: want an index of at least 0, a UUID, and memory above 0 (have %q, %d)", d.Index, d.UUID, d.Memory)
		}
		if old, err := f.read(d.Index); err == nil {
			d.Processes = old.Processes
		}
		if err := f.write(d); err != nil {
			return err
		}
	}
	return nil
}

// Remove takes a device away, as one that has fallen off the bus.
func Remove(dir string, index int) error {
	f, err := open(dir)
	if err != nil {
		return err
	}
	defer f.unlock()
	if err := os.Remove(f.path(index)); err != nil {
		return fmt.Errorf("remove device %d: %w", index, err)
	}
	return nil
}

// List reads the devices of a folder, in order, without holders that have died. A folder that does not exist has
// none.
func List(dir string) ([]Device, error) {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	f, err := open(dir)
	if err != nil {
		return nil, err
	}
	defer f.unlock()
	return f.all()
}

// folder is open, and its lock is held.
type folder struct {
	dir  string
	lock *os.File
}

const lockFile, clients = "lock", "clients"

// open makes the folder, and waits for its lock.
func open(dir string) (*folder, error) {
	if dir == "" {
		return nil, errors.New("devices: no folder: give one with VLLMSIM_DEVICES")
	}
	if err := os.MkdirAll(filepath.Join(dir, clients), 0o777); err != nil {
		return nil, fmt.Errorf("devices: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, fmt.Errorf("devices: %w", err)
	}
	for _, shared := range []struct {
		path string
		mode os.FileMode
	}{{dir, 0o777}, {filepath.Join(dir, clients), 0o777}, {lock.Name(), 0o666}} {
		_ = os.Chmod(shared.path, shared.mode) // whatever the umask: only the owner can
	}
	if err := flock(lock, true); err != nil {
		lock.Close()
		return nil, fmt.Errorf("devices: lock %s: %w", dir, err)
	}
	return &folder{dir: dir, lock: lock}, nil
}

func (f *folder) unlock() { f.lock.Close() }

func (f *folder) path(index int) string {
	return filepath.Join(f.dir, fmt.Sprintf("gpu%d.json", index))
}

func (f *folder) read(index int) (Device, error) {
	raw, err := os.ReadFile(f.path(index))
	if errors.Is(err, os.ErrNotExist) {
		return Device{}, fmt.Errorf("device %d in %s: %w", index, f.dir, ErrNoDevice)
	}
	if err != nil {
		return Device{}, fmt.Errorf("device %d: %w", index, err)
	}
	var d Device
	if err := json.Unmarshal(raw, &d); err != nil {
		return d, fmt.Errorf("device %d: %s is not a device's file: %w", index, f.path(index), err)
	}
	d.Processes = slices.DeleteFunc(d.Processes, func(p Process) bool { return !f.alive(p.Client) })
	return d, nil
}

// alive removes the file of a process that died.
func (f *folder) alive(client string) bool {
	path := filepath.Join(f.dir, clients, filepath.Base(client))
	file, err := os.Open(path)
	if err != nil {
		return !errors.Is(err, os.ErrNotExist) // whose lock can't be asked is taken for alive
	}
	defer file.Close()
	if flock(file, false) != nil {
		return true
	}
	_ = os.Remove(path)
	return false
}

func (f *folder) write(d Device) error {
	raw, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return fmt.Errorf("device %d: %w", d.Index, err)
	}
	if err := os.WriteFile(f.path(d.Index)+".new", append(raw, '\n'), 0o666); err != nil {
		return fmt.Errorf("device %d: %w", d.Index, err)
	}
	if err := os.Rename(f.path(d.Index)+".new", f.path(d.Index)); err != nil {
		return fmt.Errorf("device %d: %w", d.Index, err)
	}
	return nil
}

func (f *folder) all() ([]Device, error) {
	paths, err := filepath.Glob(filepath.Join(f.dir, "gpu*.json"))
	if err != nil {
		return nil, fmt.Errorf("devices: %w", err)
	}
	var all []Device
	for _, p := range paths {
		var index int
		if _, err := fmt.Sscanf(filepath.Base(p), "gpu%d.json", &index); err != nil {
			continue
		}
		d, err := f.read(index)
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b Device) int { return cmp.Compare(a.Index, b.Index) })
	return all, nil
}
