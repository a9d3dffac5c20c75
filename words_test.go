package rouse_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Limits of a comment.
const (
	maxSentence = 35 // words
	maxComment  = 12 // lines; a package comment may be longer
)

// unplain matches phrases that plain technical English does not need. "X is what Y does" is "Y does X"; "that of"
// names its noun.
var unplain = regexp.MustCompile(`(?i)\b(is what|are what|whoever|that of|anew)\b`)

var (
	sentenceEnd = regexp.MustCompile(`[.!?]["')]*(\s+|$)`)
	codeSpan    = regexp.MustCompile("`[^`]*`")
	listItem    = regexp.MustCompile(`^\s*([-*•]|\d+[.)])\s`)
)

// TestWords checks the words of comments and documents against CONTRIBUTING.md, section Words.
func TestWords(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		path = filepath.ToSlash(path)
		if d.IsDir() {
			if d.Name() == "testdata" || d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".") && path != "." {
				return filepath.SkipDir
			}
			return nil
		}
		if path == "words_test.go" || !strings.HasSuffix(path, ".go") {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		faults, err := commentFaults(src)
		for _, fault := range faults {
			t.Errorf("%s:%s", path, fault)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	documents := []string{"README.md", "CONTRIBUTING.md"}
	for _, pattern := range []string{"docs/*.md", "docs/howto/*.md", "docs/tutorials/*.md", "docs/runbooks/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: found %d documents, error %v", pattern, len(found), err)
		}
		documents = append(documents, found...)
	}
	for _, path := range documents {
		path = filepath.ToSlash(path)
		src, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, fault := range documentFaults(string(src)) {
			t.Errorf("%s:%s", path, fault)
		}
	}
}

// commentFaults returns the faults of a Go file's comments, each as "LINE: FAULT". A generated file has none.
func commentFaults(src []byte) (faults []string, err error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", src, parser.ParseComments)
	if err != nil || ast.IsGenerated(file) {
		return nil, err
	}
	for _, comment := range file.Comments {
		line, text := files.Position(comment.Pos()).Line, comment.Text()
		if n := strings.Count(text, "\n"); n > maxComment && comment != file.Doc {
			faults = append(faults, fmt.Sprintf("%d: a comment of %d lines, at most %d", line, n, maxComment))
		}
		for _, phrase := range unplain.FindAllString(strings.Join(strings.Fields(text), " "), -1) {
			faults = append(faults, fmt.Sprintf("%d: %q is not plain English", line, phrase))
		}
		for _, block := range blocks(text) {
			for _, sentence := range sentenceEnd.Split(block, -1) {
				if n := len(strings.Fields(sentence)); n > maxSentence {
					faults = append(faults, fmt.Sprintf("%d: a sentence of %d words, at most %d: %s", line, n, maxSentence, sentence))
				}
			}
		}
	}
	return faults, nil
}

// blocks returns a comment's paragraphs and the items of its lists, without lines that are indented as code.
func blocks(text string) (all []string) {
	begins, inList := true, false // whether the next line begins a block; whether indented lines belong to a list
	for line := range strings.Lines(text) {
		indented := strings.HasPrefix(line, "\t") || strings.HasPrefix(line, " ")
		switch {
		case strings.TrimSpace(line) == "":
			begins = true
			continue
		case listItem.MatchString(line):
			begins, inList = true, true
		case !indented && begins:
			inList = false
		case indented && !inList:
			begins = true
			continue
		}
		if begins {
			all = append(all, "")
		}
		all[len(all)-1] += listItem.ReplaceAllString(line, "")
		begins = false
	}
	return all
}

// documentFaults returns the phrases in a Markdown document, outside its code, that are not plain, each as "LINE: FAULT".
func documentFaults(text string) (faults []string) {
	code, n := false, 0
	for line := range strings.Lines(text) {
		n++
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		}
		if code || strings.HasPrefix(line, "    ") {
			continue
		}
		for _, phrase := range unplain.FindAllString(codeSpan.ReplaceAllString(line, "``"), -1) {
			faults = append(faults, fmt.Sprintf("%d: %q is not plain English", n, phrase))
		}
	}
	return faults
}

func TestCommentFaults(t *testing.T) {
	words := func(n int) string { return strings.TrimSpace(strings.Repeat("word ", n)) + "." }
	lines := func(n int) string { return strings.Repeat("// A line.\n", n) }
	for _, test := range []struct{ name, src, want string }{
		{"clean", "// Package a does this.\npackage a\n\n// f returns 1.\nfunc f() int { return 1 }\n", ""},
		{"is what", "package a\n\n// f is what returns 1.\nfunc f() {}\n", `3: "is what" is not plain English`},
		{"over two lines", "package a\n\n// These are\n// what f returns.\nfunc f() {}\n", `3: "are what" is not plain English`},
		{"capital", "package a // Whoever calls\n", `1: "Whoever" is not plain English`},
		{"in a function", "package a\n\nfunc f() {\n\t_ = 1 /* that of f */\n}\n", `4: "that of" is not plain English`},
		{"anew", "package a\n\nvar a int // set anew\n", `3: "anew" is not plain English`},
		{"in a string", "package a\n\nvar a = \"anew\"\n", ""},
		{"long sentence", "// Short. " + words(36) + "\npackage a\n", "1: a sentence of 36 words"},
		{"two sentences", "// " + words(35) + "\n// " + words(35) + "\npackage a\n", ""},
		{"two items", "// Items:\n//   - " + words(35) + "\n//   - " + words(35) + "\npackage a\n", ""},
		{"long item", "// Items:\n//   - " + words(20) + "\n//   - word\n//     " + words(35) + "\npackage a\n", "1: a sentence of 36 words"},
		{"indented", "// Code:\n//\n//\t" + words(40) + "\n//\n//   " + words(40) + "\npackage a\n", ""},
		{"after code", "// Code:\n//\n//\tcode\n//\n// " + words(36) + "\npackage a\n", "1: a sentence of 36 words"},
		{"long comment", "package a\n\n" + lines(13) + "func f() {}\n", "3: a comment of 13 lines"},
		{"twelve lines", "package a\n\n" + lines(12) + "func f() {}\n", ""},
		{"package comment", lines(40) + "package a\n", ""},
		{"generated", "// Code generated by x. DO NOT EDIT.\n\npackage a // anew\n", ""},
	} {
		faults, err := commentFaults([]byte(test.src))
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		checkFaults(t, test.name, faults, test.want)
	}
}

func TestDocumentFaults(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"clean", "# Title\n\nThe function wakes.\n", ""},
		{"prose", "# Title\n\nIt is that of the function.\n", `3: "that of" is not plain English`},
		{"table", "| a | Whoever asks |\n", `1: "Whoever" is not plain English`},
		{"code", "```\nanew\n```\n\n    anew\n\n`anew`\n", ""},
		{"after code", "```\nanew\n```\nanew\n", `4: "anew" is not plain English`},
	} {
		checkFaults(t, test.name, documentFaults(test.text), test.want)
	}
}

// checkFaults checks that there is one fault, which begins with want, or none if want is empty.
func checkFaults(t *testing.T, name string, faults []string, want string) {
	t.Helper()
	if want == "" && len(faults) > 0 || want != "" && (len(faults) != 1 || !strings.HasPrefix(faults[0], want)) {
		t.Errorf("%s: got %q, want %q", name, faults, want)
	}
}
