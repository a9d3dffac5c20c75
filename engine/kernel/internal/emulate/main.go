// Command emulate runs the tests of engine/kernel on an emulated processor
// with AVX-512 and VNNI (Bochs).
//
// The steps:
//
//  1. It builds the tests, and a process 1 that runs them, as static programs. A CD image with Linux holds nothing else.
//  2. It starts Bochs with that image and copies the output of the serial port to its own.
//  3. Process 1 reports the tests' exit status, and Bochs is stopped.
//
// It needs no root, and installs nothing. It takes minutes: the emulated processor
// does some ten million instructions a second, and Linux starts first.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"time"
)

// Config says what to run and on which processor.
type Config struct {
	Package string        // of the tests
	Run     string        // -test.run
	CPU     string        // Bochs's name for the processor
	Kernel  string        // vmlinuz; "" downloads Debian's
	Bochs   string        // the emulator; "" looks on the PATH
	Display string        // Bochs's display library
	Timeout time.Duration // for all
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("emulate: ")
	var c Config
	flag.StringVar(&c.Package, "package", "./engine/kernel", "the package whose tests run")
	flag.StringVar(&c.Run, "run", "TestFeatures|TestLevels|TestLargest|TestGroups|TestMulWrites|TestAttention", "the tests that run")
	flag.StringVar(&c.CPU, "cpu", "corei7_icelake_u", "the processor, as Bochs calls it")
	flag.StringVar(&c.Kernel, "kernel", "", "a Linux kernel (vmlinuz); empty: Debian's, downloaded once")
	flag.StringVar(&c.Bochs, "bochs", "", "the emulator; empty: bochs-bin or bochs on the PATH")
	flag.StringVar(&c.Display, "display", "term", "the emulator's display library: term, or nogui where it is built with that")
	flag.DurationVar(&c.Timeout, "timeout", 20*time.Minute, "the most time that it may take")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, c); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, c Config) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("no verdict within %s: raise -timeout or narrow -run", c.Timeout))
	defer cancel()
	tools, err := findTools(c.Bochs)
	if err != nil {
		return err
	}
	if c.Kernel == "" {
		if c.Kernel, err = debianKernel(ctx); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp("", "rouse-emulate-")
	if err != nil {
		return fmt.Errorf("make a place for the image: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := buildImage(ctx, &tools, c, dir); err != nil {
		return err
	}
	return boot(ctx, &tools, c, dir)
}

// tools are external programs and files.
type tools struct {
	bochs, xorriso, isolinux, ldlinux, bios, video string
}

const packages = "bochs bochs-term bochsbios vgabios isolinux syslinux-common xorriso"

// findTools looks in the paths of Debian's packages.
func findTools(bochs string) (tools, error) {
	var t tools
	var missing []error
	program := func(to *string, names ...string) {
		for _, n := range names {
			if p, err := exec.LookPath(n); err == nil {
				*to = p
				return
			}
		}
		missing = append(missing, fmt.Errorf("%s is not on the PATH", names[0]))
	}
	file := func(to *string, path string) {
		*to = path
		if _, err := os.Stat(path); err != nil {
			missing = append(missing, err)
		}
	}
	if t.bochs = bochs; bochs == "" {
		program(&t.bochs, "bochs-bin", "bochs")
	}
	program(&t.xorriso, "xorriso")
	file(&t.isolinux, "/usr/lib/ISOLINUX/isolinux.bin")
	file(&t.ldlinux, "/usr/lib/syslinux/modules/bios/ldlinux.c32")
	file(&t.bios, "/usr/share/bochs/BIOS-bochs-latest")
	file(&t.video, "/usr/share/bochs/VGABIOS-lgpl-latest")
	if missing != nil {
		return t, fmt.Errorf("%w\ninstall them: apt-get install --no-install-recommends %s", errors.Join(missing...), packages)
	}
	return t, nil
}

// debianKernel downloads the kernel of linux-image-cloud-amd64 to the cache.
func debianKernel(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache: %w", err)
	}
	dir := filepath.Join(cache, "rouse", "emulate")
	find := func() string {
		found, _ := filepath.Glob(filepath.Join(dir, "boot", "vmlinuz-*")) // the pattern is well formed
		if len(found) == 0 {
			return ""
		}
		return found[len(found)-1]
	}
	if k := find(); k != "" {
		return k, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the cache: %w", err)
	}
	cmd := exec.CommandContext(ctx, "sh", "-ec", `
		image=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/^ *Depends: *\(linux-image-[0-9].*\)/\1/p' | head -n 1)
		apt-get download "$image"
		dpkg -x linux-image-*.deb .
		rm linux-image-*.deb`)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("download Debian's kernel: %w: %s\ngive one with -kernel", err, out)
	}
	k := find()
	if k == "" {
		return "", errors.New("the package linux-image-cloud-amd64 has no boot/vmlinuz-*: give a kernel with -kernel")
	}
	return k, nil
}
