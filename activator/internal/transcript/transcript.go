// Package transcript runs tests that are written as transcripts: prose, commands to the code under test, and its
// answers.
//
//	Two wait, and the one that came first goes first.
//
//	> enter a
//	in: a
//	> next
//	a
//
// A line that begins with "> " is a command. The lines up to the next empty line or command are its answer;
// everything else is prose. With -update, the files get the actual answers.
package transcript

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "replace the answers in transcripts by those given")

// Run runs each transcript that matches pattern. start creates a fresh instance of the code under test for each;
// the function that it returns runs one command.
func Run(t *testing.T, pattern string, start func(t *testing.T) func(command string, args []string) string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("transcripts %s: found %d, error %v", pattern, len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := replay(string(raw), start(t))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(raw), got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", file, diff)
			}
		})
	}
}

func replay(text string, do func(command string, args []string) string) string {
	var out strings.Builder
	answer := false
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for _, line := range lines {
		command, is := strings.CutPrefix(line, "> ")
		switch {
		case is:
			out.WriteString(line + "\n")
			words := strings.Fields(command)
			if a := strings.TrimRight(do(words[0], words[1:]), "\n"); a != "" {
				out.WriteString(a + "\n")
			}
			answer = true
		case line == "":
			answer = false
			out.WriteString("\n")
		case !answer:
			out.WriteString(line + "\n")
		}
	}
	return out.String()
}
