// Command gpuruntime is runc for containers with simulated GPUs: as NVIDIA's container runtime does, it adds the
// devices in a container's environment before runc makes it:
//
//	gpuruntime -runc /path/to/runc -devices DIR -- create --bundle B ID
//
// A container with NVIDIA_VISIBLE_DEVICES gets the folder of the devices, and VLLMSIM_DEVICES says where: simulated
// model servers account their memory there. Else runc runs unchanged.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

const (
	visible = "NVIDIA_VISIBLE_DEVICES"
	folder  = "VLLMSIM_DEVICES"
	mounted = "/run/fake-gpus"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "gpuruntime:", err)
		os.Exit(1)
	}
}

// run does not return where runc takes over.
func run(args []string) error {
	flags := flag.NewFlagSet("gpuruntime", flag.ContinueOnError)
	runc := flags.String("runc", "", "the real `runc`")
	devices := flags.String("devices", "", "the `folder` of the devices")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *runc == "" || *devices == "" {
		return errors.New("-runc and -devices must be given")
	}
	if bundle, is := created(flags.Args()); is {
		if err := edit(filepath.Join(bundle, "config.json"), *devices); err != nil {
			return err
		}
	}
	return syscall.Exec(*runc, append([]string{*runc}, flags.Args()...), os.Environ())
}

func created(args []string) (bundle string, is bool) {
	if !slices.Contains(args, "create") && !slices.Contains(args, "run") {
		return "", false
	}
	for i, arg := range args {
		if value, found := strings.CutPrefix(arg, "--bundle="); found {
			return value, true
		}
		if (arg == "--bundle" || arg == "-b") && i+1 < len(args) {
			return args[i+1], true
		}
	}
	return ".", true
}

func edit(file, devices string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	changed, err := add(raw, devices)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if changed == nil {
		return nil
	}
	return os.WriteFile(file, changed, 0o600)
}

// add returns nil if the container sees no devices. It keeps unknown fields.
func add(raw []byte, devices string) ([]byte, error) {
	var spec, process map[string]json.RawMessage
	var env []string
	var mounts []json.RawMessage
	err := json.Unmarshal(raw, &spec)
	err = errors.Join(err, read(spec, "process", &process), read(spec, "mounts", &mounts))
	if err = errors.Join(err, read(process, "env", &env)); err != nil {
		return nil, err
	}
	if !sees(env) {
		return nil, nil
	}
	mount, err := json.Marshal(map[string]any{"destination": mounted, "type": "bind", "source": devices, "options": []string{"rbind", "rw", "nosuid", "nodev", "noexec"}})
	if err != nil {
		return nil, err
	}
	env = append(slices.DeleteFunc(env, func(kv string) bool { return strings.HasPrefix(kv, folder+"=") }), folder+"="+mounted)
	if process["env"], err = json.Marshal(env); err != nil {
		return nil, err
	}
	if spec["process"], err = json.Marshal(process); err != nil {
		return nil, err
	}
	if spec["mounts"], err = json.Marshal(append(mounts, mount)); err != nil {
		return nil, err
	}
	return json.Marshal(spec)
}

func read(of map[string]json.RawMessage, name string, to any) error {
	if of[name] == nil {
		return nil
	}
	if err := json.Unmarshal(of[name], to); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func sees(env []string) bool {
	for _, kv := range env {
		if value, found := strings.CutPrefix(kv, visible+"="); found && !slices.Contains([]string{"", "none", "void"}, value) {
			return true
		}
	}
	return false
}
