package sample_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/engine/sample"
)

// logits returns the logits of a distribution. Softmax of ln p is p.
func logits(probabilities ...float64) []float32 {
	l := make([]float32, len(probabilities))
	for i, p := range probabilities {
		l[i] = float32(math.Log(p))
	}
	return l
}

// frequencies draws n tokens, each from the same logits, and returns each one's share.
func frequencies(t *testing.T, p sample.Params, from []float32, n int) []float64 {
	t.Helper()
	count := make([]float64, len(from))
	for i := range n {
		seed := int64(i)
		p.Seed = &seed
		c, err := sample.New(p, 0).Next(from, nil, nil, i%3, nil)
		if err != nil {
			t.Fatal(err)
		}
		count[c.Token]++
	}
	for i := range count {
		count[i] /= float64(n)
	}
	return count
}

// TestTruncation draws from 0.5, 0.25, 0.15, 0.1 and compares the shares with
// the rest after each truncation, computed by hand.
func TestTruncation(t *testing.T) {
	from := logits(0.1, 0.5, 0.15, 0.25)
	for _, test := range []struct {
		name   string
		params sample.Params
		want   []float64
	}{
		{"nothing cut", sample.Params{Temperature: 1}, []float64{0.1, 0.5, 0.15, 0.25}},
		{"ones cut nothing", sample.Params{Temperature: 1, TopP: 1, RepetitionPenalty: 1}, []float64{0.1, 0.5, 0.15, 0.25}},
		{"top-k 1", sample.Params{Temperature: 1, TopK: 1}, []float64{0, 1, 0, 0}},
		{"top-k 2 keeps 0.5 and 0.25", sample.Params{Temperature: 1, TopK: 2}, []float64{0, 2. / 3, 0, 1. / 3}},
		{"top-k beyond the vocabulary", sample.Params{Temperature: 1, TopK: 9}, []float64{0.1, 0.5, 0.15, 0.25}},
		{"top-p 0.7 needs two", sample.Params{Temperature: 1, TopP: 0.7}, []float64{0, 2. / 3, 0, 1. / 3}},
		{"top-p 0.8 needs three", sample.Params{Temperature: 1, TopP: 0.8}, []float64{0, 5. / 9, 1.5 / 9, 2.5 / 9}},
		{"tiny top-p keeps one", sample.Params{Temperature: 1, TopP: 1e-9}, []float64{0, 1, 0, 0}},
		{"min-p 0.4 of 0.5 is 0.2", sample.Params{Temperature: 1, MinP: 0.4}, []float64{0, 2. / 3, 0, 1. / 3}},
		{"min-p 1 keeps the best", sample.Params{Temperature: 1, MinP: 1}, []float64{0, 1, 0, 0}},
		{"top-p works on what top-k left: 0.5/0.9 < 0.6", sample.Params{Temperature: 1, TopK: 3, TopP: 0.6}, []float64{0, 2. / 3, 0, 1. / 3}},
		{"top-p works on what top-k left: 0.5/0.75 > 0.6", sample.Params{Temperature: 1, TopK: 2, TopP: 0.6}, []float64{0, 1, 0, 0}},
		{"temperature 1/2 squares", sample.Params{Temperature: 0.5}, []float64{0.01 / 0.345, 0.25 / 0.345, 0.0225 / 0.345, 0.0625 / 0.345}},
		{"min-p after temperature: 0.0625/0.25 < 0.3", sample.Params{Temperature: 0.5, MinP: 0.3}, []float64{0, 1, 0, 0}},
		{"bias of ln 4 makes 0.25 into 1 of 1.75", sample.Params{Temperature: 1, LogitBias: map[int32]float32{3: float32(math.Log(4))}}, []float64{0.1 / 1.75, 0.5 / 1.75, 0.15 / 1.75, 1 / 1.75}},
		{"greedy", sample.Params{TopP: 0.1, Seed: new(int64)}, []float64{0, 1, 0, 0}},
	} {
		t.Run(test.name, func(t *testing.T) {
			const n = 20000
			got := frequencies(t, test.params, from, n)
			for i := range got {
				sigma := math.Sqrt(test.want[i] * (1 - test.want[i]) / n)
				if math.Abs(got[i]-test.want[i]) > 4*sigma {
					t.Errorf("token %d: drawn with share %.4f, want %.4f ± %.4f", i, got[i], test.want[i], 4*sigma)
				}
			}
		})
	}
}

// TestPenalties follows greedy choices whose penalties are computed by hand.
func TestPenalties(t *testing.T) {
	from := []float32{2, 1.5, 1, -1}
	for _, test := range []struct {
		name   string
		params sample.Params
		prompt []int32
		want   []int32
	}{
		{"none", sample.Params{}, []int32{0}, []int32{0, 0, 0}},
		// After one 0 its logit is 2-0.7 = 1.3; after one 1, 1.5-0.7 = 0.8; then 0 stays at 1.3 for ever.
		{"presence counts once", sample.Params{PresencePenalty: 0.7}, []int32{0, 0, 1}, []int32{0, 1, 0, 0, 0}},
		// 2, then 1.5, then 2-0.6=1.4, then 1 vs 0.9 (1) vs 0.8 (0), then 0.9, then 0.8 …
		{"frequency adds up", sample.Params{FrequencyPenalty: 0.6}, []int32{0, 0}, []int32{0, 1, 0, 2, 1, 0}},
		// The prompt's 0 and 3: 2/2 = 1 and -1*2 = -2. So 1 (1.5 → 0.75), then 0 and 2 are equal at 1: 0, which stays at 1.
		{"repetition counts the prompt", sample.Params{RepetitionPenalty: 2}, []int32{0, 3}, []int32{1, 0, 0}},
		{"a reward repeats", sample.Params{FrequencyPenalty: -2, LogitBias: map[int32]float32{3: 3.5}}, nil, []int32{3, 3, 3}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := sample.New(test.params, 0)
			var got []int32
			for range test.want {
				c, err := s.Next(from, test.prompt, got, len(test.prompt)+len(got), nil)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, c.Token)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("tokens (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLogprobsAreRaw checks that reported log probabilities ignore changes of the logits.
func TestLogprobsAreRaw(t *testing.T) {
	p := sample.Params{
		Temperature: 0.3, TopK: 1, RepetitionPenalty: 5, FrequencyPenalty: 1,
		LogitBias: map[int32]float32{2: 50}, Logprobs: true, Top: 2,
	}
	s := sample.New(p, 0)
	for i := range 2 {
		got, err := s.Next(logits(0.1, 0.5, 0.15, 0.25), []int32{1, 2}, []int32{2}[:i], i, []uint64{0b1101})
		if err != nil {
			t.Fatal(err)
		}
		ln := func(x float64) float32 { return float32(math.Log(x)) }
		want := sample.Choice{Token: 2, Logprob: ln(0.15), Top: []sample.Alternative{{Token: 1, Logprob: ln(0.5)}, {Token: 3, Logprob: ln(0.25)}}}
		if diff := cmp.Diff(want, got, approx); diff != "" {
			t.Errorf("choice (-want +got):\n%s", diff)
		}
	}
}

var approx = cmp.Comparer(func(a, b float32) bool { return math.Abs(float64(a-b)) < 1e-5 })

// TestScoreTop checks the list of alternatives against a full sort.
func TestScoreTop(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		l := make([]float32, 1+r.IntN(60))
		for i := range l {
			l[i] = float32(r.IntN(12)) // many equals
		}
		top := r.IntN(sample.MaxTop + 1)
		order := make([]int32, len(l))
		for i := range order {
			order[i] = int32(i)
		}
		slices.SortStableFunc(order, func(a, b int32) int { return int(l[b] - l[a]) })
		got := sample.Score(l, order[0], top)
		var tokens []int32
		sum := 0.0
		for _, a := range got.Top {
			tokens = append(tokens, a.Token)
			sum += math.Exp(float64(a.Logprob))
		}
		want := order[:min(top, len(l))]
		if !slices.Equal(tokens, want) {
			t.Fatalf("top %d of %v: got %v, want %v", top, l, tokens, want)
		}
		if sum > 1.0001 || top >= len(l) && sum < 0.9999 {
			t.Fatalf("top %d of %v: probabilities sum to %v", top, l, sum)
		}
	}
}

// TestSeed checks that draws repeat with the seed, whatever else is sampled in between, and that indices differ.
func TestSeed(t *testing.T) {
	from := make([]float32, 1000)
	run := func(seed int64, index int, noise bool) []int32 {
		p := sample.Params{Temperature: 1, TopK: 900, Seed: &seed}
		s, other := sample.New(p, index), sample.New(sample.Params{Temperature: 2}, 0)
		var tokens []int32
		for i := range 8 {
			if noise {
				if _, err := other.Next(from, nil, nil, i, nil); err != nil {
					t.Fatal(err)
				}
				s = sample.New(p, index) // as after a crash
			}
			c, err := s.Next(from, nil, tokens, i, nil)
			if err != nil {
				t.Fatal(err)
			}
			tokens = append(tokens, c.Token)
		}
		return tokens
	}
	first := run(7, 0, false)
	if again := run(7, 0, true); !slices.Equal(first, again) {
		t.Errorf("same seed: %v, then %v", first, again)
	}
	if slices.Equal(first, run(8, 0, false)) {
		t.Error("seeds 7 and 8 draw the same tokens")
	}
	if slices.Equal(first, run(7, 1, false)) {
		t.Error("indices 0 and 1 draw the same tokens")
	}
}

func TestUnusableLogits(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	made := []int32{0}
	for _, temperature := range []float64{0, 1} {
		for _, test := range []struct {
			logits []float32
			made   []int32
			params sample.Params
			mask   []uint64
			want   error
		}{
			{[]float32{nan, 1}, nil, sample.Params{}, nil, sample.ErrDamaged},
			{[]float32{0, 1, nan}, nil, sample.Params{}, []uint64{2}, sample.ErrDamaged},
			{[]float32{nan, nan}, made, sample.Params{}, nil, sample.ErrDamaged},
			{[]float32{0, inf}, made, sample.Params{}, nil, sample.ErrDamaged},
			{[]float32{0, inf}, nil, sample.Params{}, []uint64{0, 3}, sample.ErrDamaged},
			{[]float32{-inf, 1}, nil, sample.Params{}, nil, nil},
			{[]float32{-inf, -inf}, nil, sample.Params{}, nil, sample.ErrNoToken},
			{[]float32{0, 1}, nil, sample.Params{}, []uint64{0, 3}, sample.ErrNoToken},
			{[]float32{1}, nil, sample.Params{MinTokens: 1, Ends: []int32{0, -1, 99}}, nil, sample.ErrNoToken},
			{[]float32{}, nil, sample.Params{}, nil, sample.ErrNoToken},
		} {
			test.params.Temperature, test.params.TopP = temperature, 0.9
			if c, err := sample.New(test.params, 0).Next(slices.Clone(test.logits), nil, test.made, len(test.made), test.mask); !errors.Is(err, test.want) {
				t.Errorf("temperature %v, logits %v: got %v, %v; want %v", temperature, test.logits, c, err, test.want)
			}
		}
	}
}

func TestValidate(t *testing.T) {
	if err := sample.Default().Validate(10); err != nil {
		t.Errorf("defaults: %v", err)
	}
	for param, p := range map[string]sample.Params{
		"temperature":        {Temperature: -0.1},
		"top_p":              {TopP: 1.1},
		"min_p":              {MinP: math.NaN()},
		"top_k":              {TopK: -1},
		"repetition_penalty": {RepetitionPenalty: -1},
		"presence_penalty":   {PresencePenalty: 2.1},
		"frequency_penalty":  {FrequencyPenalty: math.Inf(1)},
		"top_logprobs":       {Top: sample.MaxTop + 1},
		"logit_bias":         {LogitBias: map[int32]float32{10: 1}},
	} {
		var out *sample.RangeError
		if err := p.Validate(10); !errors.As(err, &out) || out.Param != param {
			t.Errorf("%s out of range: got %v", param, err)
		}
	}
	if err := (sample.Params{LogitBias: map[int32]float32{1: 101}}).Validate(10); err == nil {
		t.Error("a bias of 101 is accepted")
	}
	if err := (sample.Params{RepetitionPenalty: 1e-300}).Validate(10); err == nil {
		t.Error("a repetition penalty that makes any logit infinite is accepted")
	}
}

// FuzzNext checks that any logits and parameters in range give an allowed token, ErrNoToken or ErrDamaged, never a panic.
func FuzzNext(f *testing.F) {
	f.Add(uint64(1), 50, 0.7, 10, 0.9, 0.05, 1.1)
	f.Add(uint64(2), 1, 0.0, 0, 0.0, 0.0, 0.0)
	f.Fuzz(func(t *testing.T, seed uint64, vocab int, temperature float64, k int, topP, minP, repetition float64) {
		p := sample.Params{Temperature: temperature, TopK: k, TopP: topP, MinP: minP, RepetitionPenalty: repetition, Logprobs: true, Top: int(seed % 5)}
		vocab = 1 + int(uint(vocab)%500)
		if p.Validate(vocab) != nil {
			t.Skip()
		}
		r := rand.New(rand.NewPCG(seed, 0))
		l := make([]float32, vocab)
		for i := range l {
			l[i] = float32(r.NormFloat64() * 10)
			if r.IntN(20) == 0 {
				l[i] = float32(math.NaN())
			}
		}
		banned := int32(r.IntN(vocab))
		mask := slices.Repeat([]uint64{^uint64(0)}, (vocab+63)/64)
		mask[banned/64] &^= 1 << (banned % 64)
		s := sample.New(p, 0)
		for i := range 3 {
			before := slices.Clone(l)
			c, err := s.Next(l, []int32{0}, make([]int32, i), i, mask)
			if !slices.EqualFunc(l, before, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }) {
				t.Fatal("the logits have changed")
			}
			if err != nil && !errors.Is(err, sample.ErrNoToken) && !errors.Is(err, sample.ErrDamaged) {
				t.Fatal(err)
			}
			if err == nil && (c.Token == banned || c.Token < 0 || int(c.Token) >= vocab || l[c.Token] != l[c.Token] || c.Logprob > 1e-4) {
				t.Fatalf("chose %+v of %v, %d forbidden", c, l, banned)
			}
		}
	})
}

func BenchmarkNext(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	from := make([]float32, 151936)
	for i := range from {
		from[i] = float32(r.NormFloat64() * 3)
	}
	for name, p := range map[string]sample.Params{
		"greedy":   {},
		"plain":    {Temperature: 1},
		"topp":     {Temperature: 1, TopP: 0.9},
		"topk":     {Temperature: 1, TopK: 40},
		"logprobs": {Logprobs: true, Top: 5},
	} {
		b.Run(name, func(b *testing.B) {
			s := sample.New(p, 0)
			for b.Loop() {
				if _, err := s.Next(from, nil, nil, 0, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
