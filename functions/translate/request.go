package translate

import (
	"cmp"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/api"
)

// object is a JSON object whose values keep their encoding.
type object map[string]json.RawMessage

// has reports whether a field is present and not null.
func (o object) has(name string) bool { return !slices.Contains([]string{"", "null"}, string(o[name])) }

func (o object) put(name string, v any) {
	o[name], _ = json.Marshal(v) // can't fail
}

func (o object) remove(names ...string) {
	for _, name := range names {
		delete(o, name)
	}
}

// request becomes the runtime's, field by field. It keeps the first error, so err is checked once.
type request struct {
	object
	err error
}

func (r *request) refuse(param, format string, args ...any) {
	if r.err == nil {
		r.err = api.BadRequest(param, format, args...)
	}
}

// refuseFields accepts null and the values in none.
func (r *request) refuseFields(reasons map[string]string, none ...string) {
	for name, why := range reasons {
		if r.has(name) && !slices.Contains(none, string(r.object[name])) {
			r.refuse(name, "%s can't be kept: %s", name, why)
		}
		r.remove(name)
	}
}

// take removes a field and decodes it into v, if it is there.
func (r *request) take(name string, v any) {
	if r.has(name) {
		if err := json.Unmarshal(r.object[name], v); err != nil {
			r.refuseType(name, err)
		}
	}
	r.remove(name)
}

var wanted = map[reflect.Kind]string{
	reflect.String: "a string", reflect.Bool: "true or false", reflect.Slice: "an array", reflect.Struct: "an object", reflect.Map: "an object",
	reflect.Int: "a number", reflect.Int64: "a number", reflect.Float64: "a number", reflect.Float32: "a number",
}

func (r *request) refuseType(name string, err error) {
	wrong, is := errors.AsType[*json.UnmarshalTypeError](err)
	if !is {
		r.refuse(name, "%s: it has the wrong type: %v", name, err)
		return
	}
	where := name
	if inside := strings.Trim(wrong.Field, "."); inside != "" {
		where += "." + strings.ToLower(inside)
	}
	got, _, _ := strings.Cut(wrong.Value, " ") // a number is followed by its value
	r.refuse(name, "%s: it has the wrong type: got %s, want %s", where, got, cmp.Or(wanted[wrong.Type.Kind()], "another type"))
}

// allow refuses a word that is neither empty nor in want.
func (r *request) allow(param, name, word string, want ...string) {
	if word != "" && !slices.Contains(want, word) {
		r.refuse(param, "%s is %.40q, which can't be kept here: want %s", name, word, strings.Join(want, " or "))
	}
}

// drop removes a field whose words have no effect here.
func (r *request) drop(name string, words ...string) {
	var word string
	r.take(name, &word)
	r.allow(name, name, word, words...)
}

// setTemplate does not replace a client's variable.
func (r *request) setTemplate(name string, v any) {
	args := object{}
	r.take("chat_template_kwargs", &args)
	if _, found := args[name]; !found {
		args.put(name, v)
	}
	r.put("chat_template_kwargs", args)
}

// continueLast continues the assistant's last message, which must end with a text (said).
func (r *request) continueLast(said bool) {
	if !said {
		r.refuse("messages", "the last message is the assistant's and ends with no text: there is nothing to go on from, end with a message of the user's")
	}
	r.put("add_generation_prompt", false)
	r.put("continue_final_message", true)
}

func (r *request) setStreamOptions() {
	var stream bool
	if r.has("stream") && json.Unmarshal(r.object["stream"], &stream) != nil {
		r.refuse("stream", "stream: want true or false")
	}
	r.remove("stream_options")
	if stream {
		r.put("stream_options", map[string]bool{"include_usage": true})
	}
}

// checkMaxTokens takes the name of max_tokens in the client's API.
func (r *request) checkMaxTokens(name string) {
	var n float64
	if raw := r.object["max_tokens"]; r.has("max_tokens") && (json.Unmarshal(raw, &n) != nil || n < 1) {
		r.refuse(name, "%s is %.40s: want a number from 1", name, raw)
	}
}
