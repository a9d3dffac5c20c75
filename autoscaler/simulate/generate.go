package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Load is the arrival process of a function's requests.
type Load string

// Loads.
const (
	// Bursty is a Markov-modulated Poisson process: sessions of some minutes with a request every few seconds.
	Bursty Load = "bursty"
	// Diurnal is a Poisson process whose rate is a cosine with its maximum at 14:00 and a tenth of that at 2:00.
	Diurnal Load = "diurnal"
	// Steady is a Poisson process.
	Steady Load = "steady"
	// Cron is batches of requests at equal distances.
	Cron Load = "cron"
	// Office is bursty in the function's own working hours of five days in seven.
	Office Load = "office"
	// Mix is bursty, diurnal, cron and steady functions in turn.
	Mix Load = "mix"
)

// Loads has all loads.
var Loads = []Load{Mix, Bursty, Diurnal, Steady, Cron, Office}

// Shape configures [Generate]. Zero fields take the default.
type Shape struct {
	// Default 12.
	Functions int `flag:"functions" least:"1" help:"number of models"`
	// Default 24 h.
	Length time.Duration
	// Default Mix.
	Load Load `flag:"load" help:"how requests come: mix, bursty, diurnal, steady, cron or office"`
	// Rate is requests per hour, of all functions together. Default 50 for each.
	Rate float64 `flag:"rate" help:"requests in an hour, of all models together (default: 50 for each)"`
	// Zipf: the kth function gets a share of 1/k^Zipf. Default 1; below 0: even.
	Zipf float64 `flag:"zipf" help:"the kth model gets a share of 1/k^<s>; 0 spreads them evenly"`
	Seed uint64
}

// Medians of log-normally distributed tokens, near those of Azure's conversation trace of 2023.
const (
	medianPrompt = 1000
	medianOutput = 130
)

func (s Shape) withDefaults() Shape {
	s.Functions = cmp.Or(s.Functions, 12)
	s.Length = cmp.Or(s.Length, 24*time.Hour)
	s.Load = cmp.Or(s.Load, Mix)
	s.Rate = cmp.Or(s.Rate, 50*float64(s.Functions))
	s.Zipf = cmp.Or(s.Zipf, 1)
	return s
}

func (s Shape) validate() error {
	var errs []error
	if s.Functions < 1 || s.Functions > 10000 {
		errs = append(errs, fmt.Errorf("functions: want 1 to 10000 (have %d)", s.Functions))
	}
	if s.Length <= 0 || s.Length > mostTime {
		errs = append(errs, fmt.Errorf("length: want more than 0 and at most a year (have %s)", s.Length))
	}
	if !(s.Rate > 0 && s.Rate*s.Length.Hours() <= mostRows) {
		errs = append(errs, fmt.Errorf("rate: want more than 0 and at most %d requests in all (have %g in an hour for %s)", mostRows, s.Rate, s.Length))
	}
	if !slices.Contains(Loads, s.Load) {
		errs = append(errs, fmt.Errorf("load %q: want one of %v", s.Load, Loads))
	}
	if s.Zipf > 10 || math.IsNaN(s.Zipf) {
		errs = append(errs, fmt.Errorf("zipf: want an exponent of at most 10 (have %g)", s.Zipf))
	}
	return errors.Join(errs...)
}

// Generate returns the trace of s, always the same. Each function has its own random source, so that one more changes
// no other.
func Generate(s Shape) (Trace, error) {
	s = s.withDefaults()
	if err := s.validate(); err != nil {
		return nil, err
	}
	shares := make([]float64, s.Functions)
	sum := 0.0
	for k := range shares {
		shares[k] = math.Pow(float64(k+1), -max(0, s.Zipf))
		sum += shares[k]
	}
	var t Trace
	for k, share := range shares {
		g := generator{Shape: s, rng: rand.New(rand.NewPCG(s.Seed, uint64(k)+1)), rate: s.Rate * share / sum / 3600}
		load := s.Load
		if load == Mix {
			load = []Load{Bursty, Diurnal, Bursty, Cron, Bursty, Steady}[k%6]
		}
		for _, at := range g.times(load) {
			t = append(t, Arrival{At: at, Model: modelName(k), Prompt: g.tokens(medianPrompt, 1.0), Output: g.tokens(medianOutput, 0.8)})
		}
	}
	slices.SortStableFunc(t, func(a, b Arrival) int { return cmp.Compare(a.At, b.At) })
	return t, nil
}

type generator struct {
	Shape
	rng  *rand.Rand
	rate float64 // per second
}

func (g *generator) times(load Load) []time.Duration {
	switch load {
	case Bursty:
		return g.bursty()
	case Cron:
		return g.cron()
	case Office:
		return g.office()
	case Diurnal:
		return g.thin(1.1/0.605, func(at float64) float64 {
			hour := math.Mod(at/3600, 24)
			return (0.605 + 0.495*math.Cos((hour-14)/24*2*math.Pi)) / 0.605
		})
	}
	return g.thin(1, func(float64) float64 { return 1 })
}

// thin returns a Poisson process with the mean rate times factor(at), at most most.
func (g *generator) thin(most float64, factor func(at float64) float64) []time.Duration {
	var ts []time.Duration
	for at := g.gap(g.rate * most); at < g.Length.Seconds(); at += g.gap(g.rate * most) {
		if g.rng.Float64()*most < factor(at) {
			ts = append(ts, seconds(at))
		}
	}
	return ts
}

// Sessions of bursty loads: a request every 12 s for 5 minutes on average, or faster if the mean rate requires it.
const (
	sessionLength = 300.0
	sessionRate   = 1.0 / 12
)

// bursty alternates between sessions and pauses, both exponentially distributed.
func (g *generator) bursty() []time.Duration {
	within := max(sessionRate, 3*g.rate)
	share := g.rate / within // of the time in sessions
	pause := sessionLength * (1 - share) / share
	end := g.Length.Seconds()
	var ts []time.Duration
	at := 0.0
	if g.rng.Float64() >= share {
		at = g.gap(1 / pause)
	}
	for at < end {
		until := at + g.gap(1/sessionLength)
		for at += g.gap(within); at < min(until, end); at += g.gap(within) {
			ts = append(ts, seconds(at))
		}
		at = until + g.gap(1/pause)
	}
	return ts
}

func (g *generator) office() []time.Duration {
	const day = 24.0
	begin, length := 7+3*g.rng.Float64(), 8+2*g.rng.Float64()
	at := *g
	at.rate = g.rate * day / length * 7 / 5
	at.Length = seconds(3600 * length)
	var ts []time.Duration
	for d := 0; float64(d)*day < g.Length.Hours(); d++ {
		if d%7 >= 5 {
			continue
		}
		from := seconds(3600*(float64(d)*day+begin) + 600*g.rng.NormFloat64())
		for _, t := range at.bursty() {
			if from+t < g.Length {
				ts = append(ts, from+t)
			}
		}
	}
	return ts
}

func (g *generator) cron() []time.Duration {
	const batch = 8
	period := batch / g.rate
	var ts []time.Duration
	for at := g.rng.Float64() * period; at < g.Length.Seconds(); at += period {
		for range batch {
			if t := at + 3*g.rng.Float64(); t < g.Length.Seconds() {
				ts = append(ts, seconds(t))
			}
		}
	}
	slices.Sort(ts)
	return ts
}

// gap is exponentially distributed.
func (g *generator) gap(rate float64) float64 { return g.rng.ExpFloat64() / rate }

// tokens is log-normally distributed, from 1 to 32768.
func (g *generator) tokens(median int, sigma float64) int {
	return int(min(32768, max(1, math.Round(float64(median)*math.Exp(sigma*g.rng.NormFloat64())))))
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
