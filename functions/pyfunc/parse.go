package pyfunc

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rouse-dev/rouse/functions/pyfunc/internal/span"
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

const signatureName = `Invalid input. "signature_name" parameter is currently not supported`

// interval is a span of the body; the zero value: there is none.
type interval struct{ from, to int }

func (i interval) in(b []byte) []byte { return b[i.from:i.to] }

// query is a body taken apart, but not decoded.
type query struct {
	body []byte
	csv  bool

	// Of JSON: where the object begins, and the values of the keys that count. Of a
	// repeated key the last one counts.
	from                    int
	messages, prompt, input interval
	model, stream           interval
	embeds, generates       bool // a key is there that only the one of the two has
	formats                 []string
	data                    interval // the value of the last of formats
	params                  interval
	signature               bool
}

// parse takes a body apart. The error is a failure.
func parse(body []byte, csv bool) (query, error) {
	q := query{body: body, csv: csv}
	if !utf8.Valid(body) {
		return q, failure{Message: "The body is not valid UTF-8: send it encoded as UTF-8."}
	}
	if csv {
		return q, nil
	}
	bad := func(err error) error {
		return failure{Message: "Ensure that input is a valid JSON formatted string. Error: '" + err.Error() + "'"}
	}
	q.from = span.Begin(body)
	var end int
	var err error
	if span.Is(body, q.from, '{') {
		end, err = span.Object(body, q.from, func(key []byte, at int) (int, error) {
			end, err := span.Skip(body, at)
			if err == nil {
				q.member(key, interval{at, end})
			}
			return end, err
		})
	} else {
		end, err = span.Skip(body, q.from)
	}
	if err == nil {
		err = span.End(body, end)
	}
	switch {
	case err != nil:
		return q, bad(err)
	case body[q.from] == '{':
		return q, q.check()
	case body[q.from] == '[':
		return q, failure{Message: exactlyOne + " Received a list."}
	}
	return q, failure{Message: exactlyOne + " Received unexpected input type '" + pythonType(body[q.from:end]) + "'."}
}

// member notes one member of the object.
func (q *query) member(key []byte, at interval) {
	switch string(key) { // the compiler does not copy here
	case "messages":
		q.messages = at
	case "prompt":
		q.prompt = at
	case "input":
		q.input = at
	case "model":
		q.model = at
	case "stream":
		q.stream, q.generates = at, true
	case "encoding_format", "dimensions":
		q.embeds = true
	case "instructions", "max_output_tokens", "previous_response_id", "reasoning", "text", "tools", "tool_choice",
		"temperature", "top_p", "conversation", "store", "include", "context":
		q.generates = true
	case keySplit, keyRecords, keyInstances, keyInputs:
		if !slices.Contains(q.formats, string(key)) {
			q.formats = append(q.formats, string(key))
		}
		q.data = at
	case "params":
		q.params = at
	case "signature_name":
		q.signature = true
	}
}

// unified says whether the body is a request of the model's own API.
func (q *query) unified() bool {
	return q.messages.to > 0 || q.prompt.to > 0 || q.input.to > 0
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
	case q.signature && (q.formats[0] == keyInputs || q.formats[0] == keyInstances):
		return failure{Message: signatureName}
	case q.params.to > 0 && q.body[q.params.from] != '{' && q.body[q.params.from] != 'n':
		return failure{Code: "INVALID_PARAMETER_VALUE", Message: fmt.Sprintf("Parameters must be a dictionary. Got type '%s'.", pythonName(q.params.in(q.body)))}
	}
	return nil
}

// strings decodes the column of strings that the data is, in place: the query
// is of no further use.
func (q *query) strings() ([][]byte, error) {
	if q.csv {
		return csvColumn(q.body)
	}
	c := column{body: q.body}
	var err error
	switch q.formats[0] {
	case keyInputs:
		_, err = c.inputs(q.data.from)
	case keyInstances:
		_, err = c.instances(q.data.from)
	case keyRecords:
		_, err = c.records(q.data.from)
	case keySplit:
		_, err = c.split(q.data.from)
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
