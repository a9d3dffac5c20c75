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

// Answer is what a server says to the canary: a fixed prompt, greedy, of which a
// healthy model says the same before and after a sleep. It survives JSON. The zero
// value is none, with which nothing is compared.
type Answer struct {
	// By is how the server was asked.
	By string `json:"by,omitempty"`
	// Text is what was generated.
	Text string `json:"text,omitempty"`
	// Numbers are the first of an embedding, or a score.
	Numbers []float64 `json:"numbers,omitempty"`
}

const (
	// canaryPrompt has an answer that every language model is sure of, so that it does
	// not change with the order of additions; and it is shorter than a block of the KV
	// cache, so that it is computed each time.
	canaryPrompt = "1 2 3 4 5 6"
	// canaryNumbers are those of an embedding that are compared.
	canaryNumbers = 16
	// canaryText bounds the bytes of a text that are compared: whoever answers more than
	// was asked for does not fill logs and notes with it.
	canaryText = 1 << 10
	// canaryTolerance is the share of the largest number by which numbers may differ:
	// a sum in another order differs by less, random numbers by more.
	canaryTolerance = 0.05
)

// Known says whether there is an answer.
func (a Answer) Known() bool { return a.By != "" }

// inText is the answer of a text, inNumbers that of numbers. What is longer than what is
// compared is let go.
func inText(by, text string) Answer {
	if len(text) > canaryText {
		text = strings.ToValidUTF8(text[:canaryText], "") // JSON would change half a character
	}
	return Answer{By: by, Text: strings.Clone(text)}
}

func inNumbers(by string, numbers []float64) Answer {
	return Answer{By: by, Numbers: slices.Clone(numbers[:min(len(numbers), canaryNumbers)])}
}

// Agrees says whether b is the same answer. Numbers may differ by a tolerance.
func (a Answer) Agrees(b Answer) bool {
	if a.By != b.By || a.Text != b.Text || len(a.Numbers) != len(b.Numbers) {
		return false
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

// String is the answer as people read it.
func (a Answer) String() string {
	switch {
	case !a.Known():
		return "nothing"
	case len(a.Numbers) > 0:
		return fmt.Sprintf("%.4g", a.Numbers)
	}
	return quote(a.Text)
}

// canary has the server answer the canary. Where it refuses, or there is to be no
// canary, it is sent a probe, and the answer is none.
func (s *server) canary(ctx context.Context, e api.Endpoint, n *names) (Answer, error) {
	if s.cfg.CanaryTokens <= 0 {
		return Answer{}, s.probe(ctx, e, n)
	}
	model, err := n.at(ctx, s.client, e)
	if err != nil {
		return Answer{}, err
	}
	answer, err := s.client.show(ctx, e, model, canaryPrompt, s.cfg.CanaryTokens)
	if refused(err) {
		return Answer{}, s.client.probe(ctx, e, model)
	}
	return answer, err
}

// refused says whether err is a server's answer that it does not take the request.
func refused(err error) bool {
	var status *statusError
	return errors.As(err, &status) && (status.status == http.StatusBadRequest || status.status == http.StatusUnprocessableEntity)
}
