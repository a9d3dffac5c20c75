package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/rouse-dev/rouse/engine/pico/corpus"
)

var testsRan = regexp.MustCompile(`Ran (\d+) tests?`)

func (b *gpuBench) vectors(ctx context.Context, p *gpuPart) error {
	if err := b.torch(); err != nil {
		return err
	}
	modules := []string{"test_wire", "test_worker"}
	if b.small { // the package's own test runs all of them
		modules[1] += ".TestWorker.test_kept_blocks"
	}
	for _, module := range modules {
		cmd := exec.CommandContext(ctx, b.python, "-B", "-m", "unittest", module)
		cmd.Dir = filepath.Join("engine", "worker", "cuda")
		cmd.Env = append(os.Environ(), "ROUSE_TEST_DEVICE="+b.device)
		out, err := cmd.CombinedOutput()
		if err := p.goOn(ctx, wrap(err, "%s: %w: %s", module, err, out)); err != nil {
			return err
		}
		if m := testsRan.FindSubmatch(out); m != nil {
			n, _ := strconv.Atoi(string(m[1])) // it is digits
			p.add(module+": tests that passed", "tests", float64(n))
		}
	}
	return b.equal(ctx, p)
}

// questions has texts that pico has not seen and answers with certainty.
func questions() (list []string) {
	g := corpus.New(20, corpus.HeldOut)
	for i := range 20 {
		list = append(list, g.SampleOf([]corpus.Skill{corpus.Echo, corpus.Upper, corpus.Reverse, corpus.Count}[i%4]).Prompt())
	}
	return list
}

// equal asks both workers the same. In halves the last bits differ, so the answers must be certain.
func (b *gpuBench) equal(ctx context.Context, p *gpuPart) error {
	var answers [2][]string
	asked := questions()
	if b.small {
		asked = asked[:8]
	}
	for i, args := range [][]string{nil, {"--device", "cuda", "--python", b.python, "--threads", "1"}} {
		e, err := StartEngine(ctx, b.rouse, "", append([]string{"--model", "pico", "--lora", "shout=pico/shout", "--lora", "pirate=pico/pirate"}, args...)...)
		if err != nil {
			return err
		}
		for k, q := range asked {
			text, err := e.Chat(ctx, []string{"pico", "shout", "pirate"}[k%3], q)
			if err != nil {
				e.Stop()
				return err
			}
			answers[i] = append(answers[i], text)
		}
		e.Stop()
	}
	same := 0
	var differ []string
	for i, q := range asked {
		if answers[0][i] == answers[1][i] {
			same++
		} else {
			differ = append(differ, fmt.Sprintf("%q: in Go %q, in torch %q", q, answers[0][i], answers[1][i]))
		}
	}
	p.beside("pico and its adapters: answers that are equal", "answers", float64(same), float64(len(asked)), "of")
	if len(differ) > 0 {
		return fmt.Errorf("answers differ: %s", strings.Join(differ, "; "))
	}
	return nil
}

// wrap is nil where err is.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format, args...)
}
