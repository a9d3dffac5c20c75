// Command vllmsim is a model server without a model: see package vllmsim and its README.
package main

import (
	"os"

	"github.com/rouse-dev/rouse/e2e/vllmsim"
)

func main() { os.Exit(vllmsim.Main(os.Args, os.Stdout, os.Stderr)) }
