package runtime

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/api"
)

// Answer is a server's answer to the canary: a fixed prompt with greedy sampling, to which a healthy model answers the same before and
// after a sleep. It survives JSON. The zero value is no answer, which is compared with nothing.
type Answer struct {
	// By is how the server was asked.
	By string `json:"by,omitempty"`
	// Text is the generated text.
	Text string `json:"text,omitempty"`
	// Numbers are the first of an embedding, a score, or the log probabilities of the most likely tokens at each generated position.
	Numbers []float64 `json:"numbers,omitempty"`
}

const (
	// canaryPrompt has an answer that every language model is sure of, so that the order of additions does not change it. It is for
	// models with a short context; others get [longPrompt].
	canaryPrompt = "1 2 3 4 5 6"
	// canaryProbs is the number of most likely tokens that count at each position.
	canaryProbs = 4
	// canaryDistance is the mean difference, in nats, from which log probabilities differ. Logits in bfloat16 differ by up to 0.25 with
	// the order of additions, but few of them by that much.
	canaryDistance = 0.25
	// canaryNumbers is how many numbers of an answer are compared.
	canaryNumbers = 16
	// canaryText bounds the compared bytes of a text, so that a long answer does not fill logs and notes.
	canaryText = 1 << 10
	// canaryTolerance is the share of the largest number by which numbers may differ: a sum in another order differs by less, random
	// numbers by more.
	canaryTolerance = 0.05
)

// longPrompt has more than the 128 tokens of the longest common block of a KV cache. So a stale block that survived a sleep is found
// again, with whatever is in its memory now.
var longPrompt = strings.Repeat("1 2 3 4 5 6 7 8 9 ", 15) + canaryPrompt

// Known reports whether there is an answer.
func (a Answer) Known() bool { return a.By != "" }

// inText returns an answer from a text, inNumbers from numbers, both cut to the compared length.
func inText(by, text string) Answer {
	if len(text) > canaryText {
		text = strings.ToValidUTF8(text[:canaryText], "") // JSON would change half a character
	}
	return Answer{By: by, Text: strings.Clone(text)}
}

func inNumbers(by string, numbers []float64) Answer {
	return Answer{By: by, Numbers: slices.Clone(numbers[:min(len(numbers), canaryNumbers)])}
}

// Agrees reports whether b is the same answer. Numbers may differ by a tolerance: for a completion in their mean, else each.
func (a Answer) Agrees(b Answer) bool {
	if a.By != b.By || a.Text != b.Text || len(a.Numbers) != len(b.Numbers) {
		return false
	}
	if strings.HasSuffix(a.By, "/completions") {
		sum := 0.0
		for i, v := range a.Numbers {
			sum += math.Abs(v - b.Numbers[i])
		}
		return sum <= canaryDistance*float64(len(a.Numbers))
	}
	largest := 0.0
	for _, v := range slices.Concat(a.Numbers, b.Numbers) {
		largest = max(largest, math.Abs(v))
	}
	for i, v := range a.Numbers {
		if math.Abs(v-b.Numbers[i]) > canaryTolerance*largest {
			return false
		}
	}
	return true
}

// String returns the answer for people.
func (a Answer) String() string {
	switch {
	case !a.Known():
		return "nothing"
	case len(a.Numbers) == 0:
		return quote(a.Text)
	case a.Text != "":
		return fmt.Sprintf("%s %.4g", quote(a.Text), a.Numbers)
	}
	return fmt.Sprintf("%.4g", a.Numbers)
}

// canary asks the server the canary, as the model itself or as one of its adapters: a model of that name, or lora for SGLang. If the
// server refuses every form of it, or the canary is off, it gets a probe, and the answer is empty.
func (s *server) canary(ctx context.Context, e api.Endpoint, adapter api.ModelName, lora string) (Answer, error) {
	if s.cfg.CanaryTokens <= 0 {
		return Answer{}, s.Probe(ctx, e)
	}
	q := question{model: string(adapter), lora: lora, tokens: s.cfg.CanaryTokens}
	if adapter == "" {
		var err error
		if q.model, err = s.at(ctx, s.client, e); err != nil {
			return Answer{}, err
		}
	}
	return s.client.examine(ctx, e, q)
}

// examine asks the canary, and less of it if the server refuses: it may have a short context, or report no probabilities.
func (c *client) examine(ctx context.Context, e api.Endpoint, q question) (Answer, error) {
	for _, q.prompt = range []string{longPrompt, canaryPrompt} {
		for _, q.probs = range []int{canaryProbs, 0} {
			if answer, err := c.show(ctx, e, q); !refused(err) {
				return answer, err
			}
		}
	}
	q.prompt, q.tokens = probePrompt, 1
	_, err := c.show(ctx, e, q)
	return Answer{}, err
}

// refused reports whether err is a server's refusal of the request itself.
func refused(err error) bool {
	var status *statusError
	return errors.As(err, &status) && (status.status == http.StatusBadRequest || status.status == http.StatusUnprocessableEntity)
}
