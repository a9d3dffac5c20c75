package serve

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// encode makes a prompt's text tokens, with the beginning-of-text token where the model wants one and the text has none.
// Where the text has far more tokens than fit, it fails before they are made. param is how the client calls the text.
func (s *Server) encode(ctx context.Context, param, text string) ([]int32, error) {
	if err := s.fits(param, text); err != nil {
		return nil, err
	}
	return s.encodeMost(ctx, param, text, s.counted())
}

// fits refuses a text that is too long for the model's context even if all its tokens were the longest.
func (s *Server) fits(param, text string) error {
	if fewest := s.engine.Tokenizer().Fewest(text); fewest > s.engine.Context() {
		return s.tooLong(param, fewest, "the text has at least %d tokens. This model's maximum context length is %d tokens: shorten it", fewest, s.engine.Context())
	}
	return nil
}

// tooLong is the error for a text of at least so many tokens; 0: nobody knows.
func (s *Server) tooLong(param string, tokens int, format string, args ...any) error {
	return &engine.RequestError{Param: param, TooLong: true, Tokens: tokens, Context: s.engine.Context(), Message: fmt.Sprintf(format, args...)}
}

// counted is up to how many tokens a text that does not fit is counted, so that its error says how long it is.
func (s *Server) counted() int { return max(2*s.engine.Context(), 64<<10) }

// whole makes a text tokens that nothing will follow, with the token that closes it where the model wants one. Of a text that will be
// cut any number is made.
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

// encodeMost is encode of at most most tokens.
func (s *Server) encodeMost(ctx context.Context, param, text string, most int) ([]int32, error) {
	ids, err := s.plain(ctx, param, text, most)
	if err != nil {
		return nil, err
	}
	if bos, add := s.engine.Tokenizer().BOS(); add && (len(ids) == 0 || ids[0] != bos) {
		ids = append([]int32{bos}, ids...)
	}
	return ids, nil
}

// anyLength is the most of a text whose tokens need not fit the model's context.
const anyLength = math.MaxInt

// plain is encodeMost without the beginning-of-text token.
func (s *Server) plain(ctx context.Context, param, text string, most int) ([]int32, error) {
	tok := s.engine.Tokenizer()
	if n := tok.Bytes(text); n > tokenizer.MaxText {
		form := ""
		if n > len(text) {
			form = " in Unicode's normalization form C"
		}
		return nil, s.tooLong(param, 0, "the text has %d bytes%s, of which at most %d are encoded. This model's maximum context length is %d tokens: shorten it", n, form, tokenizer.MaxText, s.engine.Context())
	}
	ids, err := tok.EncodeWithin(ctx, text, true, most)
	if errors.Is(err, tokenizer.ErrTooMany) {
		return nil, s.tooLong(param, most+1, "the text has more than %d tokens. This model's maximum context length is %d tokens: shorten it", most, s.engine.Context())
	}
	return ids, err
}
