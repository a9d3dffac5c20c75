package worker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/rouse-dev/rouse/engine/sample"
)

// Output is the result of a step.
type Output struct {
	Step uint64 `json:"step"`
	// Busy is the worker's time; on the wire in whole microseconds.
	Busy time.Duration `json:"busy,omitempty"`
	// Error, if not "", is why the step failed; there are no items.
	Error string `json:"error,omitempty"`
	Items []Out  `json:"items,omitempty"`

	choices []sample.Choice
	tops    []sample.Alternative
	floats  []float32
}

// Out is a sequence's result.
type Out struct {
	ID uint64 `json:"id"`
	// Tokens were chosen, in order, with log probabilities if Logprobs.
	Tokens   []sample.Choice `json:"tokens,omitempty"`
	Logprobs bool            `json:"logprobs,omitempty"`
	// Scores are of prompt tokens from position ScoresFrom on.
	ScoresFrom int             `json:"scores_from,omitempty"`
	Scores     []sample.Choice `json:"scores,omitempty"`
	Vector     []float32       `json:"vector,omitempty"`
	// Error, if not "", is why the sequence failed.
	Error string `json:"error,omitempty"`
}

const (
	outTokens byte = 1 << iota
	outLogprobs
	outScores
	outVector
	outError
)

func (o *Out) flags() (f byte) {
	if len(o.Tokens) > 0 {
		f |= outTokens
	}
	if o.Logprobs {
		f |= outLogprobs
	}
	if len(o.Scores) > 0 {
		f |= outScores
	}
	if len(o.Vector) > 0 {
		f |= outVector
	}
	if o.Error != "" {
		f |= outError
	}
	return f
}

const maxChoices = 1 << 21

// AppendOutput appends an output's payload.
func AppendOutput(dst []byte, o *Output) []byte {
	dst = binary.AppendUvarint(dst, o.Step)
	dst = binary.AppendUvarint(dst, uint64(max(o.Busy, 0)/time.Microsecond))
	dst = appendText(dst, o.Error)
	dst = binary.AppendUvarint(dst, uint64(len(o.Items)))
	last := uint64(0)
	for i := range o.Items {
		dst = appendID(dst, o.Items[i].ID, &last)
		dst = appendOut(dst, &o.Items[i])
	}
	return dst
}

func appendOut(dst []byte, o *Out) []byte {
	flags := o.flags()
	dst = append(dst, flags)
	if flags&outTokens != 0 {
		dst = appendChoices(dst, o.Tokens, o.Logprobs)
	}
	if flags&outScores != 0 {
		dst = binary.AppendUvarint(dst, uint64(o.ScoresFrom))
		dst = appendChoices(dst, o.Scores, true)
	}
	if flags&outVector != 0 {
		dst = binary.AppendUvarint(dst, uint64(len(o.Vector)))
		for _, f := range o.Vector {
			dst = appendFloat(dst, f)
		}
	}
	if flags&outError != 0 {
		dst = appendText(dst, o.Error)
	}
	return dst
}

func appendChoices(dst []byte, choices []sample.Choice, logprobs bool) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(choices)))
	for i := range choices {
		c := &choices[i]
		dst = binary.AppendUvarint(dst, uint64(uint32(c.Token)))
		if !logprobs {
			continue
		}
		dst = appendFloat(dst, c.Logprob)
		dst = binary.AppendUvarint(dst, uint64(len(c.Top)))
		for _, a := range c.Top {
			dst = binary.AppendUvarint(dst, uint64(uint32(a.Token)))
			dst = appendFloat(dst, a.Logprob)
		}
	}
	return dst
}

func appendFloat(dst []byte, f float32) []byte {
	return binary.LittleEndian.AppendUint32(dst, math.Float32bits(f))
}

// DecodeOutput reuses o's memory. o keeps nothing of payload.
func DecodeOutput(payload []byte, o *Output) error {
	r := reader{b: payload}
	o.choices, o.tops, o.floats, o.Items = o.choices[:0], o.tops[:0], o.floats[:0], o.Items[:0]
	o.Step = r.uvarint()
	o.Busy = time.Duration(r.size(math.MaxInt32)) * time.Microsecond
	o.Error = string(r.bytes(r.count(1)))
	n := r.count(2)
	if n > MaxItems {
		r.fail("%d items: at most %d are allowed", n, MaxItems)
		n = 0
	}
	last := uint64(0)
	o.Items = slices.Grow(o.Items, n)[:n]
	for i := 0; i < n && r.err == nil; i++ {
		out := &o.Items[i]
		*out = Out{}
		out.ID = r.id(&last)
		o.readOut(&r, out)
	}
	if o.Error != "" && n > 0 {
		r.fail("an error and %d items", n)
	}
	if err := r.end(); err != nil {
		return fmt.Errorf("decode an output: %w", err)
	}
	return nil
}

func (o *Output) readOut(r *reader, out *Out) {
	flags := r.byte()
	out.Logprobs = flags&outLogprobs != 0
	if flags&outTokens != 0 {
		out.Tokens = o.readChoices(r, out.Logprobs)
	}
	if flags&outScores != 0 {
		out.ScoresFrom = r.size(MaxPositions)
		out.Scores = o.readChoices(r, true)
	}
	if flags&outVector != 0 {
		at := len(o.floats)
		for range r.count(4) {
			o.floats = append(o.floats, r.float())
		}
		out.Vector = o.floats[at:len(o.floats):len(o.floats)]
	}
	if flags&outError != 0 {
		out.Error = string(r.bytes(r.count(1)))
	}
	if flags>>5 != 0 || out.flags() != flags {
		r.fail("sequence %d: %w", out.ID, errFlags)
	}
}

var errFlags = errors.New("its flags contradict what follows")

func (o *Output) readChoices(r *reader, logprobs bool) []sample.Choice {
	least := 1
	if logprobs {
		least = 6
	}
	at := len(o.choices)
	n := r.count(least)
	if at+n > maxChoices {
		r.fail("more than %d tokens", maxChoices)
		n = 0
	}
	for range n {
		c := sample.Choice{Token: r.int32()}
		if logprobs {
			c.Logprob = r.float()
			top := len(o.tops)
			for range r.count(5) {
				o.tops = append(o.tops, sample.Alternative{Token: r.int32(), Logprob: r.float()})
			}
			if len(o.tops) > top {
				c.Top = o.tops[top:len(o.tops):len(o.tops)]
			}
		}
		o.choices = append(o.choices, c)
	}
	return o.choices[at:len(o.choices):len(o.choices)]
}
