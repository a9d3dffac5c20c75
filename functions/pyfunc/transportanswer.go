package pyfunc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// answer converts the endpoint's answer to the answer of r: 1. a redirect is not
// followed, because the request would go to another host without its envelope; 2.
// the endpoint refused; 3. the envelope's answer.
func (t *Transport) answer(r *http.Request, resp *http.Response) (*http.Response, error) {
	raw, err := t.read(r.Context(), resp)
	if err != nil {
		return nil, err
	}
	switch {
	case resp.StatusCode/100 == 3: // 1.
		return nil, fmt.Errorf("pyfunc: %s redirects to %q: set the endpoint to where it is", t.url, resp.Header.Get("Location"))
	case resp.StatusCode != http.StatusOK: // 2.
		h := resp.Header.Clone()
		h.Del("Connection")
		h.Set("Content-Type", "application/json")
		return memoryAnswer(r, resp.StatusCode, h, openAIRefusal(resp.StatusCode, raw)), nil
	}
	inner, err := firstPrediction(raw) // 3.
	if err != nil {
		return nil, fmt.Errorf("pyfunc: %s did not answer like a scoring server with envelopes: %w", t.url, err)
	}
	return memoryAnswer(r, inner.Status, inner.Header, inner.Body), nil
}

// firstPrediction reads the first prediction, in place.
func firstPrediction(raw []byte) (Response, error) {
	if !utf8.Valid(raw) {
		return Response{}, errors.New("it is not UTF-8")
	}
	o := jsonfield.Open(raw)
	list, _ := o.Find("predictions")
	var first []byte
	err := o.Err()
	if err == nil && jsonfield.Items(list, func(item []byte) bool { first = item; return item[0] != '"' }) != nil {
		err = errors.New(`it has no list "predictions"`)
	}
	if err == nil && (first == nil || first[0] != '"') {
		err = errors.New("its first prediction is no string")
	}
	if err != nil {
		return Response{}, err
	}
	return ParseResponse(jsonfield.Text(first))
}

// maxExcerpt bounds the part of an answer that is shown if it is not an error of MLflow's.
const maxExcerpt = 1 << 10

// openAIRefusal converts an endpoint's error to an OpenAI error body. It uses the endpoint's own OpenAI
// object, or MLflow's message, or the beginning of the text.
func openAIRefusal(status int, raw []byte) []byte {
	var body struct {
		Code    string          `json:"error_code"`
		Message string          `json:"message"`
		OpenAI  json.RawMessage `json:"error"`
	}
	var given struct{ Message string }
	if err := json.Unmarshal(raw, &body); err != nil {
		body.Message = ""
	} else if json.Unmarshal(body.OpenAI, &given) == nil && given.Message != "" {
		out, _ := json.Marshal(map[string]json.RawMessage{"error": body.OpenAI}) // it was valid before
		return out
	}
	made := &api.Error{Message: body.Message, Code: body.Code, Type: "api_error"}
	if body.Message == "" {
		text := bytes.TrimSpace(raw)
		made.Message = fmt.Sprintf("the endpoint answered %d %s: %s", status, http.StatusText(status), bytes.ToValidUTF8(text[:min(len(text), maxExcerpt)], nil))
	}
	if status < 500 {
		made.Type = "invalid_request_error"
	}
	out, _ := made.MarshalJSON() // strings always marshal
	return out
}

// memoryAnswer returns an answer whose body is in memory.
func memoryAnswer(r *http.Request, status int, header http.Header, body []byte) *http.Response {
	if utf8.Valid(body) { // a stock server may leave the header of a compressed body; no compressed body is UTF-8
		header.Del("Content-Encoding")
	}
	header.Del("Transfer-Encoding")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	return &http.Response{
		Status: strconv.Itoa(status) + " " + http.StatusText(status), StatusCode: status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: header,
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: r,
	}
}
