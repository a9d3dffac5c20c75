package resume

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/rouse-dev/rouse/internal/jsonfield"
)

const maxAnswer = 16 << 20

// ask sends vLLM a request of our own. It returns an answer other than 200.
func (x *exchange) ask(path string, body []byte, into any) (refused *http.Response, err error) {
	own := *x
	own.in = x.in.Clone(x.in.Context())
	delete(own.in.Header, "X-Request-Id") // vLLM derives its IDs from it; the stream's own request needs that ID
	resp, err := own.send(path, body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read vLLM's answer at %s: %w", path, err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return nil, fmt.Errorf("read vLLM's answer at %s: %w", path, err)
	}
	return nil, nil
}

// prompt returns the tokens of the request's prompt, and vLLM's details about them from its usage. instead is the client's answer if vLLM
// refuses, or the prompt is not the stream's.
func (x *exchange) prompt(s *stream) (tokens []int64, details json.RawMessage, instead *http.Response, err error) {
	body := x.body
	for _, name := range []string{"stream_options", "max_completion_tokens", "min_tokens", "stream_interval", "request_id"} {
		body = jsonfield.Delete(body, name)
	}
	for name, value := range map[string]string{"stream": "false", "max_tokens": "1", "return_token_ids": "true"} {
		body = jsonfield.Set(body, name, []byte(value))
	}
	var answer struct {
		Prompt  []int64 `json:"prompt_token_ids"`
		Choices []struct {
			Prompt []int64 `json:"prompt_token_ids"`
		} `json:"choices"`
		Usage struct {
			Details json.RawMessage `json:"prompt_tokens_details"`
		} `json:"usage"`
	}
	if instead, err = x.ask(x.in.URL.Path, body, &answer); instead != nil || err != nil {
		return nil, nil, instead, err
	}
	tokens = answer.Prompt
	if len(tokens) == 0 && len(answer.Choices) > 0 {
		tokens = answer.Choices[0].Prompt
	}
	switch {
	case len(tokens) == 0:
		return nil, nil, x.refuse(notTold), nil
	case len(tokens) != s.prompt || digest(tokens) != s.digest:
		return nil, nil, x.refuse("its prompt reads otherwise now, as with a chat template that has the date in it"), nil
	}
	return tokens, answer.Usage.Details, nil, nil
}

// refusal is vLLM's refusal of our own request: it would recur, at other instances too.
type refusal struct{ path, status string }

func (r *refusal) Error() string { return "vLLM's answer at " + r.path + " is " + r.status }

// answered sends vLLM a request that it refuses, by a [*refusal], only if the state is not its own.
func (x *exchange) answered(path string, body []byte, into any) error {
	refused, err := x.ask(path, body, into)
	if refused == nil {
		return err
	}
	refused.Body.Close()
	if refused.StatusCode >= http.StatusInternalServerError {
		return fmt.Errorf("vLLM's answer at %s: %s", path, refused.Status)
	}
	return &refusal{path, refused.Status}
}

const (
	window       = 16 // tokens whose text shows whether they end within a character
	maxCharacter = 8  // the most tokens of one character
)

// incomplete returns how many of the last tokens are an incomplete character, which a detokenizer decodes to a replacement character and
// vLLM holds back; made of all tokens are the answer's. Negative: too many.
func (x *exchange) incomplete(tokens []int64, made int) (int, error) {
	for n := range min(made, maxCharacter) {
		end := len(tokens) - n
		body, _ := json.Marshal(map[string]any{"model": x.asked.model, "tokens": tokens[max(0, end-window):end]})
		var answer struct {
			Prompt *string `json:"prompt"`
		}
		if err := x.answered("/detokenize", body, &answer); err != nil {
			return 0, err
		}
		if answer.Prompt == nil {
			return 0, errors.New("vLLM's answer at /detokenize has no text")
		}
		if !strings.HasSuffix(*answer.Prompt, "\uFFFD") {
			return n, nil
		}
	}
	if made < maxCharacter {
		return made, nil
	}
	return -1, nil
}

// left returns how many more tokens the answer may have.
func (x *exchange) left(s *stream) (int, error) {
	if x.asked.most >= 0 {
		return x.asked.most - len(s.tokens), nil
	}
	r := *x
	r.in = x.in.Clone(x.in.Context())
	r.in.Method = http.MethodGet
	var list struct {
		Data []struct {
			Length int `json:"max_model_len"`
		} `json:"data"`
	}
	err := r.answered("/v1/models", nil, &list)
	length := 0
	for _, m := range list.Data {
		length = max(length, m.Length)
	}
	if err == nil && length == 0 {
		err = fmt.Errorf("vLLM does not say how long the model's context is")
	}
	if err != nil {
		return 0, err
	}
	most := length - s.prompt
	if x.model.most > 0 {
		most = min(most, x.model.most)
	}
	return most - len(s.tokens), nil
}
