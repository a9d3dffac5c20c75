package rhythm

import (
	"encoding/base64"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// TestTextAndParse: what a restart keeps foresees the same, to a millisecond.
func TestTextAndParse(t *testing.T) {
	for name, gap := range map[string]time.Duration{"ten minutes": 10 * time.Minute, "a day": 24 * time.Hour} {
		var r Rhythm
		at := start
		for k := range 70 {
			at = start.Add(time.Duration(k)*gap + time.Duration(k%3)*time.Second)
			r.Visit(at, gap, pause, widest)
		}
		text := r.Text()
		if len(text) > MostText {
			t.Fatalf("%s: %d bytes", name, len(text))
		}
		got, err := Parse(text, at.Add(time.Second))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got.Text() != text {
			t.Errorf("%s: what was read is written as another", name)
		}
		w, known := r.Next(at.Add(time.Second))
		v, again := got.Next(at.Add(time.Second))
		if !known || !again || v.From.Sub(w.From).Abs() > time.Millisecond || v.Until.Sub(w.Until).Abs() > time.Millisecond || v.Times != w.Times || !got.Trusted() {
			t.Errorf("%s: %v %t, and after it %v %t, trusted %t", name, w, known, v, again, got.Trusted())
		}
		for k := range slots {
			when := at.Add(time.Duration(k) * 30 * time.Minute)
			if r.Likely(when) != got.Likely(when) {
				t.Errorf("%s: at %s it was likely: %t, is %t", name, when, r.Likely(when), got.Likely(when))
			}
		}
		// A restart that lasts over the window says nothing of it.
		late, err := Parse(text, w.Until.Add(time.Hour))
		if err != nil || late.Known || late.Judged() != r.Judged() {
			t.Errorf("%s: after the window %v, known %t, %d judged", name, err, late.Known, late.Judged())
		}
	}
	if (&Rhythm{}).Text() != "" || (*Rhythm)(nil).Text() != "" {
		t.Error("a rhythm that has learned nothing has a text")
	}
	if r, err := Parse("", start); r != nil || err != nil {
		t.Errorf("of nothing %v, %v", r, err)
	}
}

// TestAllThatIsLearnedIsRead: after each visit, whatever came before it, what is written is read, and is written the same.
func TestAllThatIsLearnedIsRead(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(11, seed))
		var r Rhythm
		at := start
		for k := range 100 {
			idle := time.Duration(random.ExpFloat64() * float64(time.Hour))
			if seed%2 == 0 {
				idle = 10*time.Minute + time.Duration(random.Int64N(int64(3*time.Second)))
			}
			if random.IntN(20) == 0 {
				idle = time.Duration(random.Int64N(int64(pause)))
			}
			at = at.Add(idle)
			r.Visit(at, idle, pause, widest)
			text := r.Text()
			got, err := Parse(text, at)
			if err != nil {
				t.Fatalf("seed %d, after %d visits: %v", seed, k+1, err)
			}
			if got.Known == r.Known && got.Text() != text {
				t.Fatalf("seed %d, after %d visits: what was read is written as another", seed, k+1)
			}
		}
	}
}

// TestParseRefuses: what is cut, changed, of another version, or of a time to come.
func TestParseRefuses(t *testing.T) {
	var r Rhythm
	visit(&r, 0, 10*time.Minute, 20*time.Minute, 30*time.Minute, 40*time.Minute)
	text, now := r.Text(), start.Add(time.Hour)
	raw, _ := base64.RawStdEncoding.DecodeString(text)
	for k := range raw {
		bad := append([]byte(nil), raw...)
		bad[k] ^= 0x10
		if _, err := Parse(base64.RawStdEncoding.EncodeToString(bad), now); err == nil {
			t.Errorf("byte %d is another one, and it is read", k)
		}
		if _, err := Parse(base64.RawStdEncoding.EncodeToString(raw[:k]), now); err == nil && k > 0 {
			t.Errorf("it is read though only %d bytes are there", k)
		}
	}
	for _, bad := range []string{"?", "AAAA", strings.Repeat("A", MostText+1)} {
		if _, err := Parse(bad, now); err == nil {
			t.Errorf("%.10q is read", bad)
		}
	}
	if _, err := Parse(text, start); err == nil {
		t.Error("visits that are to come are believed")
	}
}

// FuzzParse: nothing that is read can't have been learned, and it can be gone on with. The checksum is put right, as who tampers would.
func FuzzParse(f *testing.F) {
	var r Rhythm
	visit(&r, 0, 10*time.Minute, 20*time.Minute, 30*time.Minute, 40*time.Minute)
	raw, _ := base64.RawStdEncoding.DecodeString(r.Text())
	f.Add(raw[1 : len(raw)-4])
	f.Fuzz(func(t *testing.T, b []byte) {
		var r Rhythm
		if !r.parse(b) {
			return
		}
		if w, known := r.Made(); known && (!w.Until.After(w.From) || w.Period <= 0) || len(r.Visits) > mostVisits {
			t.Fatalf("%+v is believed", r)
		}
		at := time.Unix(0, r.Visits[len(r.Visits)-1])
		for range 5 {
			at = at.Add(10 * time.Minute)
			r.Likely(at)
			r.NextLikely(at)
			r.Visit(at, 10*time.Minute, pause, widest)
		}
		if len(r.Text()) > MostText {
			t.Fatalf("%d bytes", len(r.Text()))
		}
	})
}
