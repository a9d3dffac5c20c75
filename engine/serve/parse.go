package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/rouse-dev/rouse/internal/inbound"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// read parses a request's body into v, whose memory is charged to the client until the returned body is released.
func (s *Server) read(w http.ResponseWriter, r *http.Request, v any) (*inbound.Body, error) {
	body, err := s.door.Read(w, r, client(r))
	if err != nil {
		w.Header().Set("Connection", "close") // the rest is not worth reading
		return nil, err
	}
	weight := weigh(body.Bytes())
	if weight > maxWeight {
		err = errorf(http.StatusRequestEntityTooLarge, codeTooLarge, "the body has so many JSON values that they take %d MiB: want at most %d; send fewer", weight>>20, maxWeight>>20)
	} else if err = body.Take(r.Context(), weight); err == nil {
		err = parse(body.Bytes(), v)
	}
	if err != nil {
		body.Release()
		return nil, err
	}
	body.Drop()
	return body, nil
}

// named points to the model's name after parsing.
func (s *Server) readFor(w http.ResponseWriter, r *http.Request, v any, named *string) (paid *inbound.Body, model, adapter string, err error) {
	if paid, err = s.read(w, r, v); err != nil {
		return nil, "", "", err
	}
	if model, adapter, err = s.modelName(*named); err != nil {
		paid.Release()
	}
	return paid, model, adapter, err
}

func client(r *http.Request) string {
	if name := tenant(r); name != "" {
		return name
	}
	host, _, _ := net.SplitHostPort(r.RemoteAddr) // "" on a Unix socket
	return host
}

// valueBytes is about a parsed JSON value, of our largest type, without a string's bytes.
const valueBytes, tokenBytes = 128, 4

// maxWeight is two million values, or sixty million token ids.
const maxWeight = 256 << 20

func payTokens(ctx context.Context, paid *inbound.Body, ids []int32) error {
	return paid.Take(ctx, int64(tokenBytes*cap(ids)))
}

// weigh leaves out strings' bytes: an object of two bytes may become a message of a hundred.
func weigh(body []byte) (weight int64) {
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '"':
			weight += valueBytes
			for i++; i < len(body) && body[i] != '"'; i++ {
				if body[i] == '\\' {
					i++
				}
			}
		case '{', '[', 't', 'f', 'n':
			weight += valueBytes
		case ',':
			weight += tokenBytes
		}
	}
	return weight
}

// parse ignores unknown fields. It rejects fields that occur twice or in another case: a proxy may read them otherwise.
// Every error is a 400 [*Error], whose Param is the field's path.
func parse(body []byte, v any) error {
	if len(body) == 0 {
		return badRequest("", "the body is empty: want a JSON object")
	}
	if !utf8.Valid(body) {
		return badRequest("", "the body is not valid UTF-8")
	}
	watch := jsonfield.Watch{Names: jsonfield.Read}
	var ambiguous error
	_ = jsonfield.Each(body, func(name, _ []byte) bool { // other faults are reported below
		ambiguous = watch.See(name)
		return ambiguous == nil
	})
	if ambiguous != nil {
		return badRequest("", "%v", ambiguous)
	}
	err := json.Unmarshal(body, v)
	var known *Error
	var syntax *json.SyntaxError
	var wrongType *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return known
	case errors.As(err, &wrongType):
		return wrongTypeError(wrongType)
	case errors.As(err, &syntax) && syntax.Offset >= int64(len(body)) && strings.Contains(syntax.Error(), "unexpected end"):
		return badRequest("", "the body is truncated JSON: it ends after %d bytes", len(body))
	case errors.As(err, &syntax):
		return badRequest("", "the body is not JSON: %v at byte %d", syntax, syntax.Offset)
	}
	return badRequest("", "the body can't be read: %v", err)
}

func wrongTypeError(e *json.UnmarshalTypeError) error {
	if e.Field == "" {
		return badRequest("", "the body is a JSON %s: want an object", e.Value)
	}
	field := e.Field // clients do not know embedded structs
	for _, embedded := range []string{"options.", "prompt.", "structure.", "elsewhere.", "vectorOptions."} {
		field = strings.TrimPrefix(field, embedded)
	}
	return badRequest(field, "%s is a JSON %s: want %s", field, e.Value, wanted(e.Type))
}

func wanted(t reflect.Type) string {
	if w, ok := reflect.TypeAssert[interface{ wants() string }](reflect.Zero(t)); ok {
		return w.wants()
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "an integer in range"
	case reflect.Float32, reflect.Float64:
		return "a number in range"
	case reflect.Slice:
		return "an array"
	case reflect.Map, reflect.Struct:
		return "an object"
	}
	return "another type"
}

func kindOf(data []byte) string {
	switch data[0] {
	case '"':
		return "string"
	case '{':
		return "object"
	case '[':
		return "array"
	case 't', 'f':
		return "bool"
	case 'n':
		return "null"
	}
	return "number"
}

// mismatch leaves the field's path to the decoder.
func mismatch[T any](data []byte) error {
	return &json.UnmarshalTypeError{Value: kindOf(data), Type: reflect.TypeFor[T]()}
}

type stringList []string

func (stringList) wants() string { return "a string or an array of strings" }

// UnmarshalJSON implements json.Unmarshaler.
func (l *stringList) UnmarshalJSON(data []byte) error {
	switch kindOf(data) {
	case "null":
		*l = nil
		return nil
	case "string":
		*l = stringList{""}
		return json.Unmarshal(data, &(*l)[0])
	}
	var many []string
	if json.Unmarshal(data, &many) != nil {
		return mismatch[stringList](data)
	}
	*l = many
	return nil
}

type content struct {
	text   string
	images []imagePart
}

func (content) wants() string { return "a string or an array of text parts" }

// UnmarshalJSON joins parts by a line feed, as other servers do.
func (c *content) UnmarshalJSON(data []byte) error {
	switch kindOf(data) {
	case "null":
		*c = content{}
		return nil
	case "string":
		*c = content{}
		return json.Unmarshal(data, &c.text)
	case "array":
	default:
		return mismatch[content](data)
	}
	var parts []struct {
		Type    string  `json:"type"`
		Text    *string `json:"text"`
		Refusal *string `json:"refusal"`

		Image json.RawMessage `json:"image_url"`
	}
	if err := json.Unmarshal(data, &parts); err != nil {
		return mismatch[content](data)
	}
	*c = content{}
	var text strings.Builder
	for i, p := range parts {
		if p.Type == "image_url" {
			c.images = append(c.images, imagePart{part: i, at: text.Len(), data: p.Image})
			continue
		}
		if p.Type != "text" && p.Type != "input_text" && p.Type != "output_text" && p.Type != "refusal" {
			return badRequest("messages.content", notText, i, p.Type)
		}
		if p.Type == "refusal" && p.Text == nil {
			p.Text = p.Refusal
		}
		if p.Text == nil {
			return badRequest("messages.content", "content part %d has no text", i)
		}
		if i > 0 && parts[i-1].Type != "image_url" {
			text.WriteByte('\n')
		}
		text.WriteString(*p.Text)
	}
	c.text = text.String()
	return nil
}

const notText = "content part %d has type %q: this model reads parts of type \"text\" only"

type prompts []textOrTokens

// textOrTokens is one prompt: its tokens if not nil, else its text.
type textOrTokens struct {
	text   string
	tokens []int32
}

func (prompts) wants() string {
	return "a string, an array of strings, an array of token ids, or an array of arrays of token ids"
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *prompts) UnmarshalJSON(data []byte) error {
	var text string
	var texts []string
	var tokens []int32
	var lists [][]int32
	var err error
	switch items := itemKind(data); {
	case kindOf(data) == "null":
		*p = nil
	case kindOf(data) == "string":
		err = json.Unmarshal(data, &text)
		*p = prompts{{text: text}}
	case items == "number":
		err = json.Unmarshal(data, &tokens)
		*p = prompts{{tokens: tokens}}
	case items == "array":
		err = json.Unmarshal(data, &lists)
		*p = make(prompts, len(lists))
		for i, l := range lists {
			if (*p)[i].tokens = l; l == nil {
				(*p)[i].tokens = []int32{}
			}
		}
	default:
		err = json.Unmarshal(data, &texts)
		*p = make(prompts, len(texts))
		for i, t := range texts {
			(*p)[i].text = t
		}
	}
	if err != nil {
		return mismatch[prompts](data)
	}
	return nil
}

func itemKind(data []byte) string {
	items, isArray := bytes.CutPrefix(data, []byte{'['})
	items = bytes.TrimLeft(items, " \t\r\n")
	if !isArray || items[0] == ']' {
		return ""
	}
	return kindOf(items)
}

type tokenBias map[int32]float32

func (tokenBias) wants() string { return "an object of token ids and numbers" }

func unsupported(param, what string) error {
	return badRequest(param, "%s: this engine does not support it; leave %s out", what, param)
}

const maxQuoted = 100

func quote(s string) string {
	if len(s) > maxQuoted {
		s = strings.ToValidUTF8(s[:maxQuoted], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}
