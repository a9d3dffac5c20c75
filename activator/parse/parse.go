// Package parse extracts the fields that the activator needs from a body in one pass, without decoding it. [JSON]
// accepts one JSON object in UTF-8 whose known fields have the right types, occur once and are spelt exactly: the
// model server must read the same. Any other body is a 400 with the byte offset, and wakes no instance.
package parse

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"strconv"
	"strings"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/jsonfield"
	"github.com/rouse-dev/rouse/internal/relay"
)

const MaxDepth = 512

// Request holds the fields of a body.
type Request struct {
	Model  string
	Stream bool
	// Higher first: the negated "priority" (in vLLM lower is earlier), else 1 or -1 for the "service_tier"
	// "priority" or "flex".
	Priority int
	// The "service_tier".
	Tier string
	// Input is a quarter of the body's bytes. Tokens adds those that are asked for.
	Input, Tokens api.Tokens
	Prompt        Prompt
	// For each prompt "n" or "best_of"; 0: one.
	Sequences int
	// The first field that uses a store: a true "store" or "background", "previous_response_id" or "conversation".
	Stored string
}

// Prompt holds raw fields, as slices of the body; nil: missing.
type Prompt struct {
	// "system" or "instructions"; "tools"; "messages", "input" or "prompt".
	System, Tools, Messages []byte
	// "cache_salt" separates cached prompts.
	Salt []byte
	// "prompt_cache_key", else "conversation", else "user".
	Session []byte
}

// For English text; good for sums, not for limits.
const bytesPerToken = 4

// JSON parses a JSON body.
func JSON(o *jsonfield.Object) (Request, *api.Error) {
	body := o.Bytes()
	if len(bytes.TrimLeft(body, " \t\r\n")) == 0 {
		return Request{}, api.BadRequest("", `the body is empty: send a JSON object such as {"model": "…", "messages": […]}`)
	}
	if err := cmp.Or(jsonfield.CheckUTF8(body), jsonfield.Shallow(body, MaxDepth), o.Err()); err != nil {
		return Request{}, api.BadRequest("", "%v", err)
	}
	f := fields{watch: jsonfield.Watch{Names: jsonfield.Read}}
	o.Fields(f.see)
	if f.ambiguous != nil {
		return Request{}, api.BadRequest("", "%v", f.ambiguous)
	}
	return f.request(body)
}

// nil: missing
type fields struct {
	watch                                                         jsonfield.Watch
	ambiguous                                                     error
	model, stream, priority, tier, maxTokens, maxCompletionTokens []byte
	prompt                                                        Prompt
	conversation, user                                            []byte
	stored                                                        string
	n, bestOf                                                     []byte
}

func (f *fields) see(name, value []byte) bool {
	if f.ambiguous == nil {
		f.ambiguous = f.watch.See(name)
	}
	if bytes.IndexByte(name, '\\') >= 0 {
		f.set([]byte(text(name)), value)
	} else {
		f.set(name[1:len(name)-1], value)
	}
	return true
}

func (f *fields) set(key, value []byte) {
	switch string(key) { // no copy
	case "model":
		f.model = value
	case "stream":
		f.stream = value
	case "priority":
		f.priority = value
	case "service_tier":
		f.tier = value
	case "max_tokens":
		f.maxTokens = value
	case "max_completion_tokens":
		f.maxCompletionTokens = value
	case "n":
		f.n = value
	case "best_of":
		f.bestOf = value
	case "store", "background":
		if f.stored == "" && string(value) == "true" {
			f.stored = string(key)
		}
	case "previous_response_id":
		if f.stored == "" && !isNull(value) {
			f.stored = string(key)
		}
	case "conversation":
		if isNull(value) {
			break
		}
		if f.conversation = value; f.stored == "" {
			f.stored = string(key)
		}
	default:
		f.setPrompt(key, value)
	}
}

// A body has at most one of the synonyms.
func (f *fields) setPrompt(key, value []byte) {
	if isNull(value) {
		return
	}
	switch string(key) {
	case "messages", "input", "prompt":
		f.prompt.Messages = value
	case "system", "instructions":
		f.prompt.System = value
	case "tools":
		f.prompt.Tools = value
	case "cache_salt":
		f.prompt.Salt = value
	case "prompt_cache_key":
		f.prompt.Session = value
	case "user":
		f.user = value
	}
}

// Another field of a wrong type counts as missing: the runtime refuses it.
func (f *fields) request(body []byte) (Request, *api.Error) {
	r := Request{Input: api.Tokens(len(body) / bytesPerToken), Stored: f.stored}
	if f.model != nil && !isNull(f.model) {
		if f.model[0] != '"' {
			return Request{}, api.BadRequest("model", "the field model is %s: want a string with a model's name", kind(f.model))
		}
		r.Model = text(f.model)
	}
	switch {
	case f.stream == nil || isNull(f.stream) || string(f.stream) == "false":
	case string(f.stream) == "true":
		r.Stream = true
	default:
		return Request{}, api.BadRequest("stream", "the field stream is %s: want true or false", kind(f.stream))
	}
	if f.tier != nil && !isNull(f.tier) {
		if f.tier[0] != '"' {
			return Request{}, api.BadRequest("service_tier", "the field service_tier is %s: want a string", kind(f.tier))
		}
		r.Tier = text(f.tier)
	}
	if n, found := number(f.priority); found {
		r.Priority = int(-max(min(n, 1<<20), -1<<20))
	} else {
		switch r.Tier {
		case "priority":
			r.Priority = 1
		case "flex":
			r.Priority = -1
		}
	}
	asked, found := number(f.maxCompletionTokens)
	if !found {
		asked, _ = number(f.maxTokens)
	}
	r.Tokens = r.Input + api.Tokens(min(max(asked, 0), 1<<30))
	r.Prompt, r.Sequences = f.prompt, f.sequences()
	for _, other := range [][]byte{f.conversation, f.user} {
		if r.Prompt.Session == nil {
			r.Prompt.Session = other
		}
	}
	return r, nil
}

const mostSequences = 1 << 16

// An item of a list is a sequence if it is a text or a list of tokens.
func (f *fields) sequences() int {
	prompts, list := 0, f.prompt.Messages
	if first := bytes.TrimLeft(bytes.TrimPrefix(list, []byte("[")), " \t\r\n"); len(list) > 0 && list[0] == '[' && (first[0] == '"' || first[0] == '[') {
		_ = jsonfield.Items(list, func([]byte) bool {
			prompts++
			return prompts < mostSequences
		})
	}
	n, _ := number(f.n)
	best, _ := number(f.bestOf)
	each := min(max(n, best, 1), mostSequences)
	if each *= int64(max(prompts, 1)); each > 1 {
		return int(min(each, mostSequences))
	}
	return 0
}

func isNull(v []byte) bool { return string(v) == "null" }

func number(v []byte) (n int64, ok bool) {
	if len(v) == 0 || len(v) > 19 {
		return 0, false
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	return n, err == nil
}

func text(v []byte) string {
	inner := v[1 : len(v)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner)
	}
	var s string
	if err := json.Unmarshal(v, &s); err != nil {
		return string(inner)
	}
	return s
}

func kind(v []byte) string {
	switch v[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

// Bounds of a form, in parts and bytes.
const (
	maxParts      = 256
	maxPartHeader = 8 << 10
	maxPart       = 4 << 10
)

// NextPart returns part n of a form, not decoded. The error is an *[api.Error] for too many parts, a long
// header, or a part that servers read differently.
func NextPart(form *multipart.Reader, n, most int) (*multipart.Part, error) {
	part, err := relay.FormPart(form)
	size := 0
	if part != nil {
		for name, values := range part.Header {
			size += len(name) + len(strings.Join(values, ""))
		}
	}
	switch {
	case size > maxPartHeader, errors.Is(err, multipart.ErrMessageTooLarge):
		err = api.BadRequest("", "the header of a part of the form has more than %d bytes: shorten the names in it", maxPartHeader)
	case err == nil && n >= most:
		err = api.BadRequest("", "the form has more than %d parts: send fewer", most)
	}
	return part, err
}

// Form does not read the file in the body of an audio path.
func Form(contentType string, body []byte) (Request, *api.Error) {
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil || params["boundary"] == "" {
		return Request{}, api.BadRequest("", "the Content-Type %q has no boundary: want multipart/form-data; boundary=…", contentType)
	}
	r := Request{Input: api.Tokens(len(body) / bytesPerToken)}
	r.Tokens = r.Input
	form := multipart.NewReader(bytes.NewReader(body), params["boundary"])
	for n := 0; ; n++ {
		part, err := NextPart(form, n, maxParts)
		if refused, is := errors.AsType[*api.Error](err); is {
			return Request{}, refused
		} else if err != nil {
			break // the end, or a broken form, which the runtime refuses
		}
		if part.FormName() != "model" && part.FormName() != "stream" {
			continue
		}
		// A runtime treats a part with a filename, even an empty one, as a file.
		_, params, _ := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
		if _, file := params["filename"]; file {
			return Request{}, api.BadRequest(part.FormName(), "the form has a file as its field %s: send a text", part.FormName())
		}
		value := make([]byte, maxPart)
		n, _ := io.ReadFull(part, value) // the runtime refuses a broken one
		switch part.FormName() {
		case "model":
			if r.Model != "" {
				return Request{}, api.BadRequest("model", "the form has two fields model: send one")
			}
			r.Model = string(value[:n])
		case "stream":
			r.Stream = string(value[:n]) == "true"
		}
	}
	return r, nil
}
