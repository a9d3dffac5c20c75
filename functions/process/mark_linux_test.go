package process_test

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/functions/process"
)

// A mark finds processes that have left every group and every parent, and nothing else.
func TestKillMarked(t *testing.T) {
	const mark = "PROCESS_MARK=1"
	dir := t.TempDir()
	start := func(name, mark string) (*process.Process, []int) {
		spec := runtimeSpec(nil, "-pids", filepath.Join(dir, name), "-grandchild", "orphan")
		spec.Env = append(spec.Env, mark)
		p, err := process.Start(spec)
		if err != nil {
			t.Fatal(err)
		}
		return p, ids(t, filepath.Join(dir, name))
	}
	marked, pids := start("marked", mark)
	other, others := start("other", mark+"2")
	process.KillMarked(mark)
	<-marked.Exited()
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d lives with the mark", pid)
		}
	}
	for _, pid := range others {
		if !alive(pid) {
			t.Errorf("process %d died without the mark", pid)
		}
	}
	process.KillMarked(mark + "2")
	<-other.Exited()
	process.KillMarked(mark) // nobody bears it: it returns
}

func TestHold(t *testing.T) {
	cmd := exec.Command("sleep", "300")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	held, err := process.Hold(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if held.Ended() {
		t.Error("it has ended, and nobody ended it")
	}
	if !held.Kill() || !held.Ended() {
		t.Error("it lives after Kill")
	}
	_ = cmd.Wait() // the error is "signal: killed"
	if held.Kill() {
		t.Error("killed what had gone")
	}
	if _, err := process.Hold(cmd.Process.Pid); err == nil {
		t.Error("holds what has gone")
	}
}

func TestCPUIsMeasured(t *testing.T) {
	p, err := process.Start(process.Spec{Path: "/bin/sh", Args: []string{"-c", "(while :; do :; done) & wait"}})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "a child that computes has used 50 ms", func() bool {
		used, err := p.CPU()
		if err != nil {
			t.Fatal(err)
		}
		return used >= 50*time.Millisecond
	})
	p.Stop(0)
	if _, err := p.CPU(); err == nil {
		t.Error("processor time of a process that has gone: no error")
	}
}
