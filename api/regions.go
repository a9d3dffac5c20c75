package api

import (
	"slices"
	"strings"
)

// ParseRegions reads regions that commas separate, as eu-west-1,eu-central-1. They come out sorted, each once; empty: any.
func ParseRegions(s string) (regions []string) {
	for r := range strings.SplitSeq(s, ",") {
		if r = strings.TrimSpace(r); r != "" {
			regions = append(regions, r)
		}
	}
	slices.Sort(regions)
	return slices.Compact(regions)
}
