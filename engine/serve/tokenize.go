package serve

import (
	"context"
	"errors"
	"net/http"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/engine/chat"
)

// tokenize answers POST /tokenize, in vLLM's shape: of a prompt, or of a conversation.
func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) error {
	var t struct {
		prompt
		Model            string  `json:"model"`
		Prompt           *string `json:"prompt"`
		AddSpecialTokens *bool   `json:"add_special_tokens"`
		ReturnTokenStrs  bool    `json:"return_token_strs"`
	}
	if err := s.read(w, r, &t); err != nil {
		return err
	}
	if _, _, err := s.modelName(t.Model); err != nil {
		return err
	}
	tok := s.engine.Tokenizer()
	var ids []int32
	var err error
	switch {
	case t.Prompt == nil:
		ids, err = s.chatPrompt(r.Context(), &t.prompt)
	case t.Messages != nil:
		return api.BadRequest("prompt", "prompt and messages are both set: want one")
	case or(t.AddSpecialTokens, true):
		ids, err = s.encodeMost(r.Context(), "prompt", *t.Prompt, anyLength)
	default:
		ids, err = s.plain(r.Context(), "prompt", *t.Prompt, anyLength)
	}
	if err != nil {
		return err
	}
	answer := struct {
		Count       int      `json:"count"`
		MaxModelLen int      `json:"max_model_len"`
		Tokens      []int32  `json:"tokens"`
		TokenStrs   []string `json:"token_strs,omitempty"`
	}{len(ids), s.engine.Context(), append([]int32{}, ids...), nil}
	if t.ReturnTokenStrs {
		for _, id := range ids {
			answer.TokenStrs = append(answer.TokenStrs, tok.Token(id))
		}
	}
	return writeJSON(w, answer)
}

// detokenize answers POST /detokenize.
func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) error {
	var t struct {
		Model  string  `json:"model"`
		Tokens []int32 `json:"tokens"`
	}
	if err := s.read(w, r, &t); err != nil {
		return err
	}
	if _, _, err := s.modelName(t.Model); err != nil {
		return err
	}
	if t.Tokens == nil {
		return api.BadRequest("tokens", "tokens is missing: want an array of token ids")
	}
	if err := s.checkTokens("tokens", t.Tokens); err != nil {
		return err
	}
	return writeJSON(w, map[string]string{"prompt": s.engine.Tokenizer().Decode(t.Tokens)})
}

// checkTokens refuses ids that the vocabulary does not have.
func (s *Server) checkTokens(param string, ids []int32) error {
	size := s.engine.Tokenizer().Size()
	for i, id := range ids {
		if id < 0 || int(id) >= size {
			return api.BadRequest(param, "token %d is %d: the vocabulary has the tokens 0 to %d", i, id, size-1)
		}
	}
	return nil
}

// templateError is a failed rendering. The conversation is the client's, so is the mistake.
func templateError(err error) error {
	var refused *chat.RefusedError
	var exceeded *chat.BudgetError
	if errors.As(err, &refused) || errors.As(err, &exceeded) || errors.Is(err, chat.ErrBusy) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return api.BadRequest("messages", "the messages can't be made a prompt: %v", err)
}
