package rhythm

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"time"
)

const keptVersion = 1

// MostText bounds the length of [Rhythm.Text].
const MostText = 1200

// Text returns r for a file, some 400 bytes; empty: it has learned nothing.
func (r *Rhythm) Text() string {
	if r == nil || len(r.Visits) == 0 {
		return ""
	}
	b := []byte{keptVersion, byte(len(r.Visits))}
	last := int64(0)
	for _, v := range r.Visits {
		b = binary.AppendVarint(b, ms(v)-last)
		last = ms(v)
	}
	window := [5]int64{}
	if r.Known {
		window = [5]int64{1, ms(r.Window.From.UnixNano()) - last, ms(r.Window.Until.UnixNano()) - last, r.Window.Period.Milliseconds(), int64(r.Window.Times)}
	}
	for _, v := range append(window[:], int64(min(r.Count, 1000)), r.Slot) {
		b = binary.AppendVarint(b, v)
	}
	b = append(b, r.Verdicts)
	for _, share := range r.Often {
		b = append(b, byte(math.Round(255*float64(share))))
	}
	return base64.RawStdEncoding.EncodeToString(binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b)))
}

func ms(ns int64) int64 { return ns / int64(time.Millisecond) }

// Parse parses [Rhythm.Text]; nil for an empty text. A window that is over at now is dropped. Anything learned after
// now, by another clock, is not believed.
func Parse(text string, now time.Time) (*Rhythm, error) {
	if text == "" {
		return nil, nil
	}
	if len(text) > MostText {
		return nil, fmt.Errorf("a rhythm of %d bytes: want at most %d", len(text), MostText)
	}
	b, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("a rhythm: %w", err)
	}
	if len(b) < 6 || crc32.ChecksumIEEE(b[:len(b)-4]) != binary.LittleEndian.Uint32(b[len(b)-4:]) {
		return nil, errors.New("a rhythm is damaged: its checksum is another one")
	}
	if b[0] != keptVersion {
		return nil, fmt.Errorf("a rhythm has the version %d, and this program reads %d", b[0], keptVersion)
	}
	r := &Rhythm{}
	if !r.parse(b[1 : len(b)-4]) {
		return nil, errors.New("a rhythm is not one that was learned")
	}
	if last := time.Unix(0, r.Visits[len(r.Visits)-1]); last.After(now) {
		return nil, fmt.Errorf("a rhythm has a request at %s, which is to come: another clock has seen it", last.UTC().Format(time.DateTime+" MST"))
	}
	r.Known = r.Known && now.Before(r.Window.Until)
	return r, nil
}

// parse reads what follows the version.
func (r *Rhythm) parse(b []byte) bool {
	ok := len(b) > 0
	number := func() int64 {
		v, n := binary.Varint(b)
		if ok = ok && n > 0; ok {
			b = b[n:]
		}
		return v
	}
	const latest = math.MaxInt64 / int64(time.Millisecond) / 2 // sums of two don't overflow
	n := 0
	if ok {
		n, b = int(b[0]), b[1:]
	}
	last := int64(0)
	for k := 0; k < n && ok; k++ {
		v := number()
		if ok = ok && (k == 0 || v >= 0) && v > -latest && v < latest && last+v < latest && last+v > 0; ok {
			last += v
			r.Visits = append(r.Visits, last*int64(time.Millisecond))
		}
	}
	var v [7]int64
	for k := range v {
		v[k] = number()
		ok = ok && v[k] > -latest && v[k] < latest
	}
	if !ok || n == 0 || n > mostVisits || len(b) != 1+slots {
		return false
	}
	r.Known = v[0] == 1
	if r.Known {
		r.Window = Window{From: time.UnixMilli(last + v[1]), Until: time.UnixMilli(last + v[2]), Period: time.Duration(v[3]) * time.Millisecond, Times: int(v[4])}
	}
	r.Count, r.Verdicts = int(v[5]), b[0]
	r.Slot, r.Begun = v[6], true
	for k := range r.Often {
		r.Often[k] = float32(b[1+k]) / 255
	}
	r.count()
	sound := !r.Known || v[2] > v[1] && v[1] > 0 && v[2]-v[1] < int64(24*time.Hour/time.Millisecond) && v[3] > 0 && v[4] >= leastSupport && v[4] <= mostSupport
	return sound && r.Count >= 0 && r.Count <= 1000 && r.Slot >= 0 && r.Slot <= slotOf(time.Unix(0, r.Visits[n-1]))
}
