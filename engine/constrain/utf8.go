package constrain

import "unicode/utf8"

type byteRange struct{ lo, hi byte }

const surrogateMin, surrogateMax = 0xD800, 0xDFFF

// encodings calls f with sequences of byte ranges that together are the UTF-8 of a span.
func encodings(s span, f func([]byteRange)) {
	if s.lo < surrogateMin && s.hi > surrogateMax {
		encodings(span{s.lo, surrogateMin - 1}, f)
		encodings(span{surrogateMax + 1, s.hi}, f)
		return
	}
	if s.lo >= surrogateMin && s.lo <= surrogateMax {
		s.lo = surrogateMax + 1
	}
	if s.hi >= surrogateMin && s.hi <= surrogateMax {
		s.hi = surrogateMin - 1
	}
	if s.lo > s.hi {
		return
	}
	for _, last := range []rune{0x7F, 0x7FF, 0xFFFF} { // of one length only
		if s.lo <= last && last < s.hi {
			encodings(span{s.lo, last}, f)
			encodings(span{last + 1, s.hi}, f)
			return
		}
	}
	for bits := 6; bits <= 18 && s.hi > 0x7F; bits += 6 { // with whole ranges of continuation bytes behind what differs
		low := rune(1)<<bits - 1
		if s.lo&^low == s.hi&^low {
			break
		}
		if s.lo&low != 0 {
			encodings(span{s.lo, s.lo | low}, f)
			encodings(span{(s.lo | low) + 1, s.hi}, f)
			return
		}
		if s.hi&low != low {
			encodings(span{s.lo, s.hi&^low - 1}, f)
			encodings(span{s.hi &^ low, s.hi}, f)
			return
		}
	}
	lo, hi := utf8.AppendRune(nil, s.lo), utf8.AppendRune(nil, s.hi)
	ranges := make([]byteRange, len(lo))
	for i := range lo {
		ranges[i] = byteRange{lo[i], hi[i]}
	}
	f(ranges)
}
