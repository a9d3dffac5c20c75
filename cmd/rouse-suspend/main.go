// Command rouse-suspend has NVIDIA's driver (570 or newer) take processes off their GPUs and back onto them. It is a
// program of its own because libcuda needs the C library; the others are static.
//
// It writes "= VERSION" (CUDA's, such as 12080), and answers each line by "= STATE" or "= 0", or "! CODE" with the
// driver's error (CUDA driver API, cuCheckpointProcess…). It exits at any other line:
//
//	GetState PID
//	Lock PID MILLISECONDS
//	Checkpoint PID
//	Restore PID [OLD=NEW …]      the UUIDs of all GPUs that it had, and gets; none: the same
//	Unlock PID
package main

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "rouse-suspend:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	lib, err := purego.Dlopen("libcuda.so.1", purego.RTLD_NOW)
	if err != nil {
		return fmt.Errorf("NVIDIA's driver is not here: %w", err)
	}
	var getVersion func(*int32) int32
	var initialize func(uint32) int32
	var version int32
	purego.RegisterLibFunc(&getVersion, lib, "cuDriverGetVersion")
	purego.RegisterLibFunc(&initialize, lib, "cuInit")
	getVersion(&version)
	if code := initialize(0); code != 0 { // a restore needs it
		return fmt.Errorf("cuInit: CUDA error %d", code)
	}
	fmt.Fprintln(out, "=", version)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		answer, err := obey(lib, lines.Text())
		if err != nil {
			return fmt.Errorf("%.200q: %w", lines.Text(), err)
		}
		fmt.Fprintln(out, answer)
	}
	return lines.Err()
}

// arguments is any of the driver's structures: all have 64 bytes.
type arguments [8]uint64

// call calls a function of the driver, and returns the driver's error in code.
func call(lib uintptr, name string, pid int, args *arguments) (code int32, err error) {
	address, err := purego.Dlsym(lib, name)
	if err != nil {
		return 0, fmt.Errorf("the driver is too old: %w", err)
	}
	var function func(int32, *arguments) int32
	purego.RegisterFunc(&function, address)
	return function(int32(pid), args), nil
}

const uuid = `GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}`

var line = regexp.MustCompile(`^(GetState|Lock|Checkpoint|Restore|Unlock) ([1-9]\d{0,8})(?: (\d{1,8}))?((?: ` + uuid + `=` + uuid + `)*)$`)

func obey(lib uintptr, text string) (answer string, err error) {
	m := line.FindStringSubmatch(text)
	if m == nil || (m[1] == "Lock") != (m[3] != "") {
		return "", errors.New("no such call")
	}
	pid, _ := strconv.Atoi(m[2])
	timeout, _ := strconv.Atoi(m[3])
	args := arguments{uint64(timeout)}
	pairs, err := hex.DecodeString(strings.NewReplacer("GPU-", "", "-", "", "=", "", " ", "").Replace(m[4]))
	if err != nil {
		return "", err
	}
	if len(pairs) > 0 {
		args = arguments{uint64(uintptr(unsafe.Pointer(&pairs[0]))), uint64(len(pairs) / 32)}
	}
	code, err := call(lib, "cuCheckpointProcess"+m[1], pid, &args)
	runtime.KeepAlive(pairs)
	switch {
	case err != nil:
		return "", err
	case code != 0:
		return fmt.Sprint("! ", code), nil
	case m[1] == "GetState":
		return fmt.Sprint("= ", uint32(args[0])), nil
	}
	return "= 0", nil
}
