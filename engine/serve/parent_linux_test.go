package serve_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/engine/serve"
)

// family is the environment variable that makes this test binary play a role in TestExitWithParent.
const family = "ROUSE_TEST_FAMILY"

func TestMain(m *testing.M) {
	switch os.Getenv(family) {
	case "parent":
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), family+"=child")
		child.Stdout = os.Stdout
		fmt.Fprintln(os.Stderr, "parent:", child.Run())
		return
	case "child":
		if err := serve.ExitWithParent(); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("ready")
		time.Sleep(time.Hour) // it is not to get there: the signal comes first
	}
	os.Exit(m.Run())
}

// TestExitWithParent kills a parent and waits for its child to close the pipe that only the child holds by then.
func TestExitWithParent(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), family+"=parent")
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	parent.Stdout = in
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	r := bufio.NewReader(out)
	if line, err := r.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("the child says %q, %v", line, err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // it was killed
	if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
		t.Errorf("the child goes on: %q, %v", rest, err)
	}
}
