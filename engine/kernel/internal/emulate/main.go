// Command emulate is process 1 of an emulated machine: it runs /tests with the arguments in the file /arguments. It
// does not end: Linux would then stop before the console's buffer is empty.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

func main() {
	arguments, err := os.ReadFile("/arguments")
	if err != nil {
		fmt.Println("arguments:", err)
	}
	cmd := exec.Command("/tests", strings.Fields(string(arguments))...)
	// Go's garbage collector uses AVX-512 too, in a way that Bochs 2.7 gets wrong; there is enough memory without it.
	// With ROUSE_CPU_MUST, TestFeatures fails if AVX-512 is not in use.
	cmd.Env = []string{"ROUSE_CPU_MUST=avx512", "GOGC=off"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		fmt.Println("tests:", err)
	}
	fmt.Println("\nVERDICT", cmd.ProcessState.ExitCode()) // -1 if they did not start, or a signal ended them
	for {
		time.Sleep(time.Hour)
	}
}
