package simulate

import (
	"cmp"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// TestBoundOfDiurnal works out what is possible at all on the load diurnal, for who knows the rate of each function at each moment exactly, and
// nothing of the times, since those are random. Arrivals see time averages: of the requests that would find their function asleep, awake for a
// share of that time serves that share. So each hour awake saves as many as the rate is then, and the best are bought first. For 5 % more
// GPU-hours nothing near the reduction by 70 % of the p95 can be had that is wanted on loads with a rhythm.
func TestBoundOfDiurnal(t *testing.T) {
	const keep = 1.0 / 60 // hours that an instance stays
	shape := Shape{}.withDefaults()
	type cell struct{ rate, asleep float64 } // of a minute of a function that wakes slowly
	var cells []cell
	var held, cold, slow, sum float64
	for k := range shape.Functions {
		sum += 1 / float64(k+1)
	}
	for k := range shape.Functions {
		m := NewModel("m", Sizes[k%len(Sizes)], 80*api.GiB)
		for minute := range 24 * 60 {
			rate := shape.Rate / float64(k+1) / sum * (0.605 + 0.495*math.Cos((float64(minute)/60-14)/24*2*math.Pi)) / 0.605
			asleep := math.Exp(-rate*keep) / 60
			held += 1.0/60 - asleep
			cold += rate * asleep
			if m.Wake[api.Level1] > 1100*time.Millisecond { // 0.3 of the p95 of these requests, 3.7 s
				slow += rate * asleep
				cells = append(cells, cell{rate, asleep})
			}
		}
	}
	slices.SortFunc(cells, func(a, b cell) int { return cmp.Compare(b.rate, a.rate) })
	saved, spent, least := 0.0, 0.0, math.Inf(1)
	atFive := 0.0
	for _, c := range cells {
		if spent+c.asleep <= 0.05*held {
			atFive = saved + c.rate*c.asleep
		}
		saved, spent = saved+c.rate*c.asleep, spent+c.asleep
		if slow-saved <= 0.05*cold { // then the others determine the p95
			least = min(least, spent/held)
		}
	}
	t.Logf("%.0f GPU-hours, %.0f cold hits of which %.0f wake slowly; 5 %% more saves at most %.0f of those, and what is wanted takes %.0f %% more", held, cold, slow, atFive, 100*least)
	if atFive >= slow-0.05*cold || least < 0.2 {
		t.Errorf("with %.2f more GPU-hours it is possible: then it is to be done", least)
	}
}

// TestBoundOfCron compares what jobs wait for with what they would if all were awake all the time: most of what remains is other
// prompts of their batch, which are read first.
func TestBoundOfCron(t *testing.T) {
	const day = 24 * time.Hour
	trace, err := Generate(Shape{Length: 2 * day, Load: Cron, Seed: 25})
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Devices: 16}
	without, _ := play(t, c, trace, 2*day, Policy{Name: "rouse", NoPrewake: true})
	was := func(k int) bool { return without.answers[k].cold && trace[k].At > day/2 } // what it learns takes some of its periods
	p95 := func(p Policy) float64 {
		w, _ := play(t, c, trace, 2*day, p)
		return quantile(w.firstOf(was), 0.95)
	}
	ours, least := p95(Policy{Name: "rouse"}), p95(Policy{Name: "keepalive", Keep: Forever})
	t.Logf("p95 of cold hits: %.0f ms without foreseeing, %.0f ms with it, %.0f ms if all are awake always", quantile(without.firstOf(was), 0.95), ours, least)
	if ours > 1.1*least {
		t.Errorf("%.0f ms, want at most a tenth more than %.0f ms", ours, least)
	}
}
