package pyfunc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// contentType reports whether a body is CSV; otherwise it is JSON. bad is the text of a 415.
func contentType(header string) (csv bool, bad string) {
	parts := strings.Split(header, ";")
	var unknown []string
	for _, parameter := range parts[1:] {
		name, value, _ := strings.Cut(strings.TrimSpace(parameter), "=")
		switch {
		case !strings.EqualFold(name, "charset"):
			unknown = append(unknown, name)
		case !strings.EqualFold(strings.Trim(value, `"`), "utf-8"):
			return false, "The scoring server only supports UTF-8"
		}
	}
	if len(unknown) > 0 {
		return false, "Unrecognized content type parameters: " + strings.Join(unknown, ", ") + ". Want charset=utf-8 or none."
	}
	switch strings.ToLower(strings.TrimSpace(parts[0])) {
	case "text/csv":
		return true, ""
	case "application/json":
		return false, ""
	}
	return false, fmt.Sprintf("This predictor only supports the following content types: Types: ['text/csv', 'application/json']. Got '%s'.", header)
}

// One of ownKeys makes a call a request of the model's own API, and one of dataKeys holds a table.
var (
	ownKeys      = []string{"messages", "prompt", "input"}
	embedKeys    = []string{"encoding_format", "dimensions"}
	generateKeys = strings.Fields("stream instructions max_output_tokens previous_response_id reasoning text tools tool_choice temperature top_p conversation store include context")
	dataKeys     = []string{"dataframe_split", "dataframe_records", "instances", "inputs"}
	knownKeys    = slices.Concat(ownKeys, embedKeys, generateKeys, dataKeys, []string{"model", "params"})
)

const exactlyOne = "The input must be a JSON dictionary with exactly one of the input fields" +
	" {'dataframe_split', 'dataframe_records', 'instances', 'inputs'}."

const maxDepth = 512

type query struct {
	body   []byte
	csv    bool
	values map[string][]byte // by known key, parts of the body; of a repeated key the last one counts
}

func parse(body []byte, csv bool) (query, error) {
	if !csv {
		body = decoded(body)
	}
	q := query{body: body, csv: csv, values: map[string][]byte{}}
	if !utf8.Valid(body) {
		return q, invalid("Ensure that input is a valid UTF-8 encoded string.")
	}
	if csv {
		return q, nil
	}
	var formats []string
	err := jsonfield.Shallow(body, maxDepth)
	if err == nil {
		err = jsonfield.Each(body, func(name, value []byte) bool {
			if i := slices.Index(knownKeys, string(jsonfield.Text(name))); i >= 0 {
				key := knownKeys[i]
				if slices.Contains(dataKeys, key) && q.values[key] == nil {
					formats = append(formats, "'"+key+"'")
				}
				q.values[key] = value
			}
			return true
		})
	}
	value := bytes.Trim(body, " \t\r\n")
	switch {
	case err == nil && !q.has(ownKeys) && len(formats) != 1:
		return q, failure{Message: exactlyOne + " Received dictionary with input fields: [" + strings.Join(formats, ", ") + "]."}
	case err == nil:
		return q, nil
	case !jsontext.Value(value).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) || value[0] == '{':
		return q, invalid("Ensure that input is a valid JSON formatted string. Error: '" + err.Error() + "'")
	case value[0] == '[':
		return q, invalid(exactlyOne + " Received a list.")
	}
	return q, invalid(exactlyOne + " Received unexpected input type '" + pythonType(value) + "'.")
}

func (q *query) has(keys []string) bool {
	return slices.ContainsFunc(keys, func(key string) bool { return q.values[key] != nil })
}

// decoded returns JSON as UTF-8. Python also reads a byte-order mark, and UTF-16.
func decoded(body []byte) []byte {
	if rest, marked := bytes.CutPrefix(body, []byte("\xef\xbb\xbf")); marked {
		return rest
	}
	var order binary.ByteOrder = binary.LittleEndian
	switch {
	case len(body) < 2 || len(body)%2 != 0:
		return body
	case body[0] == 0xff && body[1] == 0xfe:
		body = body[2:]
	case body[0] == 0xfe && body[1] == 0xff:
		order, body = binary.BigEndian, body[2:]
	case body[0] == 0: // the first character of JSON is ASCII
		order = binary.BigEndian
	case body[1] != 0:
		return body
	}
	units := make([]uint16, len(body)/2)
	for i := range units {
		units[i] = order.Uint16(body[2*i:])
	}
	return []byte(string(utf16.Decode(units)))
}

// The strings may be parts of the body.
func (q *query) strings() ([][]byte, error) {
	c := column{}
	var err error
	switch v := q.values; {
	case q.csv:
		err = c.csv(q.body)
	case v["inputs"] != nil:
		err = c.inputs(v["inputs"])
	case v["instances"] != nil:
		err = c.instances(v["instances"])
	case v["dataframe_records"] != nil:
		err = c.records(v["dataframe_records"])
	default:
		err = c.split(v["dataframe_split"])
	}
	if _, is := errors.AsType[failure](err); err != nil && !is {
		err = unexpected(err.Error())
	}
	return c.items, err
}

func pythonType(raw []byte) string {
	name := map[byte]string{'"': "str", '{': "dict", '[': "list", 't': "bool", 'f': "bool", 'n': "NoneType"}[raw[0]]
	switch {
	case name != "":
	case bytes.ContainsAny(raw, ".eE"):
		name = "float"
	default:
		name = "int"
	}
	return "<class '" + name + "'>"
}
