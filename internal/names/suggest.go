package names

import "strings"

// Nearest returns the word that differs from w, letter case aside, in the fewest bytes, if they are less than limit.
func Nearest(w string, limit int, words ...string) (nearest string) {
	for _, other := range words {
		if d := Distance(strings.ToLower(w), strings.ToLower(other), limit); d < limit {
			nearest, limit = other, d
		}
	}
	return nearest
}

// Distance returns the Levenshtein distance of a and b in bytes, or some number above limit if it is larger.
func Distance(a, b string, limit int) int {
	if d := len(a) - len(b); d > limit || -d > limit {
		return limit + 1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
