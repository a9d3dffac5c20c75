package e2e

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// errNoClock says that a process's clock can't be changed here.
var errNoClock = errors.New("the clock of one process can't be changed on this machine")

// shiftClock sets the time of day of a running process wrong by some seconds; 0 sets it right. The process asks the
// kernel's vDSO for the time. In its copy of the vDSO the function is replaced by one that asks the kernel and adds the
// seconds. Its monotonic clock does not change, as when somebody sets a machine's clock. Its children have the right
// time.
func shiftClock(pid int, seconds int32) (err error) {
	if runtime.GOARCH != "amd64" {
		return errNoClock
	}
	base, image, err := vdso(pid)
	if err != nil {
		return err
	}
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return fmt.Errorf("%w: %w", errNoClock, err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return fmt.Errorf("%w: %w", errNoClock, err)
	}
	code := []byte{
		0xb8, 228, 0, 0, 0, // mov eax, clock_gettime
		0x0f, 0x05, // syscall
		0x85, 0xff, // test edi, edi: CLOCK_REALTIME is 0
		0x75, 0x07, // jne over the next
		0x48, 0x81, 0x06, 0, 0, 0, 0, // add qword [rsi], seconds
		0xc3, // ret
	}
	binary.LittleEndian.PutUint32(code[14:], uint32(seconds)) // the bits of a number with a sign
	for _, s := range symbols {
		if s.Name != "__vdso_clock_gettime" {
			continue
		}
		if s.Size < uint64(len(code)) {
			return errNoClock
		}
		return write(pid, base+int64(s.Value), code)
	}
	return errNoClock
}

// vdso returns the address and the image of the kernel's own library in a process.
func vdso(pid int) (base int64, image []byte, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, nil, err
	}
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		if !strings.Contains(line, "[vdso]") {
			continue
		}
		if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil {
			return 0, nil, err
		}
		memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
		if err != nil {
			return 0, nil, err
		}
		defer memory.Close()
		image, err = io.ReadAll(io.NewSectionReader(memory, from, to-from))
		return from, image, err
	}
	return 0, nil, errNoClock
}

// write changes the code of a process, which stands meanwhile.
func write(pid int, at int64, code []byte) (err error) {
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, syscall.Kill(pid, syscall.SIGCONT)) }()
	if err := retry(func() error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if _, state, found := strings.Cut(string(stat), ") "); err == nil && (!found || state[0] != 'T') {
			err = errors.New("it does not stand yet")
		}
		return err
	}); err != nil {
		return err
	}
	_, err = memory.WriteAt(code, at)
	return err
}

// logsAt says whether a server has logged a line whose time is wrong by d, to a minute.
func (s *server) logsAt(d time.Duration) bool {
	for line := range strings.Lines(s.output()) {
		var said struct{ Time time.Time }
		if json.Unmarshal([]byte(line), &said) == nil && (time.Until(said.Time)-d).Abs() < time.Minute {
			return true
		}
	}
	return false
}
