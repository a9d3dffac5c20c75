package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// kernelOptions reduce the kernel's log and leave out slow steps. The CPU features are masked because of Bochs's
// errors. It announces fast short moves without fast moves, with which Linux 6.1's memmove runs away (580). Up to
// Bochs 2.7 it reports wrong offsets and sizes of XSAVE's state (320, 321, 323, 515).
const kernelOptions = "console=ttyS0 loglevel=4 panic=-1 nokaslr mitigations=off tsc=reliable random.trust_cpu=on clearcpuid=320,321,323,515,580"

// buildImage writes a bootable image.iso to dir.
func buildImage(ctx context.Context, t *tools, c Config, dir string) error {
	iso := filepath.Join(dir, "iso")
	if err := os.Mkdir(iso, 0o755); err != nil {
		return fmt.Errorf("make the image: %w", err)
	}
	tests, err := build(ctx, dir, "test", "-c", c.Package)
	if err != nil {
		return err
	}
	init, err := build(ctx, dir, "build", "github.com/rouse-dev/rouse/engine/kernel/internal/emulate/init")
	if err != nil {
		return err
	}
	archive, err := initrd(init, tests, []string{"-test.v", "-test.run=" + c.Run})
	if err != nil {
		return err
	}
	boot := "DEFAULT tests\nPROMPT 0\nLABEL tests\n KERNEL /vmlinuz\n INITRD /initrd\n APPEND " + kernelOptions + "\n"
	for name, data := range map[string][]byte{"initrd": archive, "isolinux.cfg": []byte(boot)} {
		if err := os.WriteFile(filepath.Join(iso, name), data, 0o644); err != nil {
			return fmt.Errorf("make the image: %w", err)
		}
	}
	for name, from := range map[string]string{"vmlinuz": c.Kernel, "isolinux.bin": t.isolinux, "ldlinux.c32": t.ldlinux} {
		data, err := os.ReadFile(from)
		if err != nil {
			return fmt.Errorf("make the image: %w", err)
		}
		if err := os.WriteFile(filepath.Join(iso, name), data, 0o644); err != nil {
			return fmt.Errorf("make the image: %w", err)
		}
	}
	args := strings.Fields("-as mkisofs -quiet -b isolinux.bin -c boot.cat -no-emul-boot -boot-load-size 4 -boot-info-table")
	args = append(args, "-o", filepath.Join(dir, "image.iso"), iso)
	if out, err := exec.CommandContext(ctx, t.xorriso, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("make the image: %w: %s", err, out)
	}
	return nil
}

// build compiles a static program and returns it.
func build(ctx context.Context, dir string, args ...string) ([]byte, error) {
	out := filepath.Join(dir, "program")
	last := len(args) - 1
	args = append(args[:last:last], "-ldflags", "-s -w", "-o", out, args[last])
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build %s: %w: %s", args[len(args)-1], err, said)
	}
	program, err := os.ReadFile(out)
	if err != nil {
		return nil, fmt.Errorf("read what was built: %w", err)
	}
	return program, nil
}

// initrd returns a root file system with two devices, two programs and their arguments, in the kernel's format: a cpio
// archive in the "newc" form (Documentation/driver-api/early-userspace/buffer-format.rst).
func initrd(init, tests []byte, arguments []string) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	number := 0
	add := func(name string, mode, major, minor int, data []byte) {
		number++
		head := "070701"
		for _, v := range []int{number, mode, 0, 0, 1, 0, len(data), 0, 0, major, minor, len(name) + 1, 0} {
			head += fmt.Sprintf("%08X", v)
		}
		head += name + "\x00"
		fmt.Fprint(z, head, strings.Repeat("\x00", -len(head)&3))
		fmt.Fprintf(z, "%s%s", data, strings.Repeat("\x00", -len(data)&3)) // Close returns an earlier error
	}
	add("dev", 0o040755, 0, 0, nil)
	add("dev/console", 0o020600, 5, 1, nil)
	add("dev/null", 0o020666, 1, 3, nil)
	add("tmp", 0o041777, 0, 0, nil)
	add("init", 0o100755, 0, 0, init)
	add("tests", 0o100755, 0, 0, tests)
	add("arguments", 0o100644, 0, 0, []byte(strings.Join(arguments, "\n")))
	add("TRAILER!!!", 0, 0, 0, nil)
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("pack the root file system: %w", err)
	}
	return b.Bytes(), nil
}
