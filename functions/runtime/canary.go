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

// Answer is a server's answer to the canary: a fixed prompt with greedy sampling, which a healthy model answers alike before and after a
// sleep. The zero value is no answer.
type Answer struct {
	By   string `json:"by,omitempty"`
	Text string `json:"text,omitempty"`
	// Numbers are an embedding's first, a score, or the log probabilities of the most likely tokens at each position.
	Numbers []float64 `json:"numbers,omitempty"`
}

const (
	// canaryPrompt has an answer that language models are sure of, whatever the order of additions. It is for short contexts, see
	// [longPrompt].
	canaryPrompt = "1 2 3 4 5 6"
	canaryProbs  = 4 // compared at each position
	// canaryDistance is a mean, in nats: the order of additions changes few bfloat16 logits by that much.
	canaryDistance = 0.25
	canaryNumbers  = 16      // compared
	canaryText     = 1 << 10 // bytes compared
	// canaryTolerance is a share of the largest number.
	canaryTolerance = 0.05
)

// longPrompt exceeds the longest common KV block, 128 tokens: it hits a stale block that survived a sleep.
var longPrompt = strings.Repeat("1 2 3 4 5 6 7 8 9 ", 15) + canaryPrompt

// Known reports whether there is an answer.
func (a Answer) Known() bool { return a.By != "" }

func inText(by, text string) Answer {
	if len(text) > canaryText {
		text = strings.ToValidUTF8(text[:canaryText], "") // JSON would change half a character
	}
	return Answer{By: by, Text: strings.Clone(text)}
}

func inNumbers(by string, numbers []float64) Answer {
	return Answer{By: by, Numbers: slices.Clone(numbers[:min(len(numbers), canaryNumbers)])}
}

// Agrees reports whether b is the same answer within the tolerance.
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

// canary asks as the model itself or as an adapter: a model of that name, or lora for SGLang.
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

// examine asks less of a server that refuses: it may have a short context, or report no probabilities.
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

func refused(err error) bool {
	var status *statusError
	return errors.As(err, &status) && (status.status == http.StatusBadRequest || status.status == http.StatusUnprocessableEntity)
}
