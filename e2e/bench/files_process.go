package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// machineProcess is another process of this program, in a network namespace.
type machineProcess struct {
	host int
	cmd  *exec.Cmd
	in   io.WriteCloser

	mu    sync.Mutex // guards below
	lines []string   // what it has said
	over  bool       // it says no more
	news  chan struct{}
}

// startMachine starts a process in a namespace.
func startMachine(namespace string, r role) (*machineProcess, error) {
	cmd := exec.Command("ip", append([]string{"netns", "exec", namespace, os.Args[0]}, r.line()...)...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &machineProcess{cmd: cmd, in: in, news: make(chan struct{})}
	go p.listen(out) // until the process has ended: kill waits for that
	return p, nil
}

// machineProgram as the first argument makes this program a machine.
const machineProgram = "machine"

// listen takes down what the process says.
func (p *machineProcess) listen(out io.Reader) {
	lines := bufio.NewScanner(out)
	for more := true; more; {
		more = lines.Scan()
		p.mu.Lock()
		if p.over = !more; more {
			p.lines = append(p.lines, lines.Text())
		}
		close(p.news)
		p.news = make(chan struct{})
		p.mu.Unlock()
	}
}

// until waits until the process has said a line that begins so.
func (p *machineProcess) until(ctx context.Context, line string) error {
	for seen := 0; ; {
		p.mu.Lock()
		lines, over, news := p.lines, p.over, p.news
		p.mu.Unlock()
		for ; seen < len(lines); seen++ {
			if strings.HasPrefix(lines[seen], line) {
				return nil
			}
		}
		if over {
			return fmt.Errorf("machine %d has ended before it said %q; it said:\n%s", p.host, line, strings.Join(lines, "\n"))
		}
		select {
		case <-news:
		case <-ctx.Done():
			return fmt.Errorf("machine %d does not say %q: %w; it said:\n%s", p.host, line, context.Cause(ctx), strings.Join(lines, "\n"))
		}
	}
}

// said says whether a line of it has all these words.
func (p *machineProcess) said(words ...string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lines {
		all := true
		for _, w := range words {
			all = all && strings.Contains(l, w)
		}
		if all {
			return true
		}
	}
	return false
}

// tell lets it begin.
func (p *machineProcess) tell() error {
	_, err := io.WriteString(p.in, "go\n")
	return err
}

// kill kills it, and waits until it has ended. It may be called again.
func (p *machineProcess) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	p.mu.Lock()
	for !p.over {
		news := p.news
		p.mu.Unlock()
		<-news
		p.mu.Lock()
	}
	p.mu.Unlock()
	_ = p.cmd.Wait() // it was killed
}
