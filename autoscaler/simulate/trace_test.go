package simulate

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
)

// exponential is a trace of one model with Poisson arrivals and exponentially
// distributed lengths.
func exponential(n int, rate, tokens float64) Trace {
	rng := rand.New(rand.NewPCG(1, 2))
	at := 0.0
	t := make(Trace, n)
	for k := range t {
		at += rng.ExpFloat64() / rate
		t[k] = Arrival{At: seconds(at), Model: "q", Output: 1 + int(rng.ExpFloat64()*(tokens-0.5))}
	}
	return t
}

func TestReadTrace(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     Trace
	}{
		{"own", "time,model,prompt_tokens,output_tokens\n1.5,a,10,20\n2m,b,0,1\n",
			Trace{{0, "a", 10, 20}, {118500 * time.Millisecond, "b", 0, 1}}},
		{"columns in another order, with a mark and further ones", "\xef\xbb\xbfmodel,output_tokens,note,Time,prompt_tokens\r\na,20,x,3,10\r\n",
			Trace{{0, "a", 10, 20}}},
		{"Azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n",
			Trace{{0, "m000", 374, 44}, {4314579 * time.Microsecond, "m001", 396, 109}}},
		{"Azure 2024", "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n",
			Trace{{0, "m000", 2162, 5}}},
		{"BurstGPT", "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n45,ChatGPT,1087,0,1087,Conversation log\n118,GPT-4,417,276,693,API log\n",
			Trace{{0, "ChatGPT", 472, 18}, {113 * time.Second, "GPT-4", 417, 276}}},
		{"out of order", "time,model,prompt_tokens,output_tokens\n5,a,1,1\n3,b,1,1\n",
			Trace{{0, "b", 1, 1}, {2 * time.Second, "a", 1, 1}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ReadTrace(strings.NewReader(c.in), 2)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestReadTraceRefuses(t *testing.T) {
	const head = "time,model,prompt_tokens,output_tokens\n"
	for _, c := range []struct{ in, want string }{
		{"", "the trace is empty"},
		{head, "no requests"},
		{"a,b,c\n1,2,3\n", "line 1: the header is"},
		{"time,prompt_tokens,output_tokens\n1,2,3\n", "line 1: the header is"},
		{head + "1,a,10,20\nsoon,a,10,20\n", `line 3: time "soon"`},
		{head + "1,a,-1,20\n", `line 2: prompt tokens "-1"`},
		{head + "1,a,1,1.5\n", `line 2: output tokens "1.5"`},
		{head + "1,a,1,NaN\n", `line 2: output tokens "NaN"`},
		{head + "NaN,a,1,1\n", `line 2: time "NaN"`},
		{head + "1e300,a,1,1\n", `line 2: time "1e300"`},
		{head + "1,,1,1\n", `line 2: model ""`},
		{head + "1,a,1\n", "line 2"},
		{head + "1,a,1,1\n1e9,a,1,1\n", "line 3: it is"},
		{head + "1,\"a,1,1\n", "line"},
	} {
		if _, err := ReadTrace(strings.NewReader(c.in), 1); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want %q", c.in, err, c.want)
		}
	}
}

func FuzzReadTrace(f *testing.F) {
	f.Add("time,model,prompt_tokens,output_tokens\n1,a,1,1\n")
	f.Add("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n")
	f.Fuzz(func(t *testing.T, in string) {
		trace, err := ReadTrace(strings.NewReader(in), 3)
		if err != nil {
			return
		}
		for k, a := range trace {
			if a.At < 0 || k > 0 && a.At < trace[k-1].At || a.Prompt < 0 || a.Output < 0 || a.Model == "" {
				t.Fatalf("%q gives %+v at %d", in, a, k)
			}
		}
	})
}

func TestWriteAndReadAgain(t *testing.T) {
	want, err := Generate(Shape{Functions: 3, Length: time.Hour, Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := want.Write(&b); err != nil {
		t.Fatal(err)
	}
	got, err := ReadTrace(&b, 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Fatalf("%d requests, want %d", len(got), len(want))
	}
	for k := range want {
		late := want[k].At - want[0].At - got[k].At
		if late.Abs() > 2*time.Millisecond {
			t.Fatalf("request %d is at %v, want %v", k, got[k].At, want[k].At-want[0].At)
		}
	}
}

func TestGenerate(t *testing.T) {
	for _, load := range Loads {
		s := Shape{Functions: 10, Length: 200 * time.Hour, Load: load, Rate: 400, Seed: 1}
		trace, err := Generate(s)
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := Generate(s); !reflect.DeepEqual(trace, again) {
			t.Errorf("%s: the same shape gives another trace", load)
		}
		counts := map[string]float64{}
		prompts := 0
		for k, a := range trace {
			counts[string(a.Model)]++
			if k > 0 && a.At < trace[k-1].At || a.At > s.Length || a.Output < 1 {
				t.Fatalf("%s: request %d is %+v", load, k, a)
			}
			if a.Prompt > 1000 {
				prompts++
			}
		}
		near(t, string(load)+": requests", float64(len(trace)), 80_000, 8000)
		near(t, string(load)+": the share of prompts above the median", float64(prompts)/float64(len(trace)), 0.5, 0.02)
		// Zipf: the first has twice the second's share, and ten times the last's.
		near(t, string(load)+": the first over the second", counts["m000"]/counts["m001"], 2, 0.5)
	}
	// Bursty means that counts of a window vary more than a Poisson process' would; cron that they hardly do.
	spread := func(load Load) float64 {
		trace, err := Generate(Shape{Functions: 1, Length: 400 * time.Hour, Load: load, Rate: 30, Seed: 2})
		if err != nil {
			t.Fatal(err)
		}
		n := make([]float64, 800)
		for _, a := range trace {
			n[min(799, int(a.At/(30*time.Minute)))]++
		}
		mean, sum := float64(len(trace))/800, 0.0
		for _, v := range n {
			sum += (v - mean) * (v - mean)
		}
		return sum / 800 / mean // 1 for Poisson
	}
	near(t, "the dispersion of steady", spread(Steady), 1, 0.2)
	if b := spread(Bursty); b < 4 || math.IsNaN(b) {
		t.Errorf("the dispersion of bursty is %g, want 4 or more", b)
	}
	if d := spread(Diurnal); d < 2 {
		t.Errorf("the dispersion of diurnal is %g, want 2 or more", d)
	}
}

func TestGenerateRefuses(t *testing.T) {
	for _, s := range []Shape{{Functions: -1}, {Length: -1}, {Rate: -1}, {Rate: 1e12}, {Load: "wild"}, {Zipf: math.NaN()}, {Rate: math.NaN()}} {
		if _, err := Generate(s); err == nil {
			t.Errorf("%+v is taken", s)
		}
	}
}

func TestSVG(t *testing.T) {
	trace, err := Generate(Shape{Functions: 30, Length: time.Hour, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	trace[0].Model = `<a & "b">`
	cfg := Config{Devices: 40, Record: true}.WithDefaults(trace)
	var results []Result
	for _, name := range All {
		r, err := Run(t.Context(), cfg, trace, time.Hour, Policy{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		results = append(results, r)
	}
	var b bytes.Buffer
	if err := SVG(&b, cfg, results); err != nil {
		t.Fatal(err)
	}
	wellFormed(t, b.Bytes())
	for _, want := range []string{"&lt;a &amp;", ">rouse<", ">random<", "GPU-hours", "and 8 more GPUs", "more, in the same colours"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the picture lacks %q", want)
		}
	}
}

// wellFormed fails unless b is XML.
func wellFormed(t *testing.T, b []byte) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(b))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
