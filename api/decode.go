package api

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
	"unicode"
)

// Decode decodes the only JSON value of in. An unknown field is an error. The errors are for people, as [Explain]'s.
func Decode(in io.Reader, to any) error {
	dec := json.NewDecoder(in)
	dec.DisallowUnknownFields()
	if err := dec.Decode(to); err != nil {
		return Explain(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON value: remove it")
	}
	return nil
}

// Explain returns an error of decoding JSON or YAML in people's words, without types of Go: the field, what was there, and
// what is wanted. It returns other errors, and nil, as they are.
func Explain(err error) error {
	if err == nil {
		return nil
	}
	var wrong *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	var at *time.ParseError
	text, known := strings.CutPrefix(err.Error(), "json: ")
	switch {
	case errors.As(err, &wrong):
		var path []string
		for name := range strings.SplitSeq(wrong.Field, ".") {
			if !strings.ContainsFunc(name[:min(len(name), 1)], unicode.IsUpper) { // an embedded struct, which nobody writes
				path = append(path, name)
			}
		}
		text = fmt.Sprintf("%s is a JSON %s: want %s", cmp.Or(strings.Join(path, "."), "it"), wrong.Value, wanted(wrong.Type.Kind().String()))
	case errors.As(err, &syntax):
		text = fmt.Sprintf("it is not JSON: %v at byte %d", err, syntax.Offset)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		text = "it is not whole: its JSON ends too early"
	case errors.As(err, &at):
		text = fmt.Sprintf("%s is no time: want one such as 2030-01-02T03:04:05Z", at.Value)
	case strings.HasPrefix(text, "Time."): // of encoding/json, which has no type for it
		text = "a time is not a string: want one such as \"2030-01-02T03:04:05Z\""
	case strings.HasPrefix(text, "yaml: "):
		wrongYAML := regexp.MustCompile("cannot unmarshal !!(\\w+) (?:(`.*`) )?into (.*)")
		text = wrongYAML.ReplaceAllStringFunc(strings.TrimPrefix(text[len("yaml: "):], "unmarshal errors:\n  "), func(s string) string {
			m := wrongYAML.FindStringSubmatch(s)
			return cmp.Or(m[2], "it") + " is of the YAML type " + m[1] + ": want " + wanted(m[3])
		})
	case !known:
		return err
	}
	return errors.New(text)
}

// wanted returns the name of what a Go type holds.
func wanted(kind string) string {
	switch strings.TrimRight(kind, "0123456789") {
	case "int", "uint":
		return "a whole number"
	case "float":
		return "a number"
	case "bool":
		return "true or false"
	case "string":
		return "a string"
	case "time.Duration":
		return "a duration with a unit, such as 30s"
	}
	if strings.HasPrefix(kind, "[") || kind == "slice" {
		return "a list"
	}
	return "an object"
}
