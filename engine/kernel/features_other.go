//go:build !amd64

package kernel

func supported() level { return generic }
