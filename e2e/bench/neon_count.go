package main

import (
	"bufio"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// emulator runs the tests of engine/kernel.
type emulator struct {
	tests  string
	filter string // addresses whose instructions count, as QEMU takes them
}

// work is one sub-benchmark of BenchmarkCount.
type work struct {
	name  string
	items int
}

const countBenchmark = "BenchmarkCount/"

// filter gives the addresses of engine/kernel, and of the conversions of halves.
func filter(tests string) (string, error) {
	file, err := os.Open(tests)
	if err != nil {
		return "", err
	}
	defer file.Close()
	f, err := elf.NewFile(file)
	if err != nil {
		return "", fmt.Errorf("read the tests: %w", err)
	}
	symbols, err := f.Symbols()
	if err != nil {
		return "", fmt.Errorf("read the tests' symbols: %w", err)
	}
	var low, high uint64
	var others []string
	for _, s := range symbols {
		name, ok := strings.CutPrefix(s.Name, "github.com/rouse-dev/rouse/engine/")
		if !ok || elf.ST_TYPE(s.Info) != elf.STT_FUNC {
			continue
		}
		if strings.HasPrefix(name, "kernel.") {
			if low == 0 || s.Value < low {
				low = s.Value
			}
			high = max(high, s.Value+s.Size)
		}
		if name == "gguf.F16ToF32" || name == "gguf.F32ToF16" {
			others = append(others, fmt.Sprintf("%#x+%#x", s.Value, s.Size))
		}
	}
	if high == 0 {
		return "", errors.New("the tests have no symbols of engine/kernel")
	}
	return strings.Join(append(others, fmt.Sprintf("%#x+%#x", low, high-low)), ","), nil
}

// command runs benchmarks of a name a number of times by a set of instructions.
func (e *emulator) command(ctx context.Context, set, name string, times int, flags ...string) *exec.Cmd {
	args := append(flags, "-cpu", armCPU, e.tests, "-test.run", "^$", "-test.bench", name, "-test.benchtime", strconv.Itoa(times)+"x")
	cmd := exec.CommandContext(ctx, qemu, args...)
	cmd.Env = append(os.Environ(), "ROUSE_CPU="+set, "GOMAXPROCS=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1")
	return cmd
}

// works lists all of them.
func (e *emulator) works(ctx context.Context) ([]work, error) {
	out, err := e.command(ctx, "", "^BenchmarkCount$", 1).Output()
	if err != nil {
		return nil, fmt.Errorf("list the works: %w\n%s", err, out)
	}
	var all []work
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		for i, unit := range f {
			if unit != "items" || !strings.HasPrefix(f[0], countBenchmark) {
				continue
			}
			items, err := strconv.ParseFloat(f[i-1], 64)
			if err != nil {
				return nil, fmt.Errorf("list the works: %s: %w", line, err)
			}
			all = append(all, work{strings.TrimPrefix(f[0], countBenchmark), int(items)})
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("BenchmarkCount lists no works:\n%s", out)
	}
	return all, nil
}

// count is the number of instructions of a work done once.
func (e *emulator) count(ctx context.Context, w work, set string) (int, error) {
	var n [2]int
	for i, times := range []int{2, 4} {
		var err error
		if n[i], err = e.log(ctx, w, set, times); err != nil {
			return 0, err
		}
	}
	if n[1] <= n[0] {
		return 0, fmt.Errorf("%d instructions done four times, %d done twice", n[1], n[0])
	}
	return (n[1] - n[0]) / 2, nil
}

// log runs a work and counts the instructions that QEMU's log says were executed.
func (e *emulator) log(ctx context.Context, w work, set string, times int) (int, error) {
	name := "^BenchmarkCount$/^" + strings.ReplaceAll(w.name, "/", "$/^") + "$"
	cmd := e.command(ctx, set, name, times, "-d", "nochain,exec,in_asm", "-dfilter", e.filter)
	var out bytes.Buffer
	cmd.Stdout = &out
	text, err := cmd.StderrPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	n, readErr := executed(text)
	_, _ = io.Copy(io.Discard, text) // so that it ends
	if err := errors.Join(readErr, cmd.Wait()); err != nil {
		return 0, fmt.Errorf("%w\n%s", err, &out)
	}
	if !strings.Contains(out.String(), countBenchmark+w.name) {
		return 0, fmt.Errorf("it did not run:\n%s", &out)
	}
	return n, nil
}

// executed counts instructions. A block that is translated is told line by line:
//
//	----------------
//	IN: github.com/rouse-dev/rouse/engine/kernel.openQ4K
//	0x001a1e80:  f9400b90  ldr      x16, [x28, #0x10]
//
// and one that is executed in one line, the address second in brackets:
//
//	Trace 0: 0x7fe89445b6c0 [0000000000001001/00000000001a1e80/00000001/00080200] …
func executed(log io.Reader) (int, error) {
	sizes := map[uint64]int{}
	var block uint64
	var total int
	begins := false
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		line := lines.Bytes()
		switch {
		case bytes.HasPrefix(line, []byte("IN:")):
			begins = true
		case bytes.HasPrefix(line, []byte("0x")):
			if begins {
				digits, _, _ := bytes.Cut(line[2:], []byte(":"))
				at, err := strconv.ParseUint(string(digits), 16, 64)
				if err != nil {
					return 0, fmt.Errorf("%s: %w", line, err)
				}
				block, begins, sizes[at] = at, false, 0
			}
			sizes[block]++
		case bytes.HasPrefix(line, []byte("Trace")):
			parts := bytes.SplitN(line, []byte("/"), 3)
			if len(parts) < 3 {
				return 0, fmt.Errorf("a block without an address: %s", line)
			}
			at, err := strconv.ParseUint(string(parts[1]), 16, 64)
			if err != nil || sizes[at] == 0 {
				return 0, fmt.Errorf("a block that was not translated: %s", line)
			}
			total += sizes[at]
		}
	}
	return total, lines.Err()
}
