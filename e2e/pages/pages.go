// Package pages runs the commands of documents, and compares what they print with what the page says.
//
// Of a page count
//
//	```console         commands behind "$ ", and what they print
//	```console server  a command that goes on, and the first lines that it prints
//	```console log     lines that one of the page's servers has printed
//	```yaml            a file, if the first line is a comment that begins with its name; so with other kinds
//	<!-- run: … -->    commands that readers do not see
//	<!-- serve: … -->  a server that readers do not see
//	<!-- stop -->      all servers end
//	<!-- cluster -->   the next block is run in a cluster
//	<!-- not run: … --> the next block is not run, and why
//
// A line of "…" stands for any lines, and "…" in a line for any text. Times, sizes and ids may differ ([Matches]).
//
// [Parse] splits a page into blocks; [Page.Follow] runs them in a [Shell], which a test opens in an empty folder.
//
// A Page and a Shell are for one goroutine.
package pages

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Block is a part of a page.
type Block struct {
	// in the page, from 1
	Line int
	// Info is the text after the opening fence; "run", "serve" or "stop" for a comment; empty for text.
	Info string
	Text string
	// Fenced: it stands between fences, which are no part of Text.
	Fenced bool
	// NotRun says why it is not run.
	NotRun  string
	Cluster bool

	before, after string // the fences, or the marks of a comment
}

// Page is a document.
type Page struct{ Blocks []Block }

var comment = regexp.MustCompile(`^<!-- (not run|cluster|run|serve|stop)(?:: ?(.*?))?( ?-->)?$`)

// Parse takes a page apart. An error names a line.
func Parse(text string) (Page, error) {
	var p Page
	var plain strings.Builder
	var next Block
	lines := strings.SplitAfter(text, "\n")
	flush := func(at int) {
		if plain.Len() > 0 {
			p.Blocks = append(p.Blocks, Block{Line: at, Text: plain.String()})
			plain.Reset()
		}
	}
	for k := 0; k < len(lines); k++ {
		line := strings.TrimSpace(lines[k])
		if info, is := strings.CutPrefix(line, "```"); is {
			end := k + 1
			for end < len(lines) && strings.TrimSpace(lines[end]) != "```" {
				end++
			}
			if end == len(lines) {
				return p, fmt.Errorf("line %d: a block that does not end", k+1)
			}
			flush(k)
			b := next
			b.Line, b.Info, b.Fenced, b.Text, b.before, b.after = k+1, info, true, strings.Join(lines[k+1:end], ""), lines[k], lines[end]
			p.Blocks, next, k = append(p.Blocks, b), Block{}, end
			continue
		}
		m := comment.FindStringSubmatch(line)
		if m == nil {
			plain.WriteString(lines[k])
			if line != "" && (next.NotRun != "" || next.Cluster) {
				return p, fmt.Errorf("line %d: a comment about a block, and no block behind it", k+1)
			}
			continue
		}
		end := k
		for m[3] == "" && end+1 < len(lines) && strings.TrimSpace(lines[end]) != "-->" {
			end++
		}
		said := strings.TrimSpace(m[2])
		for _, l := range lines[k+min(1, end-k) : end] {
			said += "\n" + strings.TrimSuffix(l, "\n")
		}
		switch kind := m[1]; kind {
		case "not run":
			if said == "" {
				return p, fmt.Errorf("line %d: why is the block not run?", k+1)
			}
			next.NotRun = said
			plain.WriteString(strings.Join(lines[k:end+1], ""))
		case "cluster":
			next.Cluster = true
			plain.WriteString(lines[k])
		default:
			flush(k)
			p.Blocks = append(p.Blocks, Block{Line: k + 1, Info: kind, Text: strings.TrimSpace(said), before: strings.Join(lines[k:end+1], ""), Cluster: next.Cluster})
		}
		k = end
	}
	flush(len(lines))
	return p, nil
}

// Shell reports whether the block has commands.
func (b Block) Shell() bool { return b.Fenced && (b.Info == "console" || b.Info == "console server") }

var fileName = regexp.MustCompile(`^# ([\w.-]+\.\w+)\b`)

// Follow runs the blocks that need a cluster, or the others. It returns the page with the outputs, and errors that name
// lines.
func (p Page) Follow(s *Shell, cluster bool) (text string, wrong error) {
	var out strings.Builder
	for _, b := range p.Blocks {
		made := b.Text
		var err error
		if b.NotRun == "" && b.Cluster == cluster {
			switch {
			case b.Info == "run":
				err = s.must(b.Text)
			case b.Info == "serve":
				err = s.serveUnseen(b.Text)
			case b.Info == "stop":
				err = s.stop()
			case b.Info == "console":
				made, err = s.console(b.Text)
			case b.Info == "console server":
				made, err = s.server(b.Text)
			case b.Info == "console log":
				made, err = s.logged(b.Text)
			case b.Fenced:
				err = s.file(b.Text)
			}
		} else if b.Fenced && b.NotRun == "" && !b.Shell() {
			err = s.file(b.Text)
		}
		if err != nil {
			wrong = errors.Join(wrong, fmt.Errorf("line %d: %w", b.Line, err))
			if errors.Is(err, errShell) {
				return "", wrong
			}
		}
		if b.Fenced || b.Info == "" {
			out.WriteString(b.before + made + b.after)
		} else {
			out.WriteString(b.before)
		}
	}
	return out.String(), wrong
}

// Runs reports whether [Page.Follow] has a command to run.
func (p Page) Runs(cluster bool) bool {
	for _, b := range p.Blocks {
		if b.Shell() && b.NotRun == "" && b.Cluster == cluster {
			return true
		}
	}
	return false
}
