package kernel

import (
	"runtime"

	"golang.org/x/sys/cpu"
)

const (
	neon    level = iota + 1 // what every such processor has
	dotprod                  // products of four bytes: Armv8.4, and many since 8.2
)

var levelNames = [...]string{generic: "generic", neon: "neon", dotprod: "dotprod"}

// Each of Apple's processors that runs Go has all of it.
func supported() level {
	if cpu.ARM64.HasASIMDDP || runtime.GOOS == "darwin" {
		return dotprod
	}
	return neon
}
