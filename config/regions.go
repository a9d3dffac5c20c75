package config

import (
	"slices"
	"strings"
)

// Sorted, without duplicates; nil: any region.
func parseRegions(s string) (regions []string) {
	for r := range strings.SplitSeq(s, ",") {
		if r = strings.TrimSpace(r); r != "" {
			regions = append(regions, r)
		}
	}
	slices.Sort(regions)
	return slices.Compact(regions)
}
