//go:build !amd64 && !arm64

package kernel

var levelNames = [...]string{generic: "generic"}

func supported() level { return generic }
