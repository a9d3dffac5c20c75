// Command fakeruntime is a model server without a model, which fails on demand: see package functionstest.
package main

import (
	"os"

	"github.com/rouse-dev/rouse/functions/functionstest"
)

func main() { os.Exit(functionstest.Main(os.Args[1:], os.Stdout, os.Stderr)) }
