package fetch_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/functions/fetch"
)

// TestMain also runs the test binary as a second process that fetches.
func TestMain(m *testing.M) {
	if os.Getenv("FETCH_TEST_REF") != "" {
		if err := child(); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// child fetches a reference, prints its path, and holds it until its input ends.
func child() error {
	if limit, err := strconv.ParseUint(os.Getenv("FETCH_TEST_FILE_LIMIT"), 10, 64); err == nil {
		signal.Ignore(syscall.SIGXFSZ) // then a write past the limit is an error
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
			return err
		}
	}
	// Only the parent trusts its server's certificate, and the test is about processes.
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	cfg := fetch.Config{Dir: os.Getenv("FETCH_TEST_DIR"), Client: client, Backoff: time.Millisecond}
	cfg.Share.SecretFile = os.Getenv("FETCH_TEST_SECRET")
	c, err := fetch.New(cfg)
	if err != nil {
		return err
	}
	said := false
	m, err := c.Fetch(context.Background(), os.Getenv("FETCH_TEST_REF"), func(p fetch.Progress) {
		if p.Done > 0 && !said {
			said = true
			fmt.Println("moving")
		}
	})
	var disk *fetch.DiskError
	if errors.As(err, &disk) {
		fmt.Println("disk")
	}
	if err != nil {
		return err
	}
	defer m.Release()
	fmt.Println("model:", m.Path)
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	return nil
}

// process is another process that fetches.
type process struct {
	*exec.Cmd
	lines *bufio.Scanner
	input interface{ Close() error }
}

func start(t *testing.T, dir, ref string, env ...string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), "FETCH_TEST_DIR="+dir, "FETCH_TEST_REF="+ref), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: cmd, lines: bufio.NewScanner(out), input: in}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return p
}

// line returns the next line of output that is not about progress, unless want is.
func (p *process) line(t *testing.T, want string) string {
	t.Helper()
	for p.lines.Scan() {
		if p.lines.Text() != "moving" || want == "moving" {
			return p.lines.Text()
		}
	}
	t.Fatalf("the process ends before it says %q: %v", want, p.lines.Err())
	return ""
}
