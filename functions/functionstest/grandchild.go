package functionstest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func (o options) spawn() error {
	ids := fmt.Sprintln(os.Getpid())
	switch o.Grandchild {
	case "":
	case "swarm":
		if err := swarm(o.PIDs); err != nil {
			return err
		}
	default:
		args := []string{"linger"}
		if o.Grandchild == "orphan" {
			args = append(args, "orphan")
		}
		id, err := lingerer(args, o.Grandchild != "group")
		if err != nil {
			return err
		}
		ids += id
	}
	if o.PIDs == "" {
		return nil
	}
	// A reader must see all of it.
	if err := os.WriteFile(o.PIDs+".new", []byte(ids), 0o600); err != nil {
		return err
	}
	return os.Rename(o.PIDs+".new", o.PIDs)
}

// lingerer starts a process that ignores SIGTERM, SIGHUP and SIGINT. It returns the line with the id of the process that stays.
func lingerer(args []string, session bool) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	cmd := exec.Command(self, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: session}
	cmd.Stderr = os.Stderr // held open, as a real helper process does
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	id, err := bufio.NewReader(out).ReadString('\n')
	if len(args) > 1 {
		_ = cmd.Wait() // the one in the middle ends, and orphans the other
	}
	return id, err
}

// linger is the grandchild. It ends by itself after five minutes, so that a failed test leaves nothing for good.
func linger(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		id, err := lingerer([]string{"linger"}, true)
		if err != nil {
			fmt.Fprintln(stderr, "linger:", err)
			return 1
		}
		fmt.Fprintln(stdout, strings.TrimSpace(id))
		return 0
	}
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	fmt.Fprintln(stdout, os.Getpid())
	time.Sleep(5 * time.Minute)
	return 0
}
