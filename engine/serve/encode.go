package serve

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// encode returns a prompt's tokens, with the beginning-of-text token if the model wants one and text has none. A text
// somewhat too long for the context is encoded all the same: the refusal says its length. param is the client's name of
// the text.
func (s *Server) encode(ctx context.Context, param, text string) ([]int32, error) {
	most := s.encodeLimit()
	if fewest := s.engine.Tokenizer().Fewest(text); fewest > most {
		return nil, s.tooLong(param, fewest, "the text has at least %d tokens. This model's maximum context length is %d tokens: shorten it", fewest, s.engine.Context())
	}
	return s.encodeMost(ctx, param, text, most)
}

func (s *Server) encodeLimit() int { return max(2*s.engine.Context(), 64<<10) }

// Zero tokens: unknown.
func (s *Server) tooLong(param string, tokens int, format string, args ...any) error {
	return &engine.RequestError{Param: param, TooLong: true, Tokens: tokens, Context: s.engine.Context(), Message: fmt.Sprintf(format, args...)}
}

// whole adds the closing token, if the model wants one. A text that will be cut has no limit.
func (s *Server) whole(ctx context.Context, param, text string, cut bool) (ids []int32, err error) {
	if cut {
		ids, err = s.encodeMost(ctx, param, text, anyLength)
	} else {
		ids, err = s.encode(ctx, param, text)
	}
	if err != nil {
		return nil, err
	}
	if end, add := s.engine.Tokenizer().End(); add && (len(ids) == 0 || ids[len(ids)-1] != end) {
		ids = append(ids, end)
	}
	return ids, nil
}

func (s *Server) encodeMost(ctx context.Context, param, text string, most int) ([]int32, error) {
	ids, err := s.plain(ctx, param, text, true, most)
	if err != nil {
		return nil, err
	}
	if bos, add := s.engine.Tokenizer().BOS(); add && (len(ids) == 0 || ids[0] != bos) {
		ids = append([]int32{bos}, ids...)
	}
	return ids, nil
}

const anyLength = math.MaxInt

// plain is encodeMost without the beginning-of-text token.
func (s *Server) plain(ctx context.Context, param, text string, special bool, most int) ([]int32, error) {
	tok := s.engine.Tokenizer()
	if n := tok.Bytes(text); n > tokenizer.MaxText {
		form := ""
		if n > len(text) {
			form = " in Unicode's normalization form C"
		}
		return nil, s.tooLong(param, 0, "the text has %d bytes%s, of which at most %d are encoded. This model's maximum context length is %d tokens: shorten it", n, form, tokenizer.MaxText, s.engine.Context())
	}
	ids, err := tok.EncodeWithin(ctx, text, special, most)
	if errors.Is(err, tokenizer.ErrTooMany) {
		return nil, s.tooLong(param, most+1, "the text has more than %d tokens. This model's maximum context length is %d tokens: shorten it", most, s.engine.Context())
	}
	return ids, err
}
