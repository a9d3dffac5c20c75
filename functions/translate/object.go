package translate

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/api"
)

// object is a JSON object whose values are as they came.
type object map[string]json.RawMessage

// read reads a body. A field that can't be kept, with the reason, is an error unless it is null.
func read(body []byte, refused map[string]string) (object, error) {
	var in object
	if err := json.Unmarshal(body, &in); err != nil || in == nil {
		return nil, api.BadRequest("", "the body is not a JSON object")
	}
	for name, why := range refused {
		if in.has(name) {
			return nil, api.BadRequest(name, "%s can't be kept: %s", name, why)
		}
		delete(in, name)
	}
	return in, nil
}

// has says whether a field is there and not null.
func (o object) has(name string) bool {
	v, found := o[name]
	return found && string(bytes.TrimSpace(v)) != "null"
}

// take removes a field and decodes it into v. It leaves v alone where the field is not there.
func (o object) take(name string, v any) error {
	if !o.has(name) {
		delete(o, name)
		return nil
	}
	if err := json.Unmarshal(o[name], v); err != nil {
		return wrongType(name, err)
	}
	delete(o, name)
	return nil
}

// wrongType says where in a field a value is that can't be one, in words of JSON.
func wrongType(name string, err error) error {
	wrong, is := errors.AsType[*json.UnmarshalTypeError](err)
	if !is {
		return api.BadRequest(name, "%s: it has the wrong type: %v", name, err)
	}
	where := name
	if inside := strings.Trim(wrong.Field, "."); inside != "" {
		where += "." + strings.ToLower(inside)
	}
	want := "another type"
	switch wrong.Type.Kind() { //nolint:exhaustive // of the others nothing is read
	case reflect.String:
		want = "a string"
	case reflect.Bool:
		want = "true or false"
	case reflect.Slice:
		want = "an array"
	case reflect.Struct, reflect.Map:
		want = "an object"
	case reflect.Int, reflect.Int64, reflect.Float64, reflect.Float32:
		want = "a number"
	}
	kind, _, _ := strings.Cut(wrong.Value, " ") // of a number the value follows
	return api.BadRequest(name, "%s: it has the wrong type: got %s, want %s", where, kind, want)
}

// drop removes a field whose value is one of a few texts that ask for nothing here.
func (o object) drop(name string, of ...string) error {
	var v string
	if err := o.take(name, &v); err != nil {
		return err
	}
	if v != "" && !slices.Contains(of, v) {
		return api.BadRequest(name, "%s is %.40q, which can't be kept here: want %s", name, v, strings.Join(of, " or "))
	}
	return nil
}

// put sets a field.
func (o object) put(name string, v any) {
	raw, _ := json.Marshal(v) // of our own types and of JSON that was read
	o[name] = raw
}

// template sets a variable of the model's template, unless the client has set it itself.
func (o object) template(name string, v any) error {
	args := object{}
	if err := o.take("chat_template_kwargs", &args); err != nil {
		return err
	}
	if args == nil {
		args = object{}
	}
	if _, found := args[name]; !found {
		args.put(name, v)
	}
	o.put("chat_template_kwargs", args)
	return nil
}

// goOn has the answer go on where the last message ends.
func (o object) goOn() {
	o.put("add_generation_prompt", false)
	o.put("continue_final_message", true)
}

// move gives a field another name.
func (o object) move(from, to string) {
	if o.has(from) {
		o[to] = o[from]
	}
	delete(o, from)
}

// streamed asks for usage at the end of a stream, where the request is for one.
func (o object) streamed() error {
	var stream bool
	if o.has("stream") {
		if err := json.Unmarshal(o["stream"], &stream); err != nil {
			return api.BadRequest("stream", "stream: want true or false")
		}
	}
	delete(o, "stream_options")
	if stream {
		o.put("stream_options", map[string]bool{"include_usage": true})
	}
	return nil
}
