package runtime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const maxModelfile = 1 << 20

// readModelfile reads a Modelfile (Ollama's documentation, "Modelfile Reference").
func readModelfile(path string) (*recipe, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxModelfile {
		return nil, fmt.Errorf("it is neither a GGUF file nor a Modelfile: it has %d bytes", info.Size())
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r, err := parseModelfile(string(raw), filepath.Dir(path))
	if err != nil {
		if strings.EqualFold(filepath.Ext(path), ".gguf") {
			return nil, errors.New("it is no GGUF file, or a part of one: fetch or copy it again")
		}
		return nil, fmt.Errorf("read it as a Modelfile: %w", err)
	}
	return r, nil
}

type instruction struct {
	line          int
	word          string // in upper case
	first, second string
}

// parseModelfile takes paths relative to dir.
func parseModelfile(s, dir string) (*recipe, error) {
	r := &recipe{fields: map[string]any{}}
	list, err := instructions(s)
	if err != nil {
		return nil, err
	}
	for _, i := range list {
		if err := r.add(i, dir); err != nil {
			return nil, fmt.Errorf("line %d: %w", i.line, err)
		}
	}
	if r.from == "" && len(r.files) == 0 {
		return nil, errors.New("it has no line FROM with a model")
	}
	return r, nil
}

func (r *recipe) add(i instruction, dir string) error {
	switch i.word {
	case "FROM":
		return r.addModel(i.first, dir)
	case "ADAPTER":
		path := inDir(i.first, dir)
		if err := checkRegular(path); err != nil {
			return fmt.Errorf("ADAPTER: want a GGUF file: %w", err)
		}
		r.adapters = map[string]string{"adapter.gguf": path}
	case "PARAMETER":
		parameters, _ := r.fields["parameters"].(map[string]any)
		if parameters == nil {
			parameters = map[string]any{}
			r.fields["parameters"] = parameters
		}
		name := strings.ToLower(i.first)
		if name == "stop" {
			stops, _ := parameters[name].([]string)
			parameters[name] = append(stops, i.second)
		} else {
			parameters[name] = scalar(i.second)
		}
	case "MESSAGE":
		if i.first != "system" && i.first != "user" && i.first != "assistant" {
			return fmt.Errorf("MESSAGE: the role is %q: want system, user or assistant", i.first)
		}
		messages, _ := r.fields["messages"].([]map[string]string)
		r.fields["messages"] = append(messages, map[string]string{"role": i.first, "content": i.second})
	case "LICENSE":
		licenses, _ := r.fields["license"].([]string)
		r.fields["license"] = append(licenses, i.first)
	case "TEMPLATE", "SYSTEM", "RENDERER", "PARSER", "REQUIRES":
		r.fields[strings.ToLower(i.word)] = i.first
	}
	return nil
}

func (r *recipe) addModel(from, dir string) error {
	if r.from != "" {
		return errors.New("FROM: there is one already that names a model")
	}
	path := inDir(from, dir)
	info, err := os.Stat(path)
	if err != nil {
		if isPath(from) || strings.HasSuffix(strings.ToLower(from), ".gguf") || len(r.files) > 0 {
			return fmt.Errorf("FROM: want a GGUF file or the name of a model: %w", err)
		}
		r.from = from
		return nil
	}
	if info.IsDir() {
		if path, err = ggufFile(path); err != nil {
			return fmt.Errorf("FROM: %w", err)
		}
	}
	switch gguf, err := IsGGUF(path); {
	case err != nil:
		return fmt.Errorf("FROM: %w", err)
	case !gguf:
		return fmt.Errorf("FROM: %s is no GGUF file", path)
	}
	if r.files == nil {
		r.files = map[string]string{}
	}
	r.files[fmt.Sprintf("model-%d.gguf", len(r.files))] = path // the second is a projector
	return nil
}

func inDir(path, dir string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

func scalar(s string) any {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil && f-f == 0 { // finite
		return f
	}
	switch strings.ToLower(s) {
	case "true":
		return true
	case "false":
		return false
	}
	return s
}

var parts = map[string]int{
	"FROM": 1, "TEMPLATE": 1, "SYSTEM": 1, "ADAPTER": 1, "LICENSE": 1, "RENDERER": 1, "PARSER": 1, "REQUIRES": 1,
	"PARAMETER": 2, "MESSAGE": 2,
}

func instructions(s string) ([]instruction, error) {
	s = strings.ReplaceAll(strings.TrimPrefix(s, "\uFEFF"), "\r\n", "\n")
	var out []instruction
	line := 1
	for len(s) > 0 {
		var text string
		text, s, _ = strings.Cut(s, "\n")
		at := line
		line++
		text = strings.TrimSpace(text)
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		i := instruction{line: at}
		i.word, text = cutWord(text)
		i.word = strings.ToUpper(i.word)
		n, known := parts[i.word]
		if !known {
			return nil, fmt.Errorf("line %d: no instruction is called %.40q: want FROM, TEMPLATE, SYSTEM, PARAMETER, ADAPTER, LICENSE, MESSAGE, RENDERER, PARSER or REQUIRES", at, i.word)
		}
		if n == 2 {
			i.first, text = cutWord(text)
		}
		value := text
		if rest, found := strings.CutPrefix(text, `"""`); found {
			var lines int
			var err error
			if value, s, lines, err = longValue(rest, s); err != nil {
				return nil, fmt.Errorf("line %d: %s: %w", at, i.word, err)
			}
			line += lines
		} else if len(text) > 1 && text[0] == '"' && text[len(text)-1] == '"' {
			value = text[1 : len(text)-1]
		}
		if n == 2 {
			i.second = value
		} else {
			i.first = value
		}
		if value == "" && i.word != "SYSTEM" && i.word != "TEMPLATE" || n == 2 && i.first == "" {
			return nil, fmt.Errorf("line %d: %s has no value", at, i.word)
		}
		out = append(out, i)
	}
	return out, nil
}

func cutWord(s string) (word, rest string) {
	i := strings.IndexAny(s, " \t")
	if i < 0 {
		return s, ""
	}
	return s[:i], strings.TrimSpace(s[i:])
}

// longValue reads up to three quotes; begun is the rest of its first line, after the following text.
func longValue(begun, after string) (value, rest string, lines int, err error) {
	if value, _, found := strings.Cut(begun, `"""`); found {
		return value, after, 0, nil
	}
	value, rest, found := strings.Cut(after, `"""`)
	if !found {
		return "", "", 0, errors.New(`it begins with """ and has no end`)
	}
	lines = strings.Count(value, "\n")
	if _, next, more := strings.Cut(rest, "\n"); more {
		rest, lines = next, lines+1
	} else {
		rest = ""
	}
	if begun != "" {
		value = begun + "\n" + value
	}
	return value, rest, lines, nil
}
