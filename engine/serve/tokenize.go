package serve

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/engine/chat"
)

type tokenizeRequest struct {
	prompt
	Model            string  `json:"model"`
	Prompt           *string `json:"prompt"`
	AddSpecialTokens *bool   `json:"add_special_tokens"`
	ReturnTokenStrs  bool    `json:"return_token_strs"`
}

// A text of more than longText waits until the answer to its client's last one was read, at most longTurn.
const (
	longText = 1 << 20
	longTurn = 10 * time.Second
)

// tokenize is vLLM's.
func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) error {
	var t tokenizeRequest
	paid, _, _, err := s.readFor(w, r, &t, &t.Model)
	if err != nil {
		return err
	}
	defer paid.Release()
	done := func() {}
	if t.Prompt != nil && len(*t.Prompt) > longText {
		if done, err = s.long.take(r.Context(), client(r)); err != nil {
			return err
		}
	}
	defer done()
	ids, err := s.tokens(r.Context(), &t)
	if err != nil {
		return err
	}
	if err := payTokens(r.Context(), paid, ids); err != nil {
		return err
	}
	defer time.AfterFunc(longTurn, done).Stop()
	tok, out := s.engine.Tokenizer(), s.pieces(w)
	defer out.end()
	out.buf = appendInt(append(out.buf, `{"count":`...), len(ids))
	out.buf = appendInt(append(out.buf, `,"max_model_len":`...), s.engine.Context())
	out.list("tokens", ids, func(dst []byte, id int32) []byte { return appendInt(dst, int64(id)) })
	if t.ReturnTokenStrs && len(ids) > 0 {
		out.list("token_strs", ids, func(dst []byte, id int32) []byte { return appendString(dst, tok.Token(id)) })
	}
	out.buf = append(out.buf, "}\n"...)
	return nil
}

func (s *Server) tokens(ctx context.Context, t *tokenizeRequest) ([]int32, error) {
	switch {
	case t.Prompt == nil:
		text, err := s.render(ctx, &t.prompt)
		if err != nil {
			return nil, err
		}
		ids, err := s.encode(ctx, "messages", text)
		if err != nil {
			return nil, err
		}
		ids, _, err = s.expand(&t.pictures, ids)
		return ids, err
	case t.Messages != nil:
		return nil, badRequest("prompt", "prompt and messages are both set: want one")
	case or(t.AddSpecialTokens, true):
		return s.encodeMost(ctx, "prompt", *t.Prompt, anyLength)
	}
	return s.plain(ctx, "prompt", *t.Prompt, true, anyLength)
}

func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) error {
	var t struct {
		Model  string  `json:"model"`
		Tokens []int32 `json:"tokens"`
	}
	paid, _, _, err := s.readFor(w, r, &t, &t.Model)
	if err != nil {
		return err
	}
	defer paid.Release()
	if t.Tokens == nil {
		return badRequest("tokens", "tokens is missing: want an array of token ids")
	}
	if err := s.checkTokens("tokens", t.Tokens); err != nil {
		return err
	}
	out := s.pieces(w)
	defer out.end()
	out.buf = append(out.buf, `{"prompt":`...)
	out.text(s.engine.Tokenizer().Texts(t.Tokens))
	out.buf = append(out.buf, "}\n"...)
	return nil
}

// tokenizerInfo is vLLM's.
func (s *Server) tokenizerInfo(w http.ResponseWriter, _ *http.Request) error {
	bos, eos := s.template.Special()
	return writeJSON(w, map[string]any{"bos_token": orNull(bos), "eos_token": orNull(eos), "pad_token": nil, "model_max_length": s.engine.Context(), "chat_template": s.template.Source()})
}

func (s *Server) checkTokens(param string, ids []int32) error {
	size := s.engine.Tokenizer().Size()
	for i, id := range ids {
		if id < 0 || int(id) >= size {
			return badRequest(param, "token %d is %d: the vocabulary has the tokens 0 to %d", i, id, size-1)
		}
	}
	return nil
}

func templateError(err error) error {
	var refused *chat.RefusedError
	var exceeded *chat.BudgetError
	if errors.As(err, &refused) || errors.As(err, &exceeded) || errors.Is(err, chat.ErrBusy) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return badRequest("messages", "the messages can't be made a prompt: %v", err)
}
