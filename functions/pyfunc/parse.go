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

// contentType says whether a body is CSV, else it is JSON; bad is the text of a 415.
func contentType(header string) (csv bool, bad string) {
	mime, rest, more := strings.Cut(header, ";")
	var unknown []string
	for more {
		var parameter string
		parameter, rest, more = strings.Cut(rest, ";")
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
	switch mime = strings.TrimSpace(mime); {
	case strings.EqualFold(mime, "text/csv"):
		return true, ""
	case strings.EqualFold(mime, "application/json"):
		return false, ""
	}
	return false, fmt.Sprintf("This predictor only supports the following content types: Types: ['text/csv', 'application/json']. Got '%s'.", header)
}

// Keys of a call that hold its data.
const (
	keySplit     = "dataframe_split"
	keyRecords   = "dataframe_records"
	keyInstances = "instances"
	keyInputs    = "inputs"
)

const exactlyOne = "The input must be a JSON dictionary with exactly one of the input fields" +
	" {'dataframe_split', 'dataframe_records', 'instances', 'inputs'}."

// maxDepth is how deep values may be nested.
const maxDepth = 512

// query is a body taken apart, but not decoded.
type query struct {
	body []byte
	csv  bool

	// Of JSON: the values of the keys that count, as parts of the body; nil where
	// there is none. Of a repeated key the last one counts.
	messages, prompt, input []byte
	model, stream           []byte
	params                  []byte // of the completions of plain prompts
	embeds, generates       bool   // a key is there that only the one of the two has
	formats                 []string
	data                    []byte // the value of the last of formats
}

// parse takes a body apart. The error is a failure.
func parse(body []byte, csv bool) (query, error) {
	if !csv {
		body = decoded(body)
	}
	q := query{body: body, csv: csv}
	if !utf8.Valid(body) {
		return q, invalid("Ensure that input is a valid UTF-8 encoded string.")
	}
	if csv {
		return q, nil
	}
	err := jsonfield.Each(body, maxDepth, q.member)
	if err == nil {
		return q, q.check()
	}
	value := bytes.Trim(body, " \t\r\n")
	switch {
	case !jsontext.Value(value).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) || value[0] == '{':
		return q, invalid("Ensure that input is a valid JSON formatted string. Error: '" + err.Error() + "'")
	case value[0] == '[':
		return q, invalid(exactlyOne + " Received a list.")
	}
	return q, invalid(exactlyOne + " Received unexpected input type '" + pythonType(value) + "'.")
}

// decoded makes UTF-8 of a body of JSON that Python reads too: with a mark, or in UTF-16.
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

// member notes one member of the object; it is [jsonfield.Each]'s yield.
func (q *query) member(name, value []byte) bool {
	key := jsonfield.Text(name)
	switch string(key) { // the compiler does not copy here
	case "messages":
		q.messages = value
	case "prompt":
		q.prompt = value
	case "input":
		q.input = value
	case "model":
		q.model = value
	case "params":
		q.params = value
	case "stream":
		q.stream, q.generates = value, true
	case "encoding_format", "dimensions":
		q.embeds = true
	case "instructions", "max_output_tokens", "previous_response_id", "reasoning", "text", "tools", "tool_choice",
		"temperature", "top_p", "conversation", "store", "include", "context":
		q.generates = true
	case keySplit, keyRecords, keyInstances, keyInputs:
		if !slices.Contains(q.formats, string(key)) {
			q.formats = append(q.formats, string(key))
		}
		q.data = value
	}
	return true
}

// unified says whether the body is a request of the model's own API.
func (q *query) unified() bool {
	return q.messages != nil || q.prompt != nil || q.input != nil
}

// check applies the rules of the scoring server, in its order.
func (q *query) check() error {
	switch {
	case q.unified():
		return nil
	case len(q.formats) != 1:
		quoted := make([]string, len(q.formats))
		for i, f := range q.formats {
			quoted[i] = "'" + f + "'"
		}
		return failure{Message: exactlyOne + " Received dictionary with input fields: [" + strings.Join(quoted, ", ") + "]."}
	}
	return nil
}

// strings decodes the column of strings that the data is. They may be parts of the body.
func (q *query) strings() ([][]byte, error) {
	if q.csv {
		return csvColumn(q.body)
	}
	c := column{}
	var err error
	switch q.formats[0] {
	case keyInputs:
		err = c.inputs(q.data)
	case keyInstances:
		err = c.instances(q.data)
	case keyRecords:
		err = c.records(q.data)
	case keySplit:
		err = c.split(q.data)
	}
	var f failure
	if err != nil && !errors.As(err, &f) {
		err = unexpected(err.Error())
	}
	return c.items, err
}

// pythonName is the name of the type that Python gives to a JSON value.
func pythonName(raw []byte) string {
	switch raw[0] {
	case '"':
		return "str"
	case '{':
		return "dict"
	case '[':
		return "list"
	case 't', 'f':
		return "bool"
	case 'n':
		return "NoneType"
	}
	if strings.ContainsAny(string(raw), ".eE") {
		return "float"
	}
	return "int"
}

func pythonType(raw []byte) string { return "<class '" + pythonName(raw) + "'>" }
