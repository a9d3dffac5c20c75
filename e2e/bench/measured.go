// The part measured writes docs/measured.md from the reports in docs/bench.
//
//	go run ./e2e/bench measured
package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rouse-dev/rouse/e2e/bench/report"
)

type section struct {
	file  string // in docs/bench, without .json
	title string
	note  string // what a reader must know to judge the figures
}

var sections = []section{
	{"local", "One machine", "Rouse and the runtime alone take turns; client, both processes of Rouse and the runtime share the processors, so 32 requests at a time measure processor time."},
	{"beside", "One machine: beside other proxies", "Each row names its server: llama-swap as it comes, but with room for 64 requests, as Rouse has; `httputil.ReverseProxy` with a pool of connections and the body read first. Each is before a server of one program, which does nothing."},
	{"wake-local", "One machine: a wake", "The simulated vLLM wakes in no time, so these are the times that Rouse adds to a wake. A real model adds mostly the copy of its weights to the GPU."},
	{"function", "One function", "The function alone, without the activator."},
	{"proxy", "One function: streams and envelopes", ""},
	{"gateway", "Keys, limits, order and the access log", ""},
	{"cluster-warm", "A cluster: functions that are awake", "A real Kubernetes with Knative on one machine, beside a function of Knative's own class through the same ingress, the same program."},
	{"cluster", "A cluster", "A real Kubernetes with Knative on one machine, beside functions of Knative's own class through the same ingress. The model is pico, a few MB."},
	{"cluster-busy", "A cluster: two busy processors", "The same on a machine whose two processors other programs kept busy, with the component any-image. The cluster's processes and the client had a higher priority than the others."},
	{"wake", "A cluster: wakes", "The simulated vLLM wakes in no time."},
	{"turn", "A cluster: more functions than fit", ""},
	{"door", "Joined clusters", "Two real servers on one machine share its processors with the client, the function and its model server."},
	{"order", "The order of requests", ""},
	{"plan", "Decisions", ""},
	{"record", "The record of decisions", ""},
	{"simulate", "The simulator", "Simulated days: no GPU. [The simulator](simulate.md) explains the traces and the policies."},
	{"route", "Choosing an instance", ""},
	{"engine", "The engine", "Models of random weights beside llama.cpp, on processors. No figure is from a GPU."},
	{"conversations", "The engine: conversations kept over a sleep", ""},
	{"move", "The engine: streams that move", ""},
	{"files", "Files", ""},
}

const head = `# Measured

All figures of Rouse, each with the command that makes it, what it ran on and whether its target was met. ` + "`make measured`" + ` writes this
page from the reports in [bench](bench). Machines differ, and these were shared: the ratios say more than the times. No figure is from a GPU.

A value is the median; "beside" is the baseline of the same run, in turns with Rouse, and "difference" the median of the differences of neighbouring rounds. Five reports have a form of their own: [the web page](bench/page.json)
(` + "`make bench-page`" + `), [JSON schemas](bench/schemas.json) (` + "`make deep PART=schemas`" + `), [masks beside llguidance](bench/masks.json), [prompts beside long ones](bench/prompts.json)
and [starts from a snapshot](bench/snapshot.json) (their commands are in them).
`

func writeMeasured() {
	text, err := document("docs/bench")
	if err == nil {
		err = os.WriteFile("docs/measured.md", []byte(text), 0o644)
	}
	exit(err)
}

func document(dir string) (string, error) {
	var b strings.Builder
	b.WriteString(head)
	for _, s := range sections {
		raw, err := os.ReadFile(filepath.Join(dir, s.file+".json"))
		if err != nil {
			return "", err
		}
		var r report.Report
		if err := json.Unmarshal(raw, &r); err != nil {
			return "", fmt.Errorf("%s: %w", s.file, err)
		}
		s.write(&b, r)
	}
	return b.String(), nil
}

func (s section) write(b *strings.Builder, r report.Report) {
	fmt.Fprintf(b, "\n## %s\n\n`%s`: %s, %d cores of %s, load %s before and %s after, %s ([report](bench/%s.json)).",
		s.title, r.Command, r.At.Format("2006-01-02"), r.Machine.Cores, r.Machine.CPU, first(r.Machine.LoadBefore), first(r.Machine.LoadAfter), r.Machine.Go, s.file)
	if s.note != "" {
		b.WriteString(" " + s.note)
	}
	b.WriteString("\n\n| | Rouse | p95 | beside | difference | ratio | target |\n|---|---|---|---|---|---|---|\n")
	for _, m := range r.Measurements {
		beside, difference, ratio := "", "", ""
		if m.Baseline != nil {
			beside, difference, ratio = amount(m.Baseline.P50, m.Unit), figure(m.Difference), figure(m.Ratio)+" ×"
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s |\n", cell(m.Name), amount(m.Rouse.P50, m.Unit), figure(m.Rouse.P95), beside, difference, ratio, cell(target(m)))
	}
	b.WriteString("\n")
	// Neighbours that measure the same are explained once.
	for rest := r.Measurements; len(rest) > 0; {
		m, names := rest[0], []string(nil)
		for len(rest) > 0 && rest[0].What == m.What && rest[0].Against == m.Against && rest[0].Note == m.Note {
			names = append(names, rest[0].Name)
			rest = rest[1:]
		}
		if len(names) > 3 {
			names = []string{names[0], "…", names[len(names)-1]}
		}
		fmt.Fprintf(b, "- *%s*: %s", strings.Join(names, ", "), m.What)
		if m.Against != "" {
			fmt.Fprintf(b, "; beside %s", m.Against)
		}
		if m.Note != "" {
			fmt.Fprintf(b, " (%s)", m.Note)
		}
		b.WriteString("\n")
	}
}

func target(m report.Measurement) string {
	switch {
	case m.Held == nil:
		return ""
	case *m.Held:
		return "met: " + m.Gate
	}
	return "**missed**: " + m.Gate
}

func first(loads string) string {
	load, _, _ := strings.Cut(loads, " ")
	return load
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

func amount(v float64, unit string) string { return figure(v) + " " + unit }

// figure has three significant digits.
func figure(v float64) string {
	if v == 0 {
		return "0"
	}
	decimals := max(0, 2-int(math.Floor(math.Log10(math.Abs(v)))))
	text := strconv.FormatFloat(v, 'f', decimals, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}
