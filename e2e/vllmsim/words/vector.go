package words

import "math"

// unit scales v to length one, in place.
func unit(v []float64) []float64 {
	length := math.Sqrt(Dot(v, v))
	if length == 0 {
		return v
	}
	for i := range v {
		v[i] /= length
	}
	return v
}

// Dot is the dot product of two vectors of equal length.
func Dot(a, b []float64) float64 {
	sum := 0.0
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}
