package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const machine = `cpu: model=%s, count=1, ips=100000000, reset_on_triple_fault=0
memory: guest=512, host=512
romimage: file=%s
vgaromimage: file=%s
ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14
ata0-master: type=cdrom, path=image.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=serial
display_library: %s
log: log
panic: action=fatal
error: action=ignore
info: action=ignore
clock: sync=none
`

// boot starts the image and waits for the verdict. A test that failed is an error.
func boot(ctx context.Context, t *tools, c Config, dir string) error {
	write := func(name, text string) error { return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644) }
	err := errors.Join(write("machine", fmt.Sprintf(machine, c.CPU, t.bios, t.video, c.Display)), write("debugger", "c\n"), write("serial", ""))
	if err != nil {
		return fmt.Errorf("describe the machine: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	args := []string{"-q", "-f", "machine"}
	if help, _ := exec.CommandContext(ctx, t.bochs, "--help").CombinedOutput(); bytes.Contains(help, []byte("-rc ")) {
		args = append(args, "-rc", "debugger") // a Bochs with a debugger waits for the command to go on
	}
	cmd := exec.CommandContext(ctx, t.bochs, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TERM=linux")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start Bochs: %w", err)
	}
	ended := make(chan error, 1) // exactly one send
	go func() { ended <- cmd.Wait() }()
	verdict, err := follow(ctx, filepath.Join(dir, "serial"), ended)
	cancel(nil)
	if err != nil {
		return fmt.Errorf("%w\nBochs said: %s", err, tail(said.String()))
	}
	if verdict != 0 {
		return fmt.Errorf("the tests failed with exit status %d", verdict)
	}
	return nil
}

// follow copies the serial port's file to the output until it finds the tests' exit status. ended
// receives when Bochs ends.
func follow(ctx context.Context, path string, ended <-chan error) (verdict int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("read the serial port: %w", err)
	}
	defer f.Close()
	r := bufio.NewReader(f)
	line := ""
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		part, err := r.ReadString('\n')
		line += part
		if err == nil {
			line = strings.ReplaceAll(line, "\r", "")
			if _, err := fmt.Sscanf(line, "VERDICT %d\n", &verdict); err == nil {
				return verdict, nil
			}
			if strings.Contains(line, "Kernel panic") {
				return 0, fmt.Errorf("the tests did not start: %s", line)
			}
			fmt.Print(line)
			line = ""
			continue
		}
		if !errors.Is(err, io.EOF) {
			return 0, fmt.Errorf("read the serial port: %w", err)
		}
		select {
		case err := <-ended:
			return 0, errors.Join(errors.New("the emulator ended before the tests did"), err)
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// tail returns the last 1000 bytes of s.
func tail(s string) string { return s[max(0, len(s)-1000):] }
